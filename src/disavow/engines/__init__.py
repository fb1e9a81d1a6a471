"""Engines train the clients of a round.

`rounds.local_training.Engine` is what a round needs of one; `trainer.Trainer` is the interface of the fast ones
(`compiled`, `pool`, `fused`, `stacked`), `factory` chooses among them, and `sequential` is the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from disavow.engines.factory import build, trainer_for

__all__ = ["build", "trainer_for"]


def __getattr__(name: str) -> Any:
    # a Flower client needs one small module of this package, and starts anew with every message
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from disavow.engines import factory

    return getattr(factory, name)
