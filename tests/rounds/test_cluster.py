from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from disavow.config import PROJECTION_LIMIT
from disavow.data import client_ids
from disavow.domain import Layout, Policy, TensorSpec, size_class
from disavow.rounds.cluster import Clusters, cluster
from disavow.rounds.vectors import Updates
from tests.rounds.builders import (
    POLICY,
    PROPERTY,
    all_anchored,
    direct_distances,
    gaussian,
    layout_of_size,
    updates_of,
)
from tests.selection import some_of

METHODS = ["mdav", "constrained-kmeans", "fixed"]
METRICS = ["l2", "cosine", "published"]


def clustered(
    updates: Updates, policy: Policy, previous: Sequence[Sequence[str]] = (), layout: Layout | None = None
) -> Clusters:
    return cluster(
        updates,
        policy=policy,
        layout=layout or layout_of_size(updates.vectors.shape[1]),
        previous=previous,
        seed=3,
        round_number=2,
        taking_part=all_anchored(updates, policy, 3),
    )


def keeps_the_promise(clusters: Clusters, updates: Updates, k: int) -> None:
    """What every clustering owes, whatever the method, the metric and the updates."""
    count = len(updates)
    sizes = [len(group) for group in clusters.members]
    assert min(sizes) >= k
    assert max(sizes) < 2 * k
    assert len(sizes) <= count // k
    assert sorted(itertools.chain(*clusters.members)) == list(range(count))
    assert all(list(group) == sorted(group) for group in clusters.members)

    classes = [size_class(samples) for samples in updates.samples]
    for group, weight in zip(clusters.members, clusters.weights, strict=True):
        assert weight == float(Fraction(sum(classes[i] for i in group), sum(classes)))
    assert sum(clusters.weights) == pytest.approx(1, abs=1e-12)

    distances = direct_distances(updates.vectors)
    spreads = [float(distances[list(group)][:, list(group)].max()) for group in clusters.members]
    assert clusters.spreads == pytest.approx(spreads, rel=1e-6, abs=0.0)
    assert clusters.delta == max(clusters.spreads)

    assert clusters.capacities == tuple(sizes)
    median = float(updates.vectors.double().norm(dim=1).quantile(0.5))
    assert clusters.update_norm == pytest.approx(median, rel=1e-6)
    if count <= PROJECTION_LIMIT and k > 1:
        pairs = distances[torch.triu(torch.ones(count, count), diagonal=1).bool()]
        # distances are good to 1e-6
        least, most = (float((pairs <= clusters.delta * slack).double().mean()) for slack in (1 - 1e-6, 1 + 1e-6))
        assert least - 1e-12 <= clusters.pairs_within <= most + 1e-12


@st.composite
def rounds(draw: st.DrawFn) -> tuple[int, Updates]:
    """k and updates: spread out, or all alike, zero, in duplicates, tiny, huge, or all of these mixed."""
    k = draw(st.integers(2, 5))
    count = draw(st.sampled_from([k, 2 * k - 1, 2 * k, 3 * k - 1, 3 * k]) | st.integers(k, 8 * k))
    size = draw(st.integers(1, 6))
    vectors = gaussian(
        count, size, seed=draw(st.integers(0, 5)), scale=draw(st.sampled_from([1e-30, 1e-6, 1, 1e30]))
    )
    shape = draw(st.sampled_from(["spread out", "alike", "zeros", "duplicates", "two places", "mixed scales"]))
    if shape == "alike":
        vectors = vectors[:1].repeat(count, 1)
    elif shape == "zeros":
        vectors = torch.zeros(count, size)
    elif shape == "duplicates":
        vectors = vectors[torch.arange(count) // 3]
    elif shape == "two places":
        vectors = vectors[torch.arange(count) % 2]
    elif shape == "mixed scales":
        vectors = vectors * torch.logspace(-12, 6, count)[:, None]
    samples = draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count))
    return k, updates_of(vectors, samples)


@settings(PROPERTY, max_examples=60)
@given(rounds())
@pytest.mark.parametrize(
    ("method", "metric"),
    some_of(
        [(method, metric) for method in METHODS for metric in METRICS],
        lambda each: each[0] != "constrained-kmeans" or each[1] == "l2",
    ),
)
def test_every_method_and_metric_keeps_the_promise(method: str, metric: str, case: tuple[int, Updates]) -> None:
    k, updates = case
    policy = replace(POLICY, k=k, clustering=method, metric=metric, sticky=False)
    keeps_the_promise(clustered(updates, policy), updates, k)


