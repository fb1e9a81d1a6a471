from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from disavow.federation.clustering.alike import l2_geometry, neighbours, spreads
from disavow.federation.clustering.distances import squared_l2
from disavow.federation.clustering.geometry import ExactGeometry, Geometry, ProjectedGeometry, project
from disavow.federation.clustering.mdav import mdav
from disavow.federation.randomness import training_stream
from tests.federation.builders import direct_distances, gaussian

LARGE = 2003

Kind = Callable[[Tensor], Geometry]


def exact(vectors: Tensor) -> Geometry:
    return ExactGeometry(squared_l2(vectors))


def projected(vectors: Tensor) -> Geometry:
    return ProjectedGeometry(project(vectors, None, training_stream(1, "clustering")))


def naive_neighbours(vectors: Tensor, clusters: list[Tensor], delta: float, k: int) -> list[list[int]]:
    distances = direct_distances(vectors).tolist()
    cluster_of = {i: c for c, members in enumerate(clusters) for i in members.tolist()}
    lists = []
    for i in range(len(vectors)):
        near = [j for j in range(len(vectors)) if j != i and distances[i][j] <= delta]
        near.sort(key=lambda j: (cluster_of[j] != cluster_of[i], distances[i][j], j))
        lists.append(near[: 2 * k])
    return lists


@pytest.mark.parametrize("kind", [exact, projected])
def test_spreads_are_the_largest_l2_distance_inside_each_cluster(kind: Kind) -> None:
    vectors = gaussian(20, 300, seed=1, scale=1e-3) + 8
    clusters = [torch.arange(0, 6), torch.arange(6, 9), torch.tensor([9, 11, 13, 15, 17, 19])]
    expected = [float(direct_distances(vectors[members]).max()) for members in clusters]
    assert spreads(vectors, kind(vectors), clusters) == pytest.approx(expected, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("kind", [exact, projected])
def test_members_with_the_same_update_have_spread_zero(kind: Kind) -> None:
    vectors = gaussian(2, 50, seed=2)[torch.tensor([0, 1] * 4)]
    assert spreads(vectors, kind(vectors), [torch.tensor([0, 2, 4, 6]), torch.tensor([1, 3, 5, 7])]) == [0.0, 0.0]


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("reach", [0.5, 1.0, 1.4])
def test_the_lists_of_a_small_round_equal_a_naive_loop(k: int, reach: float) -> None:
    vectors = gaussian(37, 6, seed=k)
    geometry = exact(vectors)
    clusters = mdav(geometry, torch.arange(37), k)
    # a hair wider than the widest pair, whose last bit the loop below may round otherwise
    delta = reach * (1 + 1e-9) * max(spreads(vectors, geometry, clusters))
    lists = neighbours(vectors, geometry, clusters, delta=delta, k=k)
    assert lists == naive_neighbours(vectors, clusters, delta, k)


def test_members_of_the_same_cluster_come_first_even_when_others_are_nearer() -> None:
    vectors = torch.tensor([[0.0], [3.0], [0.5], [4.0]])
    lists = neighbours(vectors, exact(vectors), [torch.tensor([0, 1]), torch.tensor([2, 3])], delta=3.5, k=2)
    assert lists == [[1, 2], [0, 3, 2], [3, 0, 1], [2, 1]]


def test_a_list_ends_at_2k() -> None:
    vectors = torch.arange(9.0)[:, None]
    lists = neighbours(vectors, exact(vectors), [torch.arange(4), torch.arange(4, 9)], delta=100.0, k=2)
    assert {len(listed) for listed in lists} == {4}
    assert lists[0] == [1, 2, 3, 4]


def test_the_limit_itself_is_near_and_beyond_it_is_not() -> None:
    vectors = torch.tensor([[0.0], [1.0], [2.0], [3.5]])
    lists = neighbours(vectors, exact(vectors), [torch.arange(4)], delta=1.0, k=2)
    assert lists == [[1], [0, 2], [1], []]


def test_l2_is_asked_for_whatever_the_metric_and_not_measured_twice() -> None:
    vectors = gaussian(8, 4, seed=3)
    given, stream = exact(vectors), training_stream(1, "clustering")
    assert l2_geometry(vectors, "l2", given, stream) is given
    other = l2_geometry(vectors, "cosine", ExactGeometry(torch.zeros(8, 8)), stream)
    everyone = torch.arange(8)
    torch.testing.assert_close(other.between(everyone, everyone), direct_distances(vectors).square())
    many = gaussian(LARGE, 2)
    assert isinstance(l2_geometry(many, "cosine", projected(many), stream), ProjectedGeometry)


# -- large rounds, whose neighbours are looked for among candidates only ------------------------------------


def large_round(vectors: Tensor, clusters: list[Tensor], k: int) -> tuple[float, list[list[int]]]:
    geometry = projected(vectors)
    delta = max(spreads(vectors, geometry, clusters))
    return delta, neighbours(vectors, geometry, clusters, delta=delta, k=k)


def mdav_clusters(vectors: Tensor, k: int) -> list[Tensor]:
    return mdav(projected(vectors), torch.arange(len(vectors)), k)


@pytest.mark.parametrize("size", [4, 20, 100])
def test_a_large_round_lists_the_whole_cluster_when_delta_is_its_spread(size: int) -> None:
    # no two members are farther apart than the spread, so none may be missing, the widest pair included: measured
    # once among the members and once among the candidates, it must come out the same to the last bit
    vectors = gaussian(LARGE, size, seed=size)
    geometry = projected(vectors)
    missing = 0
    for members in torch.arange(LARGE).split(10):
        (spread,) = spreads(vectors, geometry, [members])
        lists = neighbours(vectors, geometry, [members], delta=spread, k=10)
        together = set(members.tolist())
        missing += sum(len(together - {item} - set(lists[item])) for item in together)
    assert missing == 0


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e3, 1e20])
def test_a_large_round_lists_only_others_once_within_delta_and_at_most_2k(scale: float) -> None:
    vectors, k = gaussian(LARGE, 8, seed=4, scale=scale), 6
    delta, lists = large_round(vectors, mdav_clusters(vectors, k), k)
    wide = vectors.double()
    for item, listed in enumerate(lists):
        assert item not in listed
        assert len(listed) == len(set(listed)) <= 2 * k
        assert bool(((wide[listed] - wide[item]).norm(dim=1) <= delta * (1 + 1e-9)).all())


def test_a_large_round_lists_neighbours_beyond_the_cluster_too() -> None:
    vectors = gaussian(LARGE, 3, seed=5)
    clusters = mdav_clusters(vectors, 4)
    _, lists = large_round(vectors, clusters, 4)
    sizes = {i: len(members) for members in clusters for i in members.tolist()}
    # dense in three dimensions: nearly everyone has somebody of another cluster within the largest spread
    assert sum(len(listed) > sizes[item] - 1 for item, listed in enumerate(lists)) > 0.9 * LARGE


def test_a_large_round_orders_those_outside_the_cluster_by_distance() -> None:
    vectors = gaussian(LARGE, 3, seed=6)
    clusters = mdav_clusters(vectors, 4)
    _, lists = large_round(vectors, clusters, 4)
    wide = vectors.double()
    for members in clusters[:50]:
        for item in members.tolist():
            outside = [other for other in lists[item] if other not in set(members.tolist())]
            distances = (wide[outside] - wide[item]).norm(dim=1)
            assert bool((distances.diff() >= -1e-12).all())
