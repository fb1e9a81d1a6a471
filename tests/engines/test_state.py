from __future__ import annotations

import pytest
import torch
from torch import nn

from disavow.engines.state import layout_of, model_of, put_model
from disavow.models import NETWORKS, build
from disavow.rounds.vectors import Model


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_put_into_another_network_comes_out_the_same(name: str) -> None:
    one, other = build(name, (1, 8, 8), 10, seed=1), build(name, (1, 8, 8), 10, seed=2)
    model = model_of(one)
    assert not torch.equal(model.vector, model_of(other).vector)
    put_model(other, model)
    assert torch.equal(model_of(other).vector, model.vector)
    assert model_of(other).layout == model.layout
    images = torch.rand(5, 1, 8, 8)
    assert torch.equal(one.eval()(images), other.eval()(images))


def test_any_vector_survives_the_round_trip() -> None:
    network = build("resnet-mini", (1, 8, 8), 10, seed=1)
    layout = layout_of(network)
    vector = torch.arange(layout.size, dtype=torch.float32)
    put_model(network, Model(layout, vector))
    assert torch.equal(model_of(network).vector, vector)


def test_the_vector_holds_parameters_and_batch_norm_statistics_and_no_counters() -> None:
    network = build("resnet-mini", (1, 28, 28), 10, seed=1)
    names = [spec.name for spec in layout_of(network).tensors]
    assert names == [name for name in network.state_dict() if not name.endswith("num_batches_tracked")]
    assert any(name.endswith("num_batches_tracked") for name in network.state_dict())
    assert sum(name.endswith("running_var") for name in names) == 6
    parameters = sum(parameter.numel() for parameter in network.parameters())
    statistics = sum(buffer.numel() for buffer in network.buffers() if buffer.is_floating_point())
    assert layout_of(network).size == parameters + statistics


def test_a_model_is_a_copy() -> None:
    network = nn.Linear(2, 1)
    model = model_of(network)
    before = model.vector.clone()
    with torch.no_grad():
        network.weight += 1
    assert torch.equal(model.vector, before)


def test_a_network_of_one_tensor_gives_a_copy_too() -> None:
    network = nn.Linear(3, 1, bias=False)
    model = model_of(network)
    before = model.vector.clone()
    with torch.no_grad():
        network.weight += 1
    assert torch.equal(model.vector, before)
