"""The networks of the paper, all three, and `build`."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from disavow.engines.state import model_of
from disavow.models import NETWORKS, build
from tests.rounds.builders import PROPERTY
from tests.selection import some_of

SIZES = {"convnet": 186_692, "lenet5": 51_902, "resnet-mini": 17_986}


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_every_network_has_a_size_to_keep() -> None:
    assert set(SIZES) == set(NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_size_of_the_paper(name: str) -> None:
    assert parameters(build(name, (1, 28, 28), 10, seed=1)) == SIZES[name]


@settings(PROPERTY, max_examples=30)
@given(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.integers(1, 12))
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_take_images_of_any_shape(name: str, channels: int, height: int, width: int, outputs: int) -> None:
    network = build(name, (channels, height, width), outputs, seed=1)
    images = torch.rand(2, channels, height, width)
    for mode in (network.train(), network.eval()):
        scores = mode(images)
        assert scores.shape == (2, outputs)
        assert bool(torch.isfinite(scores).all())


@pytest.mark.parametrize(
    ("name", "shape"),
    some_of(
        product(NETWORKS, [(1, 1, 1), (1, 2, 2), (1, 4, 5), (1, 5, 4), (1, 11, 12), (3, 32, 32), (3, 109, 89)]),
        lambda each: each[1] in [(1, 1, 1), (1, 4, 5), (3, 109, 89)],
    ),
)
def test_networks_learn_on_the_smallest_and_the_largest_shapes(name: str, shape: tuple[int, int, int]) -> None:
    network = build(name, shape, 2, seed=1)
    images = torch.rand(4, *shape, generator=torch.Generator().manual_seed(1))
    network.train()(images).square().sum().backward()
    gradients = [parameter.grad for parameter in network.parameters()]
    assert all(gradient is not None and bool(torch.isfinite(gradient).all()) for gradient in gradients)
    assert any(gradient is not None and bool(gradient.any()) for gradient in gradients)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_initial_model_is_settled_by_the_seed(name: str) -> None:
    first = model_of(build(name, (1, 8, 8), 10, seed=1)).vector
    torch.rand(3)  # whatever happened to the global generator before
    assert torch.equal(model_of(build(name, (1, 8, 8), 10, seed=1)).vector, first)
    assert not torch.equal(model_of(build(name, (1, 8, 8), 10, seed=2)).vector, first)


@pytest.mark.parametrize("name", NETWORKS)
def test_building_leaves_the_global_generator_where_it_was(name: str) -> None:
    state = torch.get_rng_state()
    build(name, (1, 8, 8), 10, seed=1)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_scores_of_an_image_do_not_depend_on_the_others_in_evaluation_mode(name: str) -> None:
    network = build(name, (1, 8, 8), 10, seed=1).eval()
    images = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        torch.testing.assert_close(network(images)[2:3], network(images[2:3]), rtol=1e-5, atol=1e-6)
