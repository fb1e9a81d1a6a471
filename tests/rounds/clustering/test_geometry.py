from __future__ import annotations

import pytest
import torch
from torch import Tensor

from disavow.rounds.clustering.distances import norms_of, published
from disavow.rounds.clustering.geometry import (
    ExactGeometry,
    Geometry,
    ProjectedGeometry,
    geometry_of,
    project,
)
from disavow.rounds.randomness import training_stream
from tests.rounds.builders import direct_distances, gaussian, layout_of_size, updates_of

LARGE = 2001


def geometry(vectors: Tensor, metric: str) -> Geometry:
    stream = training_stream(1, "clustering", round_number=1)
    return geometry_of(updates_of(vectors), metric=metric, layout=layout_of_size(vectors.shape[1]), stream=stream)


def everyone(vectors: Tensor) -> Tensor:
    return torch.arange(len(vectors))


def test_up_to_the_limit_every_pair_is_measured_and_above_it_projected() -> None:
    vectors = gaussian(LARGE, 2)
    assert isinstance(geometry(vectors[:-1], "l2"), ExactGeometry)
    assert isinstance(geometry(vectors, "l2"), ProjectedGeometry)
    assert isinstance(geometry(vectors, "cosine"), ProjectedGeometry)


@pytest.mark.parametrize("metric", ["l2", "cosine", "published"])
def test_a_small_round_sees_the_distances_of_its_metric(metric: str) -> None:
    vectors = gaussian(9, 5, seed=1)
    unit = vectors.double() / norms_of(vectors)[:, None]
    expected = {
        "l2": direct_distances(vectors).square(),
        "cosine": direct_distances(unit).square(),
        "published": published(vectors, layout_of_size(5)).square(),
    }[metric]
    seen = geometry(vectors, metric).between(everyone(vectors), everyone(vectors))
    torch.testing.assert_close(seen, expected, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("kind", [ExactGeometry, ProjectedGeometry])
def test_both_kinds_answer_alike_about_the_same_points(kind: type[ExactGeometry] | type[ProjectedGeometry]) -> None:
    points = gaussian(12, 4, seed=2).double()
    squared = direct_distances(points).square()
    seen: Geometry = ExactGeometry(squared) if kind is ExactGeometry else ProjectedGeometry(points)
    some = torch.tensor([1, 4, 5, 9])
    torch.testing.assert_close(seen.from_point(7, some), squared[7, some])
    torch.testing.assert_close(seen.between(some, torch.tensor([0, 3])), squared[some][:, [0, 3]])
    torch.testing.assert_close(direct_distances(seen.coordinates()).square(), squared)
    # up to a constant that is the same for all
    from_centre = (points[some] - points[some].mean(dim=0)).square().sum(dim=1)
    torch.testing.assert_close(
        seen.from_centre(some) - seen.from_centre(some)[0], from_centre - from_centre[0], rtol=1e-9, atol=1e-9
    )


def test_coordinates_of_points_that_coincide_coincide() -> None:
    coordinates = ExactGeometry(torch.zeros(5, 5, dtype=torch.float64)).coordinates()
    assert len(coordinates) == 5
    assert float(coordinates.abs().sum()) == 0


def test_coordinates_of_the_published_metric_are_finite() -> None:
    # it is not Euclidean: some eigenvalues are negative and must be left out
    assert bool(torch.isfinite(geometry(gaussian(20, 6, seed=3), "published").coordinates()).all())


def test_a_projection_keeps_distances_roughly_whatever_the_offset() -> None:
    vectors = gaussian(40, 3000, seed=4, scale=1e-3) + 5
    points = project(vectors, None, training_stream(1, "clustering")).double()
    off = ~torch.eye(40, dtype=torch.bool)
    ratio = direct_distances(points)[off] / direct_distances(vectors)[off]
    # 64 dimensions: a standard deviation of 9 %
    assert 0.55 < float(ratio.min()) <= float(ratio.max()) < 1.45
    assert float(ratio.mean()) == pytest.approx(1, abs=0.05)


def test_a_projection_of_cosines_ignores_lengths() -> None:
    vectors = gaussian(10, 50, seed=5)
    longer = vectors * torch.linspace(1, 9, 10)[:, None]
    first = project(vectors, norms_of(vectors), training_stream(1, "clustering"))
    second = project(longer, norms_of(longer), training_stream(1, "clustering"))
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_a_projection_is_repeatable_and_leaves_the_global_generator_alone() -> None:
    vectors, state = gaussian(5, 30, seed=6), torch.get_rng_state()
    first = project(vectors, None, training_stream(1, "clustering"))
    assert torch.equal(first, project(vectors, None, training_stream(1, "clustering")))
    assert not torch.equal(first, project(vectors, None, training_stream(2, "clustering")))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("scale", [1e-30, 1e20, 1e38])
def test_a_projection_has_finite_distances_at_any_scale_of_float32(scale: float) -> None:
    vectors = gaussian(6, 8, seed=7, scale=scale).clamp(-3e38, 3e38)
    seen = ProjectedGeometry(project(vectors, None, training_stream(1, "clustering")))
    squared = seen.from_point(0, torch.arange(1, 6))
    assert bool(torch.isfinite(squared).all())
    assert bool((squared > 0).all())
