from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from disavow.engines.compiled.chain import NotAChain, chain_of
from disavow.engines.state import model_of
from disavow.models import build


class Doubled(nn.Module):
    """A residual step: not a chain."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 4)
        self.scores = nn.Linear(4, 2)

    def forward(self, images: Tensor) -> Tensor:
        """Scores."""
        flat = images.flatten(1)
        scores: Tensor = self.scores(flat + self.dense(flat))
        return scores


class Branching(nn.Module):
    """What it does depends on the data: it cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 2)

    def forward(self, images: Tensor) -> Tensor:
        """Scores."""
        scores: Tensor = self.dense(images.flatten(1))
        return scores if bool(images.sum() > 0) else -scores


def chain(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


@pytest.mark.parametrize("name", ["convnet", "lenet5"])
def test_every_number_of_the_model_has_a_place_of_its_own(name: str) -> None:
    network = build(name, (1, 28, 28), 10, seed=1)
    found = chain_of(network, (1, 28, 28))
    assert len(found.offsets) == len(model_of(network).vector)
    assert len(np.unique(found.offsets)) == len(found.offsets)
    assert found.offsets.min() == 0
    assert found.offsets.max() < found.size


def test_relu_and_pooling_belong_to_the_layer_before_whichever_comes_first() -> None:
    conv, dense = nn.Conv2d(1, 2, 3), nn.Linear(18, 2)
    one = chain_of(chain(conv, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), dense), (1, 8, 8))
    other = chain_of(chain(conv, nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), dense), (1, 8, 8))
    assert one.layers == other.layers
    assert (one.layers[0].relu, one.layers[0].pooled, one.layers[0].out_height) == (1, 1, 3)


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (build("resnet-mini", (1, 8, 8), 10, seed=1), "does not follow|BatchNorm2d"),
        (Doubled(), "does not follow"),
        (Branching(), "cannot be traced"),
        (chain(nn.Flatten(), nn.Linear(64, 4), nn.Dropout(0.5)), "Dropout"),
        (chain(nn.Flatten(), nn.Linear(64, 4, bias=False)), "no bias"),
        (chain(nn.Flatten(), nn.Linear(64, 4), nn.ReLU()), "does not end in a dense layer"),
        (chain(nn.Conv2d(1, 2, 3)), "does not end in a dense layer"),
        (chain(nn.ReLU(), nn.Flatten(), nn.Linear(64, 4)), "before any layer"),
        (chain(nn.Flatten(0), nn.Linear(64, 4)), "keep samples apart"),
        (chain(nn.Conv2d(1, 2, 3, dilation=2), nn.Flatten(), nn.Linear(32, 4)), "of a kind"),
        (chain(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(128, 4)), "of a kind"),
        (chain(nn.Conv2d(1, 2, (3, 1)), nn.Flatten(), nn.Linear(96, 4)), "of a kind"),
        (chain(nn.Conv2d(1, 2, 3, padding=3), nn.Flatten(), nn.Linear(288, 4)), "padded unusually"),
        (chain(nn.Conv2d(1, 2, 3), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(8, 4)), "two by two"),
        (chain(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(50, 4)), "two by two"),
        (chain(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 4)), "does not follow a convolution"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_chain_is_refused_with_the_reason(network: nn.Module, reason: str) -> None:
    shape = (1, 2, 2) if isinstance(network, Doubled | Branching) else (1, 8, 8)
    with pytest.raises(NotAChain, match=reason):
        chain_of(network, shape)


def test_frozen_parameters_hooks_and_layers_used_twice_are_left_to_others() -> None:
    frozen = chain(nn.Flatten(), nn.Linear(4, 2))
    next(iter(frozen.parameters())).requires_grad_(False)
    with pytest.raises(NotAChain, match="frozen"):
        chain_of(frozen, (1, 2, 2))
    hooked = chain(nn.Flatten(), nn.Linear(4, 2))
    hooked[1].register_forward_hook(lambda *_: None)
    with pytest.raises(NotAChain, match="hooks"):
        chain_of(hooked, (1, 2, 2))
    same = nn.Linear(4, 4)
    with pytest.raises(NotAChain, match="twice"):
        chain_of(chain(nn.Flatten(), same, same), (1, 2, 2))


def test_a_parameter_beside_the_layers_is_noticed() -> None:
    network = chain(nn.Flatten(), nn.Linear(4, 2))
    network.register_parameter("extra", nn.Parameter(torch.zeros(3)))
    with pytest.raises(NotAChain, match="beside"):
        chain_of(network, (1, 2, 2))
