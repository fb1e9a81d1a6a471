from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from disavow.data import client_ids
from disavow.domain import Anchors
from disavow.rounds.clustering.fixed import position_by_seed, settled
from disavow.rounds.randomness import Secrets
from tests.rounds.builders import PROPERTY


def anchored(count: int, k: int, seed: int = 1, secret: int = 1) -> Anchors:
    return settled(client_ids(count), k, position_by_seed(seed), Secrets(secret).stream(0, 1, "borders"))


def names(anchors: Anchors) -> list[list[str]]:
    numbers = range(len(anchors.clusters))
    return [sorted(c for c, place in anchors.assignments.items() if place.cluster == number) for number in numbers]


@PROPERTY
@given(st.integers(1, 9), st.integers(0, 60), st.integers(0, 5))
def test_clusters_are_as_equal_as_can_be(k: int, more: int, seed: int) -> None:
    count = k + more
    anchors = anchored(count, k, seed)
    sizes = [len(group) for group in names(anchors)]
    assert sizes == [anchor.capacity for anchor in anchors.clusters]
    assert len(sizes) == count // k
    assert k <= min(sizes) <= max(sizes) < 2 * k
    assert max(sizes) - min(sizes) <= 1
    assert sorted(anchors.assignments) == list(client_ids(count))


def test_clusters_depend_on_positions_alone() -> None:
    assert names(anchored(20, 4)) == names(anchored(20, 4, secret=2))
    assert names(anchored(20, 4, seed=1)) != names(anchored(20, 4, seed=2))


def test_clusters_are_not_the_order_of_the_ids() -> None:
    in_order = [list(client_ids(40)[i : i + 4]) for i in range(0, 40, 4)]
    assert sorted(names(anchored(40, 4))) != in_order


@PROPERTY
@given(st.integers(1, 9), st.integers(0, 60), st.integers(0, 5))
def test_borders_lie_between_the_hashes_of_neighbours_and_are_nobodys(k: int, more: int, seed: int) -> None:
    anchors = anchored(k + more, k, seed)
    order = sorted(position_by_seed(seed)(client) for client in anchors.assignments)
    borders = [anchor.until for anchor in anchors.clusters]
    assert borders[-1] is None
    inner = [border for border in borders if border is not None]
    assert len(inner) == len(borders) - 1
    assert not set(inner) & set(order)
    reached = 0
    for anchor, border in zip(anchors.clusters, inner, strict=False):
        reached += anchor.capacity
        assert order[reached - 1] < border < order[reached]


def test_borders_are_drawn_in_secret_so_that_nobody_can_work_out_the_hashes_beside_them() -> None:
    one, two = anchored(40, 4, secret=1), anchored(40, 4, secret=2)
    borders = [(a.until, b.until) for a, b in zip(one.clusters, two.clusters, strict=True)]
    assert all(a != b for a, b in borders[:-1])


@PROPERTY
@given(st.integers(2, 5), st.integers(0, 30), st.integers(0, 30), st.integers(0, 5), st.data())
def test_who_leaves_and_who_joins_moves_nobody_else(
    k: int, more: int, newcomers: int, seed: int, data: st.DataObject
) -> None:
    anchors = anchored(k + more, k, seed).counted(dict.fromkeys(client_ids(k + more), 7))
    leavers = data.draw(st.sets(st.sampled_from(client_ids(k + more))))
    left = anchors.without(leavers)
    assert left.clusters == anchors.clusters
    assert {c: left.assignments[c] for c in left.assignments} == {
        c: place for c, place in anchors.assignments.items() if c not in leavers
    }
    new = [f"new-{i}" for i in range(newcomers)]
    grown = left.joined({client: position_by_seed(seed)(client) for client in new}).counted(dict.fromkeys(new, 5))
    assert {c: grown.assignments[c] for c in left.assignments} == left.assignments
    assert [anchor.until for anchor in grown.clusters] == [anchor.until for anchor in anchors.clusters]
    for number, (before, after) in enumerate(zip(anchors.clusters, grown.clusters, strict=True)):
        count = sum(grown.assignments[client].cluster == number for client in new)
        assert (after.capacity, after.share) == (before.capacity + count, before.share + 5 * count)
    # in hash order clusters follow each other, newcomers included
    order = sorted(grown.assignments, key=position_by_seed(seed))
    assert all(one <= two for one, two in pairwise(grown.assignments[client].cluster for client in order))


def test_a_share_is_counted_once() -> None:
    [client, *_] = client_ids(4)
    anchors = anchored(4, 2).counted({client: 3})
    assert anchors.counted({client: 9}) == anchors
    number = anchors.assignments[client].cluster
    assert anchors.clusters[number] == replace(anchored(4, 2).clusters[number], share=3)
