from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from disavow.engines.tracing import traced


class Refused(Exception):
    """What a reader says."""


HOOKS: list[Callable[[nn.Module], Any]] = [
    lambda module: module.register_forward_hook(lambda *_: None),
    lambda module: module.register_forward_pre_hook(lambda *_: None),
    lambda module: module.register_full_backward_hook(lambda *_: None),
    lambda module: module.register_full_backward_pre_hook(lambda *_: None),
]


def test_a_network_is_traced_into_its_operations() -> None:
    graph = traced(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), Refused)
    assert [node.op for node in graph.nodes] == ["placeholder", "call_module", "call_module", "output"]


@pytest.mark.parametrize("hook", HOOKS, ids=["forward", "forward_pre", "backward", "backward_pre"])
@pytest.mark.parametrize("deep", [False, True])
def test_a_network_with_a_hook_anywhere_is_refused(hook: Callable[[nn.Module], Any], deep: bool) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    hook(network[1] if deep else network)
    with pytest.raises(Refused, match="it has hooks"):
        traced(network, Refused)


def test_what_depends_on_the_data_is_refused_with_the_reason() -> None:
    class Branching(nn.Module):
        def forward(self, images: Any) -> Any:
            return images if images.sum() > 0 else -images

    with pytest.raises(Refused, match="it cannot be traced: symbolically traced"):
        traced(Branching(), Refused)
