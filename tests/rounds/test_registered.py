"""What registered strategies return is checked before a round goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from disavow.domain.strategies import CLUSTERINGS, DISTRIBUTIONS, NOISES, register
from disavow.errors import StrategyError
from disavow.rounds.cluster import Clusters, cluster
from disavow.rounds.clustering import Clustering
from disavow.rounds.noise import Distribution, Noise
from disavow.rounds.perturb import choose_and_perturb
from disavow.rounds.randomness import Secrets
from tests.refusals import refuses
from tests.rounds.builders import POLICY, gaussian, layout_of_size, updates_of

TWO = Clusters(members=((0, 1, 2), (3, 4, 5)), weights=(0.5, 0.5), spreads=(2.0, 0.5), delta=2.0, capacities=(3, 3))


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    for registry in (CLUSTERINGS, NOISES, DISTRIBUTIONS):
        monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))


def clustered_by(partition: Callable[[Tensor], Any], previous: list[list[str]] | None = None) -> Clusters:
    class Rings(Clustering):
        name = "rings"

        def partition(self, geometry: Any, items: Tensor, k: int, stream: Any) -> Any:
            return partition(items)

    register(Rings)
    updates = updates_of(gaussian(8, 5))
    return cluster(
        updates,
        policy=replace(POLICY, clustering="rings", sticky=previous is not None),
        layout=layout_of_size(5),
        previous=previous or (),
        seed=3,
        round_number=2,
    )


def generated(items: Tensor) -> Iterator[Tensor]:
    yield items[:4]
    yield items[4:]


@pytest.mark.parametrize("partition", [lambda items: items.split(4), generated], ids=["a tuple", "a generator"])
@pytest.mark.parametrize("previous", [None, [["nobody"]]], ids=["anew", "sticky"])
def test_clusters_of_a_registered_method_are_used(
    partition: Callable[[Tensor], Any], previous: list[list[str]] | None
) -> None:
    assert clustered_by(partition, previous).members == ((0, 1, 2, 3), (4, 5, 6, 7))


@pytest.mark.parametrize(
    ("partition", "named"),
    [
        (lambda items: [items], "sizes [8]; allowed: 3 to 5"),
        (lambda items: [items[:3], items[:3]], "sizes [3, 3]"),
        (lambda items: [items[:4].tolist(), items[4:].tolist()], "tensors"),
        (lambda items: [items[:4].double(), items[4:].double()], "tensors"),
        (lambda items: None, "tensors"),
        (lambda items: items.nothing, "AttributeError"),
    ],
    ids=["too large", "not everyone", "lists", "floats", "None", "raises"],
)
@pytest.mark.parametrize("previous", [None, [["nobody"]]], ids=["anew", "sticky"])
def test_what_is_no_partition_is_named_as_the_mistake_of_the_method(
    partition: Callable[[Tensor], Any], named: str, previous: list[list[str]] | None
) -> None:
    with refuses(StrategyError, 'clustering.method "rings"', __name__, "Rings", "partition", named):
        clustered_by(partition, previous)


def test_noise_that_is_returned_instead_of_added_is_refused() -> None:
    @register
    class Returned(Noise):
        name = "returned"

        def perturb(self, released: Tensor, *spreads: Any, **given: Any) -> Any:
            return released + 1

    policy = replace(POLICY, noise="returned")
    with refuses(StrategyError, 'noise.mode "returned"', "perturb", "in place"):
        perturb(policy)


@pytest.mark.parametrize("tau", [None, -1.0, float("nan"), "1"])
def test_a_tau_that_is_no_standard_deviation_is_refused(tau: Any) -> None:
    @register
    class Odd(Noise):
        name = "odd"

        def tau(self, policy: Any, clusters: Any) -> Any:
            return tau

    with refuses(StrategyError, 'noise.mode "odd"', "tau", repr(tau)):
        NOISES["odd"].tau(POLICY, [(1.0, 1.0)])


def test_numbers_of_another_count_than_asked_for_are_refused() -> None:
    @register
    class Short(Distribution):
        name = "short"
        variance_of_squares = 8.0

        def draw(self, stream: Any, count: int, device: Any) -> Tensor:
            return torch.zeros(count - 1, dtype=torch.float64)

    with refuses(StrategyError, 'noise.distribution "short"', "draw"):
        perturb(replace(POLICY, distribution="short", sigma=1.0))


def perturb(policy: Any) -> None:
    choose_and_perturb(
        updates_of(gaussian(6, 5)),
        TWO,
        policy=policy,
        layout=layout_of_size(5),
        secrets=Secrets(5),
        round_number=1,
        attempt=1,
    )
