from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from disavow.domain import Layout, Policy, TensorSpec
from disavow.rounds.cluster import Clusters
from disavow.rounds.perturb import choose_and_perturb, clip
from disavow.rounds.randomness import Secrets
from disavow.rounds.vectors import Updates
from tests.rounds.builders import POLICY, PROPERTY, gaussian, layout_of_size, updates_of

SIZE = 20_000
TWO = Clusters(members=((0, 1, 2), (3, 4, 5)), weights=(0.5, 0.5), spreads=(2.0, 0.5), delta=2.0, capacities=(3, 3))
CALIBRATED = replace(POLICY, noise="calibrated", clip=1.5, tau=0.1)


def perturbed(
    updates: Updates,
    policy: Policy,
    *,
    attempt: int = 1,
    number: int = 1,
    secrets: Secrets | None = None,
    clusters: Clusters = TWO,
    layout: Layout | None = None,
) -> torch.Tensor:
    made = choose_and_perturb(
        updates,
        clusters,
        policy=policy,
        layout=layout or layout_of_size(updates.vectors.shape[1]),
        secrets=secrets or Secrets(5),
        round_number=number,
        attempt=attempt,
    )
    return made.vectors


def chosen(attempt: int, *, number: int = 1, secrets: Secrets | None = None) -> tuple[int, int]:
    """Who was drawn, readable here because each update is its own number and there is no noise."""
    updates = updates_of(torch.arange(6.0)[:, None])
    first, second = perturbed(
        updates, replace(POLICY, noise="none"), attempt=attempt, number=number, secrets=secrets
    )
    return int(first), int(second)


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
@pytest.mark.parametrize("sigma", [0.02, 1.0])
def test_paper_noise_has_standard_deviation_sigma_times_spread(distribution: str, sigma: float) -> None:
    policy = replace(POLICY, distribution=distribution, sigma=sigma)
    # all updates are 8, so that whatever is added is noise
    vectors = perturbed(updates_of(torch.full((6, SIZE), 8.0)), policy)
    name, at_one = ("norm", 1.0) if distribution == "gaussian" else ("laplace", 2**-0.5)
    for vector, spread in zip(vectors, TWO.spreads, strict=True):
        noise = vector.numpy() - 8
        assert vector.dtype == torch.float64
        assert float(np.std(noise)) == pytest.approx(sigma * spread, rel=0.04)
        assert scipy.stats.kstest(noise, name, args=(0, at_one * sigma * spread)).pvalue > 1e-4
    # each cluster has its own noise
    assert abs(float(np.corrcoef(vectors[0].numpy(), vectors[1].numpy())[0, 1])) < 0.05


@pytest.mark.parametrize(
    "policy", [replace(POLICY, noise="none", sigma=1.0), replace(POLICY, sigma=0.0), replace(CALIBRATED, sigma=1.0)]
)
def test_without_paper_noise_a_representative_is_a_member_as_it_is(policy: Policy) -> None:
    updates = updates_of(gaussian(6, 50))
    for vector, members in zip(perturbed(updates, policy), TWO.members, strict=True):
        assert any(torch.equal(vector, updates.vectors[i].double()) for i in members)


def test_a_cluster_of_spread_0_gets_no_noise_and_the_other_does() -> None:
    updates = updates_of(torch.ones(6, 30))
    made = perturbed(updates, POLICY, clusters=replace(TWO, spreads=(0.0, 1.0)))
    assert torch.equal(made[0], torch.ones(30, dtype=torch.float64))
    assert bool((made[1] != 1).all())


def test_representatives_are_drawn_uniformly_and_independently() -> None:
    pairs = Counter(chosen(attempt) for attempt in range(1, 3601))
    assert set(pairs) == {(a, b) for a in (0, 1, 2) for b in (3, 4, 5)}
    assert scipy.stats.chisquare(list(pairs.values())).pvalue > 1e-4


