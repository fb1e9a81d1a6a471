"""Rounds on real Flower nodes: `KIPFedAvg` in place of FedAvg in a ServerApp. Needs the extra `flower`.

The client's side, which no app has to use, is in `disavow.flower.client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from disavow.flower.strategy import KIPFedAvg

__all__ = ["KIPFedAvg"]


def __getattr__(name: str) -> Any:
    # a SuperNode starts a process for every message: what only the server needs must not be loaded there
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from disavow.flower import strategy

    return getattr(strategy, name)
