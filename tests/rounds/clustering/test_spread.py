from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from disavow.rounds.clustering.distances import squared_l2
from disavow.rounds.clustering.geometry import ExactGeometry, Geometry, ProjectedGeometry, project
from disavow.rounds.clustering.spread import l2_geometry, share_within, spreads
from disavow.rounds.randomness import training_stream
from tests.rounds.builders import direct_distances, gaussian

LARGE = 2003

Kind = Callable[[Tensor], Geometry]


def exact(vectors: Tensor) -> Geometry:
    return ExactGeometry(squared_l2(vectors))


def projected(vectors: Tensor) -> Geometry:
    return ProjectedGeometry(project(vectors, None, training_stream(1, "clustering")))


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


def test_the_share_of_pairs_within_delta_counts_each_pair_once_and_the_limit_itself() -> None:
    vectors = torch.tensor([[0.0], [1.0], [2.0], [3.5]])
    geometry = exact(vectors)
    assert [share_within(vectors, geometry, delta) for delta in (0.5, 1.0, 1.5, 3.4, 3.5)] == [
        0.0,
        2 / 6,
        3 / 6,
        5 / 6,
        1.0,
    ]
    assert share_within(vectors[:1], exact(vectors[:1]), 0.0) == 1.0


def test_of_a_large_round_the_share_is_that_of_an_even_sample() -> None:
    vectors = gaussian(2 * LARGE, 2, seed=5)
    everyone = share_within(vectors, exact(vectors), 1.0)
    assert 0.1 < everyone < 0.9
    assert share_within(vectors, projected(vectors), 1.0) == pytest.approx(everyone, abs=0.02)


def test_l2_is_asked_for_whatever_the_metric_and_not_measured_twice() -> None:
    vectors = gaussian(8, 4, seed=3)
    given, stream = exact(vectors), training_stream(1, "clustering")
    assert l2_geometry(vectors, "l2", given, stream) is given
    other = l2_geometry(vectors, "cosine", ExactGeometry(torch.zeros(8, 8)), stream)
    everyone = torch.arange(8)
    torch.testing.assert_close(other.between(everyone, everyone), direct_distances(vectors).square())
    many = gaussian(LARGE, 2)
    assert isinstance(l2_geometry(many, "cosine", projected(many), stream), ProjectedGeometry)
