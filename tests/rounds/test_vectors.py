from __future__ import annotations

import pytest
import torch

from disavow.domain import VARIANCE_FLOOR, Layout, TensorSpec
from disavow.rounds import vectors
from disavow.rounds.vectors import Model, floor_variances, row_blocks
from tests.rounds.builders import gaussian, layout_of_size, permuted, updates_of

NORM = Layout(
    (
        TensorSpec("norm.weight", (3,)),
        TensorSpec("norm.running_mean", (3,)),
        TensorSpec("norm.running_var", (3,)),
        TensorSpec("running_variety", (3,)),
        TensorSpec("running_var", (3,)),
    )
)


@pytest.mark.parametrize("vector", [torch.zeros(4), torch.zeros(5, dtype=torch.float64), torch.zeros(5, 1)])
def test_a_model_is_a_float32_vector_of_its_layout(vector: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="float32 vector of 5 numbers"):
        Model(layout_of_size(5), vector)


def test_tensors_are_views_of_the_vector_in_the_order_of_the_layout() -> None:
    layout = Layout((TensorSpec("weight", (2, 3)), TensorSpec("scale", ()), TensorSpec("bias", (2,))))
    model = Model(layout, torch.arange(9.0))
    tensors = model.tensors()
    assert list(tensors) == ["weight", "scale", "bias"]
    assert tensors["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensors["scale"].item() == 6
    tensors["bias"][1] = 100
    assert model.vector[8] == 100


def test_updates_come_in_id_order_with_their_samples_and_rows() -> None:
    updates = updates_of(gaussian(4, 2), samples=[1, 2, 3, 4], clients=["d", "a", "c", "b"])
    ordered = updates.in_id_order()
    assert ordered.clients == ("a", "b", "c", "d")
    assert ordered.samples == (2, 4, 3, 1)
    assert torch.equal(ordered.vectors, updates.vectors[[1, 3, 2, 0]])
    assert permuted(ordered, [2, 0, 3, 1]).in_id_order().clients == ordered.clients


def test_row_blocks_cover_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_BLOCK_NUMBERS", 10)
    rows = torch.zeros(8, 3)
    blocks = list(row_blocks(rows))
    assert [i for block in blocks for i in range(8)[block]] == list(range(8))
    assert {block.stop - block.start for block in blocks} == {3, 2}
    # rows longer than a block go one by one
    assert len(list(row_blocks(torch.zeros(4, 11)))) == 4


def test_running_variances_are_floored_and_nothing_else_is_touched() -> None:
    vector = torch.tensor([-1.0, 0, 1] * 5)
    floored = floor_variances(Model(NORM, vector), 0.0).tensors()
    floor = torch.tensor(VARIANCE_FLOOR)
    assert VARIANCE_FLOOR == 1e-5
    for name in ("norm.running_var", "running_var"):
        assert floored[name].tolist() == [floor.item(), floor.item(), 1]
    for name in ("norm.weight", "norm.running_mean", "running_variety"):
        assert floored[name].tolist() == [-1, 0, 1]
    assert vector.tolist() == [-1, 0, 1] * 5  # state in, state out


def test_a_running_variance_is_not_taken_for_less_than_the_noise_on_it() -> None:
    floored = floor_variances(Model(NORM, torch.tensor([-1.0, 0.125, 1] * 5)), 0.25).tensors()
    assert floored["norm.running_var"].tolist() == [0.25, 0.25, 1]
    assert floored["norm.weight"].tolist() == [-1, 0.125, 1]


def test_a_model_without_variances_stays_as_it_is() -> None:
    model = Model(layout_of_size(3), torch.tensor([-1.0, 0, 1]))
    assert floor_variances(model, 0.5).vector.tolist() == [-1, 0, 1]
