"""A round is a frozen value, and its slots are numbered through its clusters."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime

import pytest

from disavow.domain import Cluster, Member, Round, Slot


def a_round() -> Round:
    def slot(client: str | None) -> Slot:
        return Slot(None if client is None else Member(client, 3, bytes(32)))

    return Round(
        number=1,
        attempt=1,
        before="before",
        after="after",
        delta=2.0,
        update_norm=1.0,
        pairs_within=0.5,
        clusters=(
            Cluster(0.5, 1.0, (slot("a"), slot(None), slot("b"))),
            Cluster(0.5, 2.0, (slot("d"), slot("c"))),
        ),
        recorded_at=datetime(2024, 1, 1, tzinfo=UTC),
    )


def test_a_cluster_names_those_still_in_and_keeps_the_slot_of_a_leaver() -> None:
    first, second = a_round().clusters
    assert first.clients == ("a", "b")
    assert second.clients == ("d", "c")
    assert len(first.slots) == 3


def test_slots_are_numbered_through_the_clusters() -> None:
    clients = [slot.member.client if slot.member else None for slot in a_round().slots]
    assert clients == ["a", None, "b", "d", "c"]


def test_the_nouns_are_frozen_and_comparable() -> None:
    assert a_round() == a_round()
    assert len({a_round(), a_round(), replace(a_round(), number=2)}) == 2
    with pytest.raises(FrozenInstanceError):
        a_round().number = 2  # type: ignore[misc]
