from __future__ import annotations

import math
from dataclasses import replace

import pytest

from disavow.privacy import gaussian, sampling
from disavow.privacy.accountants import OBSERVER, REPLACED, account, paper, sampled, unconditional
from disavow.privacy.calibration import Setting
from disavow.privacy.events import Event, fixed_sizes

DELTA = 1e-5
DESIGN = Setting(rounds=50, sizes=fixed_sizes(50, 10), clip=3.0)


def design(sigma: float = 1.0, *, fixed: bool = True) -> list[Event]:
    return DESIGN.events(DESIGN.tau_of(sigma), fixed=fixed)


def test_the_figures_of_the_design() -> None:
    by_name = {claim.name: claim for claim in account(design(), DELTA)}
    assert list(by_name) == ["unconditional", "sampled", "paper"]
    assert by_name["unconditional"].epsilon == pytest.approx(191.5, abs=0.05)
    assert by_name["sampled"].epsilon == pytest.approx(0.768, abs=0.0005)
    truly = dict(by_name["paper"].beside)
    assert truly["truly, with its analysis noise σ·2Δ"] == pytest.approx(54.4, abs=0.05)
    assert by_name["paper"].epsilon == pytest.approx(math.sqrt(50 * (1 + 8 * math.log(1e5)) / 7))


def test_the_clip_is_a_unit() -> None:
    other = replace(DESIGN, clip=0.01)
    for one, two in zip(
        account(design(), DELTA), account(other.events(other.tau_of(1.0), fixed=True), DELTA), strict=True
    ):
        assert one.epsilon == pytest.approx(two.epsilon)


def test_unconditional_adds_up_in_squares_whatever_the_rounds() -> None:
    events = [replace(event, tau=1.0 + event.number / 10) for event in design()]
    mu = math.sqrt(sum((2 * 3.0 / (1.0 + n / 10)) ** 2 for n in range(1, 51)))
    assert unconditional(events, DELTA).epsilon == pytest.approx(gaussian.epsilon_of(DELTA, mu), rel=1e-9)
    # what clusters look like does not matter to it
    assert unconditional([replace(e, rate=0.5, weight=0.9, fixed=False) for e in events], DELTA) == unconditional(
        events, DELTA
    )


def test_sampled_takes_rate_and_weight_of_each_round() -> None:
    events = design()[:2] + [replace(event, rate=0.2, weight=0.4) for event in design()[:3]]
    tau = DESIGN.tau_of(1.0)
    rounds = (
        (sampling.Sampled(0.1, tau / (3 * 0.2)), 2),
        (sampling.Sampled(0.2, tau / (3 * 0.4)), 3),
    )
    claim = sampled(events, DELTA)
    assert claim.epsilon == pytest.approx(sampling.epsilon_of(rounds, DELTA), rel=1e-6)
    assert dict(claim.beside)[REPLACED] == pytest.approx(sampling.renyi_epsilon_of(rounds, DELTA))


def test_without_fixed_clusters_the_sampled_claim_is_hypothetical() -> None:
    claims = {claim.name: claim for claim in account(design(fixed=False), DELTA)}
    assert claims["sampled"].hypothetical
    assert "would hold with" in claims["sampled"].remarks[0]
    assert not claims["unconditional"].hypothetical
    # one round is enough
    assert sampled([*design()[:-1], design(fixed=False)[-1]], DELTA).hypothetical
    assert not sampled(design(), DELTA).hypothetical


def test_predictable_draws_make_every_claim_void() -> None:
    events = [*design()[:-1], replace(design()[-1], predictable=True)]
    assert all(claim.void for claim in account(events, DELTA))
    assert not any(claim.void for claim in account(design(), DELTA))


@pytest.mark.parametrize(("noise", "reason"), [("paper", "depends on the data"), ("none", "there is no noise")])
def test_other_noise_yields_no_figure_and_says_why(noise: str, reason: str) -> None:
    events = [replace(event, mode=noise, clip=None, tau=None) for event in design()]
    for claim in account(events, DELTA):
        assert claim.epsilon is None
        assert reason in claim.why_not
        assert claim.beside == ()


def test_no_rounds_released_nothing() -> None:
    for claim in account([], DELTA):
        assert (claim.epsilon, claim.why_not) == (None, "no round was executed: nothing was released")


def test_each_claim_says_against_whom_and_under_what() -> None:
    one, two, three = account(design(), DELTA)
    assert one.observer == two.observer == OBSERVER
    assert "no log, no proof, no spreads" in OBSERVER
    assert "no claim against the server" in OBSERVER
    assert all(claim.assumptions for claim in (one, two, three))
    assert three.refuted
    assert len(three.remarks) == 3


def test_the_theorem_says_nothing_beyond_its_range() -> None:
    claim = paper(design(sigma=0.1), DELTA)
    assert claim.epsilon is None
    assert claim.why_not.startswith(
        "the theorem is stated for ε below 8 ln(1/δ) = 92.1; this noise would make it 257.9"
    )
    assert len(claim.beside) == 2  # what it truly gives can be said all the same
