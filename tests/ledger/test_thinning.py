"""Which checkpoints go: never the first or the last, never more than needed, and the cheapest first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from disavow.ledger.retention import superfluous, weights_of

ROUNDS = 12

sizes = st.dictionaries(st.integers(2, ROUNDS), st.integers(1, 100)).map(
    lambda some: {1: 50, ROUNDS + 1: 60, **some}
)
weights = st.lists(st.floats(0.001, 10), min_size=ROUNDS, max_size=ROUNDS)
repeats = st.lists(st.booleans(), min_size=1, max_size=60).map(lambda some: [False, *some])


def expected_cost(kept: Sequence[int], weight: Sequence[float]) -> float:
    """More rounds to retrain than with every checkpoint, weighted; by the definition, round by round."""
    return sum(
        weight[number - 1] * (number - max(each for each in kept if each <= number))
        for number in range(1, len(weight) + 1)
    )


@given(sizes, weights, st.integers(0, 1500))
def test_what_stays_fits_and_holds_the_first_and_the_last(
    sizes: dict[int, int], weights: list[float], budget: int
) -> None:
    gone = superfluous(sizes, weights, budget)
    kept = set(sizes) - set(gone)
    assert len(set(gone)) == len(gone)
    assert {min(sizes), max(sizes)} <= kept
    assert sum(sizes[each] for each in kept) <= budget or kept == {min(sizes), max(sizes)}


@given(sizes, weights, st.integers(0, 1500))
def test_nothing_goes_that_did_not_have_to(sizes: dict[int, int], weights: list[float], budget: int) -> None:
    gone = superfluous(sizes, weights, budget)
    for some in range(len(gone)):
        assert sum(sizes.values()) - sum(sizes[each] for each in gone[:some]) > budget


@given(sizes, weights, st.integers(0, 1500))
def test_each_that_goes_is_the_one_whose_absence_costs_least(
    sizes: dict[int, int], weights: list[float], budget: int
) -> None:
    kept = sorted(sizes)
    for each in superfluous(sizes, weights, budget):
        costs = {other: expected_cost([k for k in kept if k != other], weights) for other in kept[1:-1]}
        assert costs[each] <= min(costs.values()) * (1 + 1e-9) + 1e-9
        kept.remove(each)


@given(sizes, weights, st.integers(0, 1500))
def test_the_order_in_which_they_are_told_does_not_matter(
    sizes: dict[int, int], weights: list[float], budget: int
) -> None:
    backwards = dict(sorted(sizes.items(), reverse=True))
    assert superfluous(backwards, weights, budget) == superfluous(dict(sorted(sizes.items())), weights, budget)


@given(sizes, weights, st.integers(0, 1500))
def test_thinning_twice_is_thinning_once(sizes: dict[int, int], weights: list[float], budget: int) -> None:
    gone = set(superfluous(sizes, weights, budget))
    assert superfluous({each: size for each, size in sizes.items() if each not in gone}, weights, budget) == ()


@given(sizes, weights, st.integers(0, 1500), st.integers(0, 500))
def test_a_larger_budget_keeps_all_that_a_smaller_one_keeps(
    sizes: dict[int, int], weights: list[float], budget: int, more: int
) -> None:
    assert set(superfluous(sizes, weights, budget + more)) <= set(superfluous(sizes, weights, budget))


@given(repeats)
def test_only_the_first_round_of_a_stretch_weighs_and_earlier_stretches_weigh_more(repeats: list[bool]) -> None:
    found = weights_of(repeats)
    assert len(found) == len(repeats)
    first = [weight for weight, repeated in zip(found, repeats, strict=True) if not repeated]
    assert first == [1 / stretch for stretch in range(1, len(first) + 1)]
    others = [weight for weight, repeated in zip(found, repeats, strict=True) if repeated]
    assert all(weight <= 0.01 for weight in others)


def test_the_beginning_of_a_stretch_outlives_its_other_rounds() -> None:
    """Clusters were repaired before round 7: of ten checkpoints, that one and the ends stay."""
    weights = weights_of([False, *[True] * 5, False, *[True] * 2])
    gone = superfluous(dict.fromkeys(range(1, 11), 10), weights, budget=30)
    assert sorted(set(range(1, 11)) - set(gone)) == [1, 7, 10]


def test_where_every_round_is_as_likely_gaps_stay_even() -> None:
    kept = set(range(1, 34)) - set(superfluous(dict.fromkeys(range(1, 34), 1), [1.0] * 32, budget=9))
    gaps = [later - earlier for earlier, later in pairwise(sorted(kept))]
    assert max(gaps) <= 2 * min(gaps)
