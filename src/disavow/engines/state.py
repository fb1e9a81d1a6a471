"""Between a network and its flat vector: parameters and floating buffers, in the order of its state.

Batch-norm statistics are part of the model. Counters such as `num_batches_tracked` are not: they are whole
numbers, and averaging or perturbing them would mean nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from disavow.domain import Layout, TensorSpec
from disavow.rounds.vectors import Model, require_layout


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in network.state_dict().items() if tensor.is_floating_point()}


def layout_of(network: nn.Module) -> Layout:
    """Describe how the network's tensors lie in its vector.

    Args:
        network: Any module.

    Returns:
        Names and shapes, in order.
    """
    return Layout(tuple(TensorSpec(name, tuple(tensor.shape)) for name, tensor in _tensors(network).items()))


def model_of(network: nn.Module) -> Model:
    """Copy the network's state into one vector.

    Args:
        network: Any module.

    Returns:
        Its parameters and floating buffers.
    """
    tensors = [tensor.detach().to(torch.float32).reshape(-1) for tensor in _tensors(network).values()]
    return Model(layout_of(network), torch.cat(tensors))


def put_model(network: nn.Module, model: Model) -> None:
    """Make the network hold a model.

    Args:
        network: Is changed in place.
        model: One of the same layout.

    Raises:
        ModelMismatch: It has other tensors.
    """
    require_layout([model], layout_of(network))
    tensors = _tensors(network)
    with torch.no_grad():
        for name, value in model.tensors().items():
            tensors[name].copy_(value)
