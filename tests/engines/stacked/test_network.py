from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from disavow.engines.stacked.network import UnfoldConv2d, unfold_convolutions

KINDS: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": 5, "padding": 2},
    {"kernel_size": (3, 2), "padding": (1, 0), "stride": (2, 1)},
    {"kernel_size": 1, "stride": 2},
    {"kernel_size": 3, "bias": False},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_products_of_matrices_give_what_a_convolution_gives(kind: dict[str, Any]) -> None:
    plain = nn.Conv2d(3, 4, **kind).double()
    other = nn.Conv2d(3, 4, **kind).double()
    other.load_state_dict(plain.state_dict())
    assert type(unfold_convolutions(other)) is UnfoldConv2d
    images = torch.rand(2, 3, 9, 8, dtype=torch.float64)
    torch.testing.assert_close(other(images), plain(images))
    for one, unfold in zip(*(_gradients(each, images) for each in (plain, other)), strict=True):
        torch.testing.assert_close(one, unfold)


def _gradients(module: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    images = images.clone().requires_grad_()
    return list(torch.autograd.grad(module(images).square().sum(), [images, *module.parameters()]))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_so_they_do_in_a_stack(kind: dict[str, Any]) -> None:
    module = nn.Conv2d(3, 4, **kind).double()
    filters = {name: torch.stack([tensor, 2 * tensor]).detach() for name, tensor in module.named_parameters()}
    images = torch.rand(2, 5, 3, 9, 8, dtype=torch.float64)

    def loss(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        stacked = vmap(lambda each, some: functional_call(module, each, (some,)).square().sum())(tensors, images)
        total: torch.Tensor = stacked.sum()
        return total

    expected = grad(loss)(filters)
    unfold_convolutions(module)
    for name, gradient in grad(loss)(filters).items():
        torch.testing.assert_close(gradient, expected[name])


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv2d(2, 2, 3, groups=2),
        nn.Conv2d(2, 2, 3, dilation=2),
        nn.Conv2d(2, 2, 3, padding="same"),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
        nn.Conv1d(2, 2, 3),
        nn.ConvTranspose2d(2, 2, 3),
    ],
)
def test_other_convolutions_stay_as_they_are(module: nn.Module) -> None:
    kind = type(module)
    assert type(unfold_convolutions(module)) is kind


def test_a_subclass_stays_as_it_is() -> None:
    class Own(nn.Conv2d):
        pass

    assert type(unfold_convolutions(Own(1, 1, 1))) is Own
