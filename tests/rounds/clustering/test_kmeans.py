from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from disavow.errors import MissingExtra
from disavow.rounds.clustering.geometry import ExactGeometry
from disavow.rounds.clustering.kmeans import constrained_kmeans
from disavow.rounds.randomness import training_stream
from tests.refusals import refuses
from tests.rounds.builders import direct_distances, gaussian, groups_of, line_geometry


def partition(geometry: ExactGeometry, items: torch.Tensor, k: int, seed: int = 1) -> set[frozenset[int]]:
    groups = constrained_kmeans(geometry, items, k, training_stream(seed, "clustering"))
    return groups_of(group.tolist() for group in groups)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_separate_groups_are_found_at_any_scale(scale: float) -> None:
    # the package rounds costs to 1e-3: unscaled, tiny updates would all look alike and huge ones overflow
    points = [0.0, 100.0, 1.0, 300.0, 101.0, 2.0, 301.0, 102.0, 302.0]
    found = partition(line_geometry([scale * place for place in points]), torch.arange(9), 3)
    assert found == groups_of([[0, 2, 5], [1, 4, 7], [3, 6, 8]])


def test_fewer_than_2k_are_one_cluster() -> None:
    assert partition(line_geometry([0, 1, 2, 3, 4]), torch.arange(5), 3) == {frozenset(range(5))}


def test_only_the_items_given_are_partitioned() -> None:
    geometry = line_geometry([0, 50, 1, 51, 2, 52, 3, 53])
    assert partition(geometry, torch.tensor([0, 1, 2, 3]), 2) == {frozenset({0, 2}), frozenset({1, 3})}


def test_the_same_stream_gives_the_same_clusters_and_global_generators_stay_put() -> None:
    geometry = ExactGeometry(direct_distances(gaussian(30, 4, seed=1)).square())
    before = np.random.get_state(legacy=True), torch.get_rng_state()  # noqa: NPY002 - the global one is the point
    assert partition(geometry, torch.arange(30), 4) == partition(geometry, torch.arange(30), 4)
    after = np.random.get_state(legacy=True), torch.get_rng_state()  # noqa: NPY002
    assert str(before[0]) == str(after[0])
    assert torch.equal(before[1], after[1])


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "k_means_constrained", None)
    with refuses(MissingExtra, "constrained-kmeans", "[kmeans]"):
        partition(line_geometry([0, 1, 2, 3]), torch.arange(4), 2)
