from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from disavow.rounds.clustering.mdav import mdav
from tests.rounds.builders import PROPERTY, groups_of, line_geometry


def on_a_line(positions: list[float], k: int) -> list[list[int]]:
    items = torch.arange(len(positions))
    return [group.tolist() for group in mdav(line_geometry(positions), items, k)]


@PROPERTY
@given(st.integers(2, 6), st.lists(st.sampled_from([0.0, 1.0, 1.5, -7.0, 1e-9, 1e9]), min_size=6, max_size=40))
def test_all_clusters_have_k_members_but_the_last(k: int, positions: list[float]) -> None:
    groups = on_a_line(positions, k)
    sizes = [len(group) for group in groups]
    assert sizes[:-1] == [k] * (len(sizes) - 1)
    assert k <= sizes[-1] < 2 * k
    assert sorted(i for group in groups for i in group) == list(range(len(positions)))


def test_the_farthest_from_the_centre_gathers_its_nearest_first() -> None:
    # centre 30; 90 is farthest and takes 70 (20 away), then the farthest from it, 0, takes 1
    assert on_a_line([0, 1, 9, 10, 70, 90], 2) == [[4, 5], [0, 1], [2, 3]]


def test_ties_go_to_the_lower_number() -> None:
    assert on_a_line([5.0] * 9, 3) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_separate_groups_are_found_whatever_the_order() -> None:
    positions = [0.0, 100.0, 1.0, 300.0, 101.0, 2.0, 301.0, 102.0, 302.0]
    assert groups_of(on_a_line(positions, 3)) == groups_of([[0, 2, 5], [1, 4, 7], [3, 6, 8]])


def test_only_the_items_given_are_partitioned() -> None:
    items = torch.tensor([1, 3, 4, 6, 8])
    groups = mdav(line_geometry([float(i) for i in range(10)]), items, 2)
    assert groups_of(group.tolist() for group in groups) == {frozenset({6, 8}), frozenset({1, 3, 4})}
