from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.domain import Cluster, Layout, Member, Round, Slot, TensorSpec
from tests.federation.builders import PROPERTY

names = st.text(min_size=1, max_size=8)
specs = st.builds(TensorSpec, names, st.lists(st.integers(0, 5), max_size=3).map(tuple))
layouts = st.lists(specs, max_size=6).map(lambda found: Layout(tuple(found)))


@PROPERTY
@given(layouts)
def test_spans_cover_the_vector_in_order_without_gaps(layout: Layout) -> None:
    end = 0
    for (spec, start, stop), expected in zip(layout.spans(), layout.tensors, strict=True):
        assert spec == expected
        assert start == end
        assert stop - start == spec.size
        end = stop
    assert end == layout.size


@PROPERTY
@given(layouts)
def test_a_layout_survives_json(layout: Layout) -> None:
    assert Layout.from_json(layout.to_json()) == layout


def test_a_tensor_without_axes_holds_one_number() -> None:
    assert TensorSpec("scale", ()).size == 1
    assert TensorSpec("empty", (3, 0)).size == 0


def test_variances_are_found_by_the_last_part_of_the_name() -> None:
    layout = Layout(
        tuple(
            TensorSpec(name, (2,))
            for name in ("running_var", "a.running_var", "a.running_var.x", "my_running_var", "running_mean")
        )
    )
    assert list(layout.variances()) == [(0, 2), (2, 4)]


def a_round() -> Round:
    def slot(client: str | None) -> Slot:
        return Slot(None if client is None else Member(client, 3, bytes(32)), ())

    return Round(
        number=1,
        attempt=1,
        before="before",
        after="after",
        delta=2.0,
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


def test_the_largest_spread_is_that_of_the_widest_cluster() -> None:
    assert a_round().largest_spread == 2.0


def test_the_nouns_are_frozen_and_comparable() -> None:
    assert a_round() == a_round()
    assert len({a_round(), a_round(), replace(a_round(), number=2)}) == 2
    with pytest.raises(FrozenInstanceError):
        a_round().number = 2  # type: ignore[misc]