def test_seeded_draws_repeat_and_change_with_round_and_attempt() -> None:
    once = [chosen(attempt) for attempt in range(1, 30)]
    assert once == [chosen(attempt) for attempt in range(1, 30)]
    assert once != [chosen(attempt, number=2) for attempt in range(1, 30)]
    assert len(set(once)) > 3
    updates = updates_of(torch.zeros(6, 100))
    # noise used twice would cancel out of the difference of two attempts
    assert bool((perturbed(updates, POLICY)[0] != perturbed(updates, POLICY, attempt=2)[0]).all())


def test_fresh_draws_differ_from_call_to_call() -> None:
    updates = updates_of(torch.zeros(6, 100))
    first = perturbed(updates, POLICY, secrets=Secrets())
    second = perturbed(updates, POLICY, secrets=Secrets())
    assert bool((first[0] != second[0]).all())
    # the chance that 60 pairs of draws agree is 9^-60
    assert [chosen(1, secrets=Secrets()) for _ in range(60)] != [chosen(1, secrets=Secrets()) for _ in range(60)]


def test_the_draw_does_not_depend_on_the_noise() -> None:
    # with other noise the same members are drawn: choice and noise have streams of their own
    updates = updates_of(torch.arange(6.0)[:, None] * 1000)
    for attempt in range(1, 20):
        noisy = perturbed(updates, replace(POLICY, sigma=0.5), attempt=attempt)
        assert tuple(round(float(vector) / 1000) for vector in noisy) == chosen(attempt)


def test_nothing_that_is_returned_names_the_drawn() -> None:
    updates = updates_of(gaussian(6, 4))
    made = choose_and_perturb(
        updates, TWO, policy=POLICY, layout=layout_of_size(4), secrets=Secrets(5), round_number=1, attempt=1
    )
    assert list(vars(made)) == ["vectors"]
    assert "client" not in repr(made)


# -- several representatives ---------------------------------------------------------------------------------


def drawn_pairs(attempts: int) -> Counter[frozenset[int]]:
    """Which two of the first cluster were drawn, read from their mean: each update is a power of two."""
    updates = updates_of(2.0 ** torch.arange(6.0)[:, None])
    policy = replace(POLICY, noise="none", representatives=2)
    pairs = {(2.0**i + 2.0**j) / 2: frozenset((i, j)) for i in range(3) for j in range(i)}
    return Counter(
        pairs[float(perturbed(updates, policy, attempt=attempt)[0, 0])] for attempt in range(1, attempts + 1)
    )


def test_several_are_drawn_uniformly_without_replacement_and_averaged() -> None:
    found = drawn_pairs(3000)
    assert len(found) == 3
    assert scipy.stats.chisquare(list(found.values())).pvalue > 1e-4


def test_one_representative_is_drawn_as_before_there_could_be_several() -> None:
    """The numbers that version 0.1 drew with this seed, bit for bit."""
    updates = updates_of(gaussian(6, 4, seed=3))
    for attempt in range(1, 20):
        stream, noise = Secrets(5).stream(1, attempt, "representatives"), Secrets(5).stream(1, attempt, "noise")
        chosen = torch.tensor([members[stream.below(len(members))] for members in TWO.members])
        expected = updates.vectors[chosen].double()
        scales = torch.tensor(TWO.spreads, dtype=torch.float64) * POLICY.sigma
        expected += scales[:, None] * noise.normal(8).view(2, 4)
        assert torch.equal(perturbed(updates, POLICY, attempt=attempt), expected)


@pytest.mark.parametrize("representatives", [2, 3])
def test_noise_is_divided_by_the_number_of_representatives(representatives: int) -> None:
    policy = replace(POLICY, sigma=1.0, representatives=representatives)
    vectors = perturbed(updates_of(torch.full((6, SIZE), 8.0)), policy)
    for vector, spread in zip(vectors, TWO.spreads, strict=True):
        assert float(np.std(vector.numpy() - 8)) == pytest.approx(spread / representatives, rel=0.04)