@settings(PROPERTY, max_examples=60)
@given(rounds(), st.data())
@pytest.mark.parametrize(
    ("method", "metric"),
    some_of(
        [(method, metric) for method in ["mdav", "constrained-kmeans"] for metric in METRICS],
        [("mdav", "l2"), ("mdav", "published"), ("constrained-kmeans", "cosine")],
    ),
)
def test_sticky_clusters_keep_the_promise_when_clients_come_and_go(
    method: str, metric: str, case: tuple[int, Updates], data: st.DataObject
) -> None:
    k, updates = case
    policy = replace(POLICY, k=k, clustering=method, metric=metric, sticky=True)
    before = data.draw(st.lists(st.sampled_from(updates.clients), unique=True, min_size=k))
    gone = [f"gone-{i}" for i in range(data.draw(st.integers(0, 2 * k)))]
    people = data.draw(st.permutations(sorted({*before, *gone})))
    groups = len(people) // k
    previous = [people[i::groups] for i in range(groups)]
    clusters = clustered(updates, policy, previous)
    keeps_the_promise(clusters, updates, k)

    settled = [{c for c in group if c in updates.clients} for group in previous]
    settled = [group for group in settled if len(group) >= k]
    now = [{updates.clients[i] for i in group} for group in clusters.members]
    # a larger cluster may spare members for one that ran short, and at most one is opened
    broken = [group for group in settled if not any(len(group & cluster) >= k for cluster in now)]
    assert len(broken) <= 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("count", "sizes"), [(4, [4]), (7, [7]), (8, [4, 4]), (12, [4, 4, 4])])
def test_the_number_of_clusters_at_the_edges(method: str, count: int, sizes: list[int]) -> None:
    updates = updates_of(gaussian(count, 3, seed=count))
    clusters = clustered(updates, replace(POLICY, k=4, clustering=method, sticky=False))
    assert [len(group) for group in clusters.members] == sizes


def three_groups() -> Tensor:
    centres = torch.tensor([[0.0, 100.0], [100.0, 0.0], [-100.0, -100.0]])
    return centres[torch.arange(12) % 3] + gaussian(12, 2, seed=1)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("method", ["mdav", "constrained-kmeans"])
def test_clients_who_look_alike_are_grouped(method: str, metric: str) -> None:
    clusters = clustered(updates_of(three_groups()), replace(POLICY, k=4, clustering=method, metric=metric))
    assert clusters.members == ((0, 3, 6, 9), (1, 4, 7, 10), (2, 5, 8, 11))


def test_cosine_groups_by_direction_and_still_records_l2_spreads() -> None:
    updates = updates_of(torch.tensor([[1.0, 0.0], [1.0, 1.0], [10.0, 0.0], [9.0, 7.0]]))
    by_direction = clustered(updates, replace(POLICY, k=2, metric="cosine"))
    assert by_direction.members == ((0, 2), (1, 3))
    assert by_direction.spreads == pytest.approx((9.0, 10.0))
    assert clustered(updates, replace(POLICY, k=2, metric="l2")).members == ((0, 1), (2, 3))


def test_the_published_metric_takes_the_rows_of_the_layout() -> None:
    # the first is farthest from the rest. As 2x2, its rows differ by 5 and 0 from the second's and by 3 and 3 from
    # the third's, so the second is nearer; as one row of four it is 5 against 4.24
    vectors = torch.tensor([[0.0, 0, 0, 0], [5, 0, 0, 0], [3, 0, 3, 0], [4, 0, 1.5, 0]])
    policy = replace(POLICY, k=2, metric="published")

    def grouped(layout: Layout) -> tuple[tuple[int, ...], ...]:
        updates = updates_of(vectors)
        return cluster(updates, policy=policy, layout=layout, previous=(), seed=3, round_number=1).members

    assert grouped(Layout((TensorSpec("w", (2, 2)),))) == ((0, 1), (2, 3))
    assert grouped(Layout((TensorSpec("w", (4,)),))) == ((0, 2), (1, 3))


def test_fixed_clusters_do_not_look_at_the_updates() -> None:
    policy = replace(POLICY, clustering="fixed", sticky=False)
    first = clustered(updates_of(gaussian(20, 3, seed=1)), policy)
    assert clustered(updates_of(gaussian(20, 3, seed=2)), policy).members == first.members


def test_fixed_clusters_do_not_stick() -> None:
    updates = updates_of(gaussian(12, 3))
    policy = replace(POLICY, clustering="fixed", sticky=False)
    ids = client_ids(12)
    assert clustered(updates, policy, [ids[:6], ids[6:]]).members == clustered(updates, policy).members


def test_a_fixed_delta_is_recorded_as_it_is_and_counts_the_pairs_within_it() -> None:
    updates = updates_of(torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [12.5]]))
    clusters = clustered(updates, replace(POLICY, delta=1.25))
    assert clusters.delta == 1.25
    assert clusters.spreads == (2.0, 2.5)
    assert clusters.pairs_within == 3 / 15
    assert clusters.update_norm == 6.0


