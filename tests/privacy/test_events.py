from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.data import client_ids
from disavow.privacy.events import event_of, fixed_sizes
from disavow.rounds.clustering.fixed import position_by_seed, settled
from disavow.rounds.randomness import Secrets
from tests.rounds.builders import POLICY, PROPERTY

CALIBRATED = replace(POLICY, noise="calibrated", clip=2.0, tau=0.5, draws="fresh")


def test_an_event_holds_the_worst_over_the_clusters() -> None:
    event = event_of(CALIBRATED, number=3, attempt=2, capacities=[5, 4, 7], weights=[0.5, 0.2, 0.3])
    assert (event.number, event.attempt, event.clusters) == (3, 2, 3)
    assert (event.rate, event.weight) == (1 / 4, 0.5)
    assert event.squares == pytest.approx(0.38)
    assert (event.clip, event.tau) == (2.0, 0.5)
    assert event.shift == 8.0
    assert event.multiplier == pytest.approx(0.5 / (2.0 * 0.5))
    assert event.sigma == pytest.approx(0.5 / (2 * 2.0 * math.sqrt(0.38)))


@pytest.mark.parametrize("representatives", [1, 2, 3])
def test_of_several_representatives_each_is_drawn_more_often_and_counts_for_less(representatives: int) -> None:
    policy = replace(CALIBRATED, representatives=representatives)
    event = event_of(policy, number=1, attempt=1, capacities=[5, 4, 7], weights=[0.5, 0.2, 0.3])
    assert event.rate == representatives / 4
    assert event.multiplier == pytest.approx(representatives * 0.5 / (2.0 * 0.5))
    assert event.sigma == pytest.approx(representatives * 0.5 / (2 * 2.0 * math.sqrt(0.38)))
    assert event.shift == 8.0  # of any clustering, in which one client may move everybody


def test_the_order_of_clusters_does_not_matter_to_the_last_bit() -> None:
    clusters = [(5, 0.1), (4, 0.2), (7, 0.3), (6, 0.4)]
    events = {
        event_of(CALIBRATED, number=1, attempt=1, capacities=[s for s, _ in some], weights=[w for _, w in some])
        for some in permutations(clusters)
    }
    assert len(events) == 1


@pytest.mark.parametrize("clustering", ["fixed", "mdav", "constrained-kmeans"])
@pytest.mark.parametrize("draws", ["fresh", "seeded"])
def test_what_the_policy_decides(clustering: str, draws: str) -> None:
    policy = replace(CALIBRATED, clustering=clustering, draws=draws)
    event = event_of(policy, number=1, attempt=1, capacities=[3], weights=[1.0])
    assert (event.fixed, event.predictable) == (clustering == "fixed", draws == "seeded")


@pytest.mark.parametrize("noise", ["paper", "none"])
def test_other_noise_has_no_fixed_scale_whatever_else_is_set(noise: str) -> None:
    event = event_of(replace(CALIBRATED, noise=noise), number=1, attempt=1, capacities=[3], weights=[1.0])
    assert (event.mode, event.clip, event.tau) == (noise, None, None)
    for figure in ("shift", "multiplier", "sigma"):
        with pytest.raises(ValueError, match="no fixed scale"):
            getattr(event, figure)


@PROPERTY
@given(st.integers(2, 12), st.integers(0, 60))
def test_fixed_sizes_are_those_of_the_clustering(k: int, more: int) -> None:
    participants = k + more
    anchors = settled(client_ids(participants), k, position_by_seed(1), Secrets(1).stream(0, 1, "borders"))
    real = [anchor.capacity for anchor in anchors.clusters]
    assert list(fixed_sizes(participants, k)) == real