def test_a_place_that_nobody_fills_counts_as_an_update_of_zeros() -> None:
    """Of four places three are filled: each member is drawn as often as the gap, which contributes nothing."""
    updates = updates_of(torch.arange(1.0, 7.0)[:, None])
    gap = replace(TWO, capacities=(4, 3))
    found = Counter(
        float(perturbed(updates, replace(POLICY, noise="none"), attempt=attempt, clusters=gap)[0, 0])
        for attempt in range(1, 4001)
    )
    assert sorted(found) == [0.0, 1.0, 2.0, 3.0]
    assert scipy.stats.chisquare(list(found.values())).pvalue > 1e-4


# -- running statistics --------------------------------------------------------------------------------------

NORMED = Layout((TensorSpec("weight", (SIZE,)), TensorSpec("bn.running_var", (SIZE,))))


def test_running_statistics_are_the_mean_over_the_cluster_with_noise_over_k() -> None:
    updates = updates_of(torch.arange(6.0)[:, None].repeat(1, 2 * SIZE))
    vectors = perturbed(updates, replace(POLICY, sigma=1.0), layout=NORMED)
    for vector, members, spread in zip(vectors, TWO.members, TWO.spreads, strict=True):
        statistics = vector[SIZE:].numpy()
        assert float(np.mean(statistics)) == pytest.approx(sum(members) / 3, abs=0.05)
        assert float(np.std(statistics)) == pytest.approx(spread / POLICY.k, rel=0.04)
        assert float(np.std(vector[:SIZE].numpy())) == pytest.approx(spread, rel=0.04)


@pytest.mark.parametrize("noise", ["paper", "none"])
def test_running_statistics_may_be_those_of_the_drawn(noise: str) -> None:
    updates = updates_of(torch.arange(6.0)[:, None].repeat(1, 2 * SIZE))
    policy = replace(POLICY, noise=noise, statistics="drawn")
    assert torch.equal(
        perturbed(updates, policy, layout=NORMED), perturbed(updates, policy, layout=layout_of_size(2 * SIZE))
    )


# -- clipping ------------------------------------------------------------------------------------------------


def exact_norm(row: torch.Tensor) -> float:
    return math.sqrt(math.fsum(float(x) ** 2 for x in row))


@PROPERTY
@given(
    st.floats(1e-6, 1e6),
    st.sampled_from([1e-20, 1e-3, 1.0, 1e3, 1e30]),
    st.integers(1, 40),
    st.integers(0, 1000),
)
def test_clipped_updates_are_no_longer_than_the_bound(bound: float, scale: float, size: int, seed: int) -> None:
    updates = updates_of(gaussian(8, size, seed=seed, scale=scale))
    clipped = clip(updates, replace(CALIBRATED, clip=bound))
    assert clipped.vectors.dtype == torch.float32
    for before, after in zip(updates.vectors, clipped.vectors, strict=True):
        norm = exact_norm(before)
        assert exact_norm(after) <= bound * (1 + 1e-15)
        if norm <= bound:
            assert torch.equal(after, before)
        else:
            # shortened to the bound and not further, in the same direction
            assert exact_norm(after) == pytest.approx(bound, rel=2e-6)
            torch.testing.assert_close(after.double(), before.double() * (bound / norm), rtol=2e-6, atol=1e-44)


def test_a_row_of_zeros_stays_zero_under_a_small_bound() -> None:
    clipped = clip(updates_of(torch.zeros(3, 4)), replace(CALIBRATED, clip=0.01))
    assert torch.equal(clipped.vectors, torch.zeros(3, 4))


@pytest.mark.parametrize("mode", ["paper", "none"])
def test_only_the_calibrated_mode_clips(mode: str) -> None:
    updates = updates_of(gaussian(3, 4, scale=100))
    assert clip(updates, replace(POLICY, noise=mode, clip=1.0)) is updates


def test_clipping_leaves_what_the_clients_returned_alone() -> None:
    updates = updates_of(gaussian(3, 4, scale=100))
    before = updates.vectors.clone()
    clip(updates, CALIBRATED)
    assert torch.equal(updates.vectors, before)