def test_a_relative_delta_is_a_multiple_of_the_median_update_norm() -> None:
    updates = updates_of(torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [12.5]]))
    clusters = clustered(updates, replace(POLICY, relative_delta=0.5))
    assert (clusters.update_norm, clusters.delta) == (6.0, 3.0)
    assert clusters.pairs_within == 6 / 15
    # and it takes apart what is wider, as a fixed one does
    ids = updates.clients
    previous = [[ids[0], ids[3], ids[1]], [ids[2], ids[4], ids[5]]]
    assert clustered(updates, POLICY, previous).members == ((0, 1, 3), (2, 4, 5))
    assert clustered(updates, replace(POLICY, relative_delta=0.5), previous).members == ((0, 1, 2), (3, 4, 5))


def test_running_statistics_are_part_of_the_spread_whichever_pair_differs_in_them() -> None:
    layout = Layout((TensorSpec("weight", (1,)), TensorSpec("bn.running_mean", (1,))))
    updates = updates_of(torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]))
    for statistics, spread in (("mean", 5.0), ("drawn", 5.0)):
        found = clustered(updates, replace(POLICY, statistics=statistics), layout=layout)
        assert found.spreads == (spread,)
    # 3 apart in the weight and 4 in the mean, but no one pair is both
    updates = updates_of(torch.tensor([[0.0, 0.0], [3.0, 0.0], [1.5, 4.0]]))
    assert clustered(updates, replace(POLICY, statistics="mean"), layout=layout).spreads == (5.0,)
    drawn = clustered(updates, replace(POLICY, statistics="drawn"), layout=layout).spreads
    assert drawn == pytest.approx((18.25**0.5,))


def test_sticky_takes_apart_a_cluster_wider_than_a_fixed_delta_and_no_other() -> None:
    updates = updates_of(torch.tensor([[0.0], [1.0], [50.0], [51.0], [52.0], [2.0], [3.0]]))
    ids = updates.clients
    previous = [[ids[0], ids[1]], [ids[2], ids[3]], [ids[4], ids[5], ids[6]]]
    tight = clustered(updates, replace(POLICY, k=2, delta=10.0), previous)
    # 52 joins 50 and 51, which fills them; 2 joins 0 and 1; 3 finds all full and opens the nearest
    assert {0, 1, 5, 6} == {i for group in tight.members if max(group) != 4 for i in group}
    assert (2, 3, 4) in tight.members
    for wide in (replace(POLICY, k=2, delta=100.0), replace(POLICY, k=2, delta=None)):
        assert clustered(updates, wide, previous).members == ((0, 1), (2, 3), (4, 5, 6))


def test_delta_is_measured_in_l2_when_the_metric_is_another() -> None:
    # the first two have one direction and are 99 apart: alike by cosine, too wide by L2
    updates = updates_of(torch.tensor([[1.0, 0.0], [100.0, 0.0], [0.0, 1.0], [0.0, 1.1], [1.0, 0.1], [1.1, 0.11]]))
    ids = updates.clients
    previous = [ids[0:2], ids[2:4], ids[4:6]]
    policy = replace(POLICY, k=2, metric="cosine")
    assert clustered(updates, replace(policy, delta=200.0), previous).members == ((0, 1), (2, 3), (4, 5))
    # the first joins the last two, whose direction is nearest; the second finds them full
    assert clustered(updates, replace(policy, delta=10.0), previous).members == ((0, 4, 5), (1, 2, 3))


def test_without_sticky_the_round_before_plays_no_part() -> None:
    updates = updates_of(three_groups())
    ids = updates.clients
    policy = replace(POLICY, k=4, sticky=False)
    assert clustered(updates, policy, [ids[:6], ids[6:]]).members == clustered(updates, policy).members


@pytest.mark.parametrize(
    ("method", "metric"),
    [("mdav", "l2"), ("mdav", "cosine"), ("fixed", "l2"), ("fixed", "cosine"), ("constrained-kmeans", "l2")],
)
def test_large_rounds_are_partitioned_with_exact_spreads(method: str, metric: str) -> None:
    # constrained k-means takes minutes for so many unless the clusters are few
    k = 1000 if method == "constrained-kmeans" else 40
    updates = updates_of(gaussian(2050, 4, seed=2))
    clusters = clustered(updates, replace(POLICY, k=k, clustering=method, metric=metric))
    keeps_the_promise(clusters, updates, k)


def test_plain_averaging_compares_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of clients, each a cluster, comparing them took longer than training them."""

    def compared(*_: object, **__: object) -> None:
        raise AssertionError("updates were compared")

    monkeypatch.setattr("disavow.rounds.cluster.spreads", compared)
    monkeypatch.setattr("disavow.rounds.cluster.share_within", compared)
    updates = updates_of(gaussian(7, 12))
    found = clustered(updates, replace(POLICY, k=1, x=1, delta=None), ())
    assert found.members == tuple((i,) for i in range(7))
    assert (found.delta, set(found.spreads), found.pairs_within) == (0.0, {0.0}, 0.0)
