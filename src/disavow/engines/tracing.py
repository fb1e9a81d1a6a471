"""The operations of a network, for those who have kernels of their own for them."""

from __future__ import annotations

from torch import fx, nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def traced(network: nn.Module, refusal: type[Exception]) -> fx.Graph:
    """Trace the operations of a network with `torch.fx`.

    Args:
        network: Any module.
        refusal: The exception that a caller expects.

    Returns:
        The network's graph.

    Raises:
        refusal: It cannot be traced, or there is more to it than its operations, such as hooks.
    """
    if any(getattr(module, kind) for module in network.modules() for kind in _HOOKS):
        raise refusal("it has hooks")
    try:
        return fx.Tracer().trace(network)
    except Exception as error:  # what a user's module does while it is traced is anybody's guess
        raise refusal(f"it cannot be traced: {error}") from None
