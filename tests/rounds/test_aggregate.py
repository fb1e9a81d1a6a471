from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

from disavow.domain import Layout, Policy, TensorSpec
from disavow.rounds.aggregate import aggregate
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.cluster import Clusters
from disavow.rounds.perturb import Perturbed
from disavow.rounds.randomness import Secrets
from disavow.rounds.vectors import Model
from tests.rounds.builders import MOMENT, POLICY, gaussian, layout_of_size

CALIBRATED = replace(POLICY, noise="calibrated", clip=1.0, tau=0.25)


def aggregated(
    model: torch.Tensor,
    steps: torch.Tensor,
    weights: tuple[float, ...],
    policy: Policy,
    *,
    layout: Layout | None = None,
    attempt: int = 1,
    secrets: Secrets | None = None,
) -> torch.Tensor:
    count = len(weights)
    clusters = Clusters(
        members=tuple((i,) for i in range(count)),
        weights=weights,
        spreads=(1.0,) * count,
        delta=1.0,
        capacities=(1,) * count,
    )
    opening = Broadcast(3, attempt, Model(layout or layout_of_size(len(model)), model), "digest", MOMENT)
    made = Perturbed(steps.double())
    return aggregate(opening, clusters, made, policy=policy, secrets=secrets or Secrets(5)).vector


@pytest.mark.parametrize("policy", [POLICY, replace(POLICY, noise="none")])
def test_the_aggregate_is_the_weighted_sum_of_the_perturbed_models_in_float64(policy: Policy) -> None:
    model, steps = gaussian(1, 500, scale=8)[0], gaussian(4, 500, seed=1, scale=0.1)
    weights = (0.1, 0.2, 0.3, 0.4)
    expected = sum(weight * (model.double() + step.double()) for weight, step in zip(weights, steps, strict=True))
    result = aggregated(model, steps, weights, policy)
    assert result.dtype == torch.float32
    assert isinstance(expected, torch.Tensor)
    # one rounding, from float64 to float32
    torch.testing.assert_close(result.double(), expected, rtol=2**-24 * 1.0001, atol=0.0)


def test_sums_run_in_float64() -> None:
    # in float32 the two large steps would swallow the small one
    steps = torch.tensor([[1e8], [1.0], [-1e8]])
    assert aggregated(torch.zeros(1), steps, (0.25, 0.5, 0.25), POLICY).item() == 0.5


def test_calibrated_noise_of_standard_deviation_tau_is_added_once() -> None:
    # four clusters or one: the noise on the aggregate is the same
    steps = torch.full((4, 20_000), 3.0)
    one = aggregated(torch.ones(20_000), steps[:1], (1.0,), CALIBRATED)
    four = aggregated(torch.ones(20_000), steps, (0.25,) * 4, CALIBRATED)
    assert torch.equal(one, four)
    noise = four.double().numpy() - 4
    assert float(np.std(noise)) == pytest.approx(0.25, rel=0.03)
    assert scipy.stats.kstest(noise, "norm", args=(0, 0.25)).pvalue > 1e-4


def test_noise_by_sensitivity_is_added_once_and_scaled_by_the_widest_share_over_the_drawn() -> None:
    policy = replace(POLICY, noise="sensitivity", sigma=2.0, representatives=4)
    made = aggregated(torch.ones(20_000), torch.full((3, 20_000), 3.0), (0.25, 0.5, 0.25), policy)
    noise = made.double().numpy() - 4
    assert scipy.stats.kstest(noise, "norm", args=(0, 2.0 * 0.5 / 4)).pvalue > 1e-4


@pytest.mark.parametrize("policy", [POLICY, replace(POLICY, noise="none", tau=0.25)])
def test_the_other_modes_add_nothing_to_the_aggregate(policy: Policy) -> None:
    assert torch.equal(aggregated(torch.ones(50), torch.full((1, 50), 3.0), (1.0,), policy), torch.full((50,), 4.0))


def test_calibrated_noise_changes_with_the_attempt_and_fresh_noise_always() -> None:
    def once(attempt: int, secrets: Secrets | None = None) -> torch.Tensor:
        return aggregated(torch.zeros(50), torch.zeros(1, 50), (1.0,), CALIBRATED, attempt=attempt, secrets=secrets)

    assert torch.equal(once(1), once(1))
    assert bool((once(1) != once(2)).all())
    assert bool((once(1, Secrets()) != once(1, Secrets())).all())


def test_running_variances_are_floored_after_noise() -> None:
    layout = Layout((TensorSpec("norm.running_mean", (40,)), TensorSpec("norm.running_var", (40,))))
    result = aggregated(torch.full((80,), 0.1), torch.full((1, 80), -0.1), (1.0,), CALIBRATED, layout=layout)
    assert bool((result[:40] < 0).any())
    assert bool((result[40:] >= torch.tensor(1e-5)).all())
    assert bool((result[40:] == torch.tensor(0.25)).any())


@pytest.mark.parametrize(
    ("policy", "floor"),
    [
        (replace(POLICY, noise="none"), 1e-5),
        # sigma times the root of the sum of squares of weight times spread
        (replace(POLICY, noise="paper", sigma=0.02, statistics="drawn"), 0.02 * np.sqrt(0.25**2 + 0.75**2)),
        # a mean over the cluster's members, of whom there are three at least
        (replace(POLICY, noise="paper", sigma=0.02), 0.02 * np.sqrt(0.25**2 + 0.75**2) / 3),
        (CALIBRATED, 0.25),
        # sigma times the largest weight times spread
        (replace(POLICY, noise="sensitivity", sigma=0.02), 0.02 * 0.75),
    ],
    ids=["none", "paper, drawn", "paper, mean", "calibrated", "sensitivity"],
)
def test_running_variances_are_floored_at_the_noise_of_the_aggregate(policy: Policy, floor: float) -> None:
    layout = Layout((TensorSpec("norm.running_var", (1000,)),))
    made = aggregated(torch.full((1000,), 1e-3), torch.full((2, 1000), -1e-3), (0.25, 0.75), policy, layout=layout)
    assert float(made.min()) == pytest.approx(floor, rel=1e-6)
