"""Between a network and its flat vector: trainable parameters and floating buffers, in the order of its state.

Batch-norm statistics are part of the vector. Frozen parameters are not, so that an adapter of a large network costs
what the adapter costs; a tensor that occurs under several names is in it once, under the first. Whole numbers, such
as `num_batches_tracked`, are constants of the layout: averaging or perturbing them would mean nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence

import torch
from torch import Tensor, nn

from disavow.domain import ConstantTensor, Layout, TensorSpec, escaped
from disavow.errors import CannotRetrain
from disavow.rounds.vectors import Model, require_layout


def _state(network: nn.Module) -> dict[str, Tensor]:
    """Name every tensor of the network, each once."""
    state = network.state_dict(keep_vars=True)
    first = {id(value): name for name, value in reversed(state.items()) if isinstance(value, Tensor)}
    return {name: value for name, value in state.items() if first.get(id(value)) == name}


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {
        name: tensor
        for name, tensor in _state(network).items()
        if tensor.is_floating_point() and (tensor.requires_grad or not isinstance(tensor, nn.Parameter))
    }


def layout_of(network: nn.Module) -> Layout:
    """Describe how the network's tensors lie in its vector, and which constants go with it.

    Args:
        network: Any module.

    Returns:
        Names and shapes, in order.

    """
    constants = tuple(
        ConstantTensor(
            name,
            (array := tensor.detach().cpu().numpy()).dtype.name,
            tuple(tensor.shape),
            array.astype(array.dtype.newbyteorder("<")).tobytes().hex(),
        )
        for name, tensor in _state(network).items()
        if not tensor.is_floating_point() and not tensor.is_complex()
    )
    specs = (TensorSpec(name, tuple(tensor.shape)) for name, tensor in _tensors(network).items())
    return Layout(tuple(specs), constants)


def frozen_digest(network: nn.Module) -> str | None:
    """Compute the SHA-256 of all frozen parameters.

    Args:
        network: Any module.

    Returns:
        In hexadecimal; None where none is frozen.

    """
    frozen = {
        name: tensor
        for name, tensor in _state(network).items()
        if isinstance(tensor, nn.Parameter) and not tensor.requires_grad
    }
    if not frozen:
        return None
    found = hashlib.sha256(b"disavow/frozen/v1\x00")
    for name, tensor in sorted(frozen.items()):
        found.update(f"{len(name)} {name} {tensor.dtype} {tuple(tensor.shape)}\x00".encode())
        found.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return found.hexdigest()


def model_of(network: nn.Module) -> Model:
    """Copy the network's state into one vector.

    Args:
        network: Any module.

    Returns:
        Its parameters and floating buffers.
    """
    return Model(layout_of(network), vector_of(network))


def vector_of(network: nn.Module) -> Tensor:
    """Copy the network's state into one vector, for who knows its layout already.

    Args:
        network: Any module.

    Returns:
        Its parameters and floating buffers.
    """
    return torch.cat([tensor.detach().to(torch.float32).reshape(-1) for tensor in _tensors(network).values()])


def put_model(network: nn.Module, model: Model) -> None:
    """Make the network hold a model.

    Args:
        network: Is changed in place.
        model: One of the same layout.

    Raises:
        ModelMismatch: It has other tensors.
    """
    require_layout([model], layout_of(network))
    write_model(network, model)


def write_model(network: nn.Module, model: Model) -> None:
    """Make the network hold a model that is known to have its layout.

    Args:
        network: Is changed in place.
        model: One of the same layout.
    """
    tensors = _tensors(network)
    with torch.no_grad():
        for name, value in model.tensors().items():
            tensors[name].copy_(value)


def refuse_run(
    holder: str, network: nn.Module, known: Container[str], layout: Layout, clients: Sequence[str]
) -> None:
    """Refuse to train a run whose models do not fit a network, or whose clients have no data here.

    Args:
        holder: What has the network and the data: "engine" or "task".
        network: The network.
        known: The clients that have data.
        layout: That of the run's models.
        clients: The clients of the run.

    Raises:
        CannotRetrain: The layouts differ, or a client has no data.

    """
    if layout_of(network) != layout:
        raise CannotRetrain(
            f"the run's models are not of the {holder}'s network: {layout.difference(layout_of(network))}"
        )
    lacking = [client for client in clients if client not in known]
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise CannotRetrain(f"the {holder} has no data of {escaped(lacking[0])}{more}, who take part in the run")
