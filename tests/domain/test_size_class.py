"""Weights are made from classes of sample counts: what they give away of a client is its class, never its count."""

from __future__ import annotations

import bisect
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.domain import size_class
from tests.rounds.builders import PROPERTY

UNIT = 1 << 32
counts = st.integers(1, 10**6)
rosters = st.lists(counts, min_size=2, max_size=40)


def nearest(samples: int) -> float:
    """The nearest of 2^(i/4), by ratio, by ordinary floating-point arithmetic."""
    return min((2 ** (i / 4) for i in range(100)), key=lambda size: max(size / samples, samples / size))


def weights(samples: list[int], groups: list[list[int]]) -> list[float]:
    classes = [size_class(n) for n in samples]
    return [sum(classes[i] for i in group) / sum(classes) for group in groups]


def groups_of(count: int, sizes: list[int]) -> list[list[int]]:
    cut, start = [], 0
    for size in sizes:
        cut.append(list(range(start, min(start + size, count))))
        start += size
    return [group for group in [*cut, list(range(start, count))] if group]


def bounds_of_class(samples: int) -> tuple[int, int]:
    """The smallest and the largest count of the same class."""
    near = range(1, 2 * samples + 1)
    first = bisect.bisect_left(near, size_class(samples), key=size_class)
    return near[first], near[bisect.bisect_right(near, size_class(samples), key=size_class) - 1]


@PROPERTY
@given(counts)
def test_the_class_is_the_nearest_of_four_a_doubling(samples: int) -> None:
    assert size_class(samples) / UNIT == pytest.approx(nearest(samples), rel=1e-9)


@PROPERTY
@given(st.integers(1, 2**62))
def test_a_class_is_off_by_a_factor_of_at_most_the_eighth_root_of_two(samples: int) -> None:
    ratio = Fraction(size_class(samples), UNIT * samples)
    assert 1 / Fraction("1.0905077328") <= ratio <= Fraction("1.0905077328")


def test_classes_grow_with_the_counts_and_double_with_them() -> None:
    found = [size_class(samples) for samples in range(1, 5000)]
    assert found == sorted(found)
    assert all(size_class(2 * n) == 2 * size_class(n) for n in range(1, 5000))
    # the last of them is the first of the next doubling
    assert len({size_class(n) for n in range(1024, 2048)}) == 5


@pytest.mark.parametrize("samples", [0, -1])
def test_nobody_holds_nothing(samples: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        size_class(samples)


@PROPERTY
@given(counts, st.integers(1, 40), st.lists(st.integers(1, 7), max_size=20))
def test_equal_sizes_give_exactly_equal_shares(samples: int, count: int, sizes: list[int]) -> None:
    groups = groups_of(count, sizes)
    found = weights([samples] * count, groups)
    assert found == [len(group) / count for group in groups]


@PROPERTY
@given(rosters)
def test_a_share_is_off_by_a_factor_of_at_most_the_fourth_root_of_two(samples: list[int]) -> None:
    for i, share in enumerate(weights(samples, [[i] for i in range(len(samples))])):
        exact = samples[i] / sum(samples)
        assert exact / 2**0.25 * (1 - 1e-9) <= share <= exact * 2**0.25 * (1 + 1e-9)


@PROPERTY
@given(rosters)
def test_no_more_than_the_23rd_part_of_a_mean_comes_from_others_than_before(samples: list[int]) -> None:
    """So the mean of any updates moves by at most 4.4 % of the distance between the two that are furthest apart."""
    found = weights(samples, [[i] for i in range(len(samples))])
    moved = sum(abs(share - n / sum(samples)) for share, n in zip(found, samples, strict=True)) / 2
    assert moved <= (2**0.125 - 1) / (2**0.125 + 1) * (1 + 1e-9) < 0.0434


@PROPERTY
@given(st.lists(rosters, min_size=1, max_size=5), st.lists(st.integers(1, 7), max_size=20), st.data())
def test_weights_and_survivors_counts_do_not_tell_the_leavers_count_from_others_of_its_class(
    rounds: list[list[int]], sizes: list[int], data: st.DataObject
) -> None:
    """Whatever else took part, in however many rounds: all weights are the same for every count of the class."""
    leaver = data.draw(counts)
    instead = data.draw(st.integers(*bounds_of_class(leaver)))
    for survivors in rounds:
        groups = groups_of(len(survivors) + 1, sizes)
        assert weights([*survivors, leaver], groups) == weights([*survivors, instead], groups)


@PROPERTY
@given(st.integers(9, 10**6))
def test_a_class_of_more_than_eight_samples_holds_several_counts(samples: int) -> None:
    smallest, largest = bounds_of_class(samples)
    assert smallest < largest
    assert len({size_class(n) for n in range(1, 9)}) == 8
