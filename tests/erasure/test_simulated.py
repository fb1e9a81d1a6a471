"""Simulated clusters are repaired as the real ones are."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from disavow.erasure.simulated import repaired
from disavow.rounds.clustering.geometry import ExactGeometry
from disavow.rounds.clustering.sticky import sticky
from tests.rounds.builders import PROPERTY

SIGMAS = 5


class RandomGeometry(ExactGeometry):
    """Every cluster is as likely as any other to be the nearest."""

    def __init__(self) -> None:
        super().__init__(torch.zeros(0, 0))

    def between(self, points: Tensor, others: Tensor) -> Tensor:
        return torch.rand(len(points), 1, dtype=torch.float64).expand(len(points), len(others))


def sizes_by_sticky(previous: list[list[str]], clients: list[str], k: int, times: int) -> Counter[tuple[int, ...]]:
    def partition(items: Tensor) -> list[Tensor]:
        shuffled = items[torch.randperm(len(items))]
        last = (len(items) // k - 1) * k
        return [*(shuffled[i : i + k] for i in range(0, last, k)), shuffled[last:]]

    found: Counter[tuple[int, ...]] = Counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        for _ in range(times):
            groups = sticky(
                RandomGeometry(), clients, previous, k, partition=partition, too_wide=lambda items: False
            )
            found[tuple(sorted(map(len, groups)))] += 1
    return found


@pytest.mark.parametrize("times", [800, pytest.param(4000, marks=pytest.mark.torture)])
@pytest.mark.parametrize(
    ("sizes", "k"),
    [
        ([2, 4, 4, 3], 3),
        ([2, 2, 2, 3, 5], 3),
        ([2, 5, 5], 3),
        ([1, 3, 3, 3], 2),
        ([3, 3, 2, 4, 7], 4),
        ([1, 1, 1], 2),
        ([2, 4, 5, 5], 3),
        ([2, 2, 6, 6], 4),
        ([3, 3, 2, 6, 5], 5),
        ([2, 3, 4, 9], 5),
        ([2, 2, 2, 2, 9], 5),
        ([2, 2, 2, 2, 2, 2, 6], 6),
    ],
)
def test_repairs_have_the_sizes_of_the_real_sticky_clustering(sizes: list[int], k: int, times: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    clients = [f"client-{i:02d}" for i in range(len(labels))]
    previous = [[clients[i] for i in np.flatnonzero(labels == c)] for c in range(len(sizes))]
    real = sizes_by_sticky(previous, clients, k, times)
    cluster_of, survivors = repaired(
        np.tile(labels, (times, 1)).astype(np.int32),
        np.tile(sizes, (times, 1)).astype(np.int32),
        np.ones((times, len(labels)), dtype=np.bool_),
        k,
        rng=np.random.default_rng(6),
    )
    ours = Counter(tuple(sorted(row[row > 0].tolist())) for row in survivors)
    for row, size in zip(cluster_of[:50], survivors[:50], strict=True):
        assert np.bincount(row, minlength=len(sizes)).tolist() == size.tolist()
    for shape in real.keys() | ours.keys():
        pooled = (real[shape] + ours[shape]) / (2 * times)
        assert abs(real[shape] - ours[shape]) <= SIGMAS * math.sqrt(2 * times * pooled * (1 - pooled)) + 1e-9, shape


@PROPERTY
@given(st.integers(2, 5), st.integers(1, 5), st.randoms(use_true_random=False))
def test_a_repair_is_a_partition_and_breaks_no_cluster_that_has_enough(k: int, groups: int, random: object) -> None:
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    labels = np.repeat(np.arange(groups), rng.integers(k, 2 * k, size=groups)).astype(np.int32)
    present = rng.random(len(labels)) < 0.8
    if present.sum() < k:
        return
    before = np.bincount(labels[present], minlength=groups).astype(np.int32)
    after, sizes = repaired(labels[None], before[None], present[None], k, rng=rng)
    assert np.bincount(after[0][present], minlength=groups).tolist() == sizes[0].tolist()
    assert all(k <= size < 2 * k for size in sizes[0][sizes[0] > 0])
    # unless the homeless filled everything and one cluster had to be opened, k of who had enough stay together
    enough = [c for c in range(groups) if before[c] >= k]
    broken = [c for c in enough if np.bincount(after[0][present & (labels == c)]).max() < k]
    assert len(broken) <= 1
