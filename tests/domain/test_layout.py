"""A layout says where each tensor lies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from disavow.domain import Layout, TensorSpec
from tests.rounds.builders import PROPERTY

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
