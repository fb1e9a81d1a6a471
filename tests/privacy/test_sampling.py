from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtr

from disavow.errors import MissingExtra
from disavow.privacy import gaussian, sampling
from disavow.privacy.sampling import Rounds, Sampled, counted
from tests.refusals import refuses
from tests.selection import some_of


def poisson(rounds: Rounds, delta: float, interval: float = 1e-4) -> float:
    """`dp-accounting` as its manual has it, of Poisson sampling."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=interval)
    for kind, count in rounds:
        event = dp_accounting.PoissonSampledDpEvent(kind.rate, dp_accounting.GaussianDpEvent(kind.multiplier))
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def halved(rounds: Rounds) -> Rounds:
    return tuple((Sampled(kind.rate, kind.multiplier / 2), count) for kind, count in rounds)


@pytest.mark.parametrize(("multiplier", "epsilon"), [(2.0, 3.20), (2 * 5**0.5, 0.768)])
def test_the_figures_of_the_design(multiplier: float, epsilon: float) -> None:
    found = sampling.epsilon_of(((Sampled(0.1, multiplier), 50),), 1e-5)
    assert found == pytest.approx(epsilon, abs=0.005)


@pytest.mark.parametrize(
    ("rounds", "delta", "interval"),
    [
        (((Sampled(0.1, 5**0.5), 50),), 1e-5, 1e-4),
        pytest.param(((Sampled(0.1, 5**0.5), 1000),), 1e-5, 1e-4, marks=pytest.mark.torture),
        (((Sampled(0.5, 0.3), 50),), 1e-5, 1e-3),
        pytest.param(((Sampled(0.02, 0.8), 200),), 1e-8, 1e-4, marks=pytest.mark.torture),
        pytest.param(((Sampled(0.1, 100.0), 50),), 1e-5, 1e-6, marks=pytest.mark.torture),
        (((Sampled(0.1, 1.0), 20), (Sampled(0.125, 1.3), 30)), 1e-6, 1e-4),
    ],
    ids=["design", "many rounds", "much", "small delta", "little", "unequal"],
)
def test_it_lies_between_poisson_sampling_of_the_same_and_of_twice_the_sensitivity(
    rounds: Rounds, delta: float, interval: float
) -> None:
    """Where others contribute nothing it is the former; where they are all opposite, up to nearly the latter."""
    found = sampling.epsilon_of(rounds, delta)
    assert 0.99 * poisson(rounds, delta, interval) < found < 1.01 * poisson(halved(rounds), delta, interval)


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize("kind", [Sampled(0.1, 4.0), Sampled(0.5, 0.3), Sampled(1.0, 0.7), Sampled(0.01, 0.05)])
def test_the_distribution_of_losses_has_the_exact_delta_at_every_point_of_its_grid(
    kind: Sampled, removed: bool
) -> None:
    interval = 2.0**-6
    built = sampling._distribution(kind, interval)
    pmf = built._pmf_remove if removed else built._pmf_add
    for losses in range(-200, 400, 7):
        epsilon = losses * interval
        there, back = (
            float(sampling.delta_of(kind, np.array([abs(epsilon)]), removed=flag)[0])
            for flag in (removed, not removed)
        )
        due = there if epsilon >= 0 else -math.expm1(epsilon) + math.exp(epsilon) * back
        assert pmf.get_delta_for_epsilon(epsilon) == pytest.approx(due, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("kind", [Sampled(0.1, 4.0), Sampled(0.5, 0.3), Sampled(0.9, 0.7), Sampled(0.01, 0.05)])
def test_the_best_half_line_is_found(kind: Sampled) -> None:
    mu, lines = 1 / kind.multiplier, np.linspace(-20, 60, 400_001)
    for epsilon in (0.0, 0.3, 2.0):
        alpha = math.exp(epsilon)
        opposite = (alpha - 1) * (1 - kind.rate) / kind.rate
        gaps = ndtr(mu - lines) - opposite * ndtr(-mu - lines) - alpha * ndtr(-lines)
        found = sampling.delta_of(kind, np.array([epsilon]), removed=True)[0]
        assert found == pytest.approx(kind.rate * gaps.max(), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(
    ("multiplier", "count", "delta"),
    some_of(
        [(*each, delta) for each in [(0.5, 1), (1.0, 50), (10.0, 400)] for delta in [1e-3, 1e-5, 1e-8]],
        [(0.5, 1, 1e-3), (1.0, 50, 1e-8), (10.0, 400, 1e-5)],
    ),
)
def test_always_drawn_is_the_gaussian_mechanism(multiplier: float, count: int, delta: float) -> None:
    closed = gaussian.epsilon_of(delta, count**0.5 / multiplier)
    assert sampling.epsilon_of(((Sampled(1.0, multiplier), count),), delta) == pytest.approx(closed, rel=0.01)


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.01])
def test_one_round_agrees_with_its_closed_form(rate: float) -> None:
    kind, delta = Sampled(rate, 0.7), 1e-6
    found = np.array([sampling.epsilon_of(((kind, 1),), delta)])
    assert sampling.delta_of(kind, found, removed=True)[0] == pytest.approx(delta, rel=0.01)
    assert sampling.delta_of(kind, found, removed=False)[0] <= delta


def test_renyi_of_a_client_replaced_is_looser_and_not_by_much() -> None:
    rounds = ((Sampled(0.1, 2 * 5**0.5), 50),)
    # replaced it may move twice as much, and its figure is at most that of half the noise
    tight, loose = sampling.epsilon_of(halved(rounds), 1e-5), sampling.renyi_epsilon_of(rounds, 1e-5)
    assert sampling.epsilon_of(rounds, 1e-5) < tight < loose < 2 * tight


def test_a_delta_too_small_for_convolutions_is_accounted_by_renyi() -> None:
    rounds = ((Sampled(0.1, 1.0), 50),)
    assert sampling.epsilon_of(rounds, 1e-30) == sampling.renyi_epsilon_of(rounds, 1e-30)
    assert sampling.epsilon_of(rounds, 1e-30) > sampling.epsilon_of(rounds, 1e-9)


@pytest.mark.parametrize("multiplier", [1e-3, 1e5, 1e9])
def test_extreme_noise_is_accounted_quickly_and_never_above_the_unsampled(multiplier: float) -> None:
    for count in (1, 1000):
        found = sampling.epsilon_of(((Sampled(0.25, multiplier), count),), 1e-5)
        # noise beyond what arithmetic can tell from none counts as no more than that
        accounted = min(multiplier, 0.25e5)
        assert 0 <= found <= gaussian.epsilon_of(1e-5, count**0.5 / accounted) * 1.001


def test_large_figures_grow_smoothly_and_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    found = [sampling.epsilon_of(((Sampled(0.25, 0.1), count),), 1e-5) for count in range(1, 41, 13)]
    steps = [after / before for before, after in pairwise(found)]
    assert found[0] < 100
    assert 700 < found[-1] < 2000
    assert steps == pytest.approx(sorted(steps, reverse=True), rel=1e-3)
    assert all(step > 1 for step in steps)
    assert not recwarn.list


@pytest.mark.parametrize("delta", some_of([1e-5, 1e-12], [1e-12]))
def test_more_noise_never_costs_more_and_digits_that_run_out_never_make_it_free(delta: float) -> None:
    found = [sampling.epsilon_of(((Sampled(0.1, 10.0**power), 50),), delta) for power in range(-1, 12)]
    assert found == sorted(found, reverse=True)
    for power, epsilon in enumerate(found, start=-1):
        # 0 only where even the central limit of the losses is within δ, or nearly
        assert epsilon > 0 or gaussian.delta_of(0.0, 50**0.5 * 0.1 / 10.0**power) < 3 * delta


def test_nothing_costs_nothing() -> None:
    assert sampling.epsilon_of((), 1e-5) == 0.0


def test_many_unequal_rounds_are_rounded_on_the_safe_side_and_only_a_little() -> None:
    few = [Sampled(0.1, 2 + i / 1000) for i in range(32)]
    assert counted(few) == tuple((kind, 1) for kind in few)
    many = [Sampled(0.1, 2 + i / 10_000) for i in range(100)]
    grouped = counted(many)
    assert sum(count for _, count in grouped) == 100
    assert len(grouped) < 10
    assert max(kind.multiplier for kind, _ in grouped) <= 2.01
    assert min(kind.multiplier for kind, _ in grouped) >= 2 * (1 - 2e-3)
    rounded, kindest = sampling.epsilon_of(grouped, 1e-5), sampling.epsilon_of(((Sampled(0.1, 2.01), 100),), 1e-5)
    assert kindest <= rounded <= 1.02 * kindest


def test_the_order_of_rounds_does_not_matter() -> None:
    kinds = [Sampled(0.1, 1.0), Sampled(0.2, 2.0), Sampled(0.1, 1.0)]
    assert counted(kinds) == counted(reversed(kinds))


def test_nothing_is_imported_before_a_figure_is_asked_for() -> None:
    code = (
        "import sys; import disavow.runs, disavow.cli.account; "
        "sys.exit(any(name.startswith('dp_accounting') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_dp_accounting_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    rounds = ((Sampled(0.123, 1.234), 3),)  # nobody else asks for these, so nothing is remembered
    for figure in (sampling.epsilon_of, sampling.renyi_epsilon_of):
        with refuses(MissingExtra, "[train]"):
            figure(rounds, 1e-5)
