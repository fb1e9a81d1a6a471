"""How many rounds a method trains after its own step."""

from __future__ import annotations

import math

from torch import Tensor

from disavow.compare.method import Federation


def share_of_rounds(federation: Federation, share: float) -> int:
    """Count a share of the training's rounds: rounded up, so at least one.

    Args:
        federation: The trained federation.
        share: Between 0 and 1.

    """
    return math.ceil(share * len(federation.training.rounds))


def train_on(federation: Federation, vector: Tensor, rounds: int) -> Tensor:
    """Train a model for some more rounds with those who remain.

    Args:
        federation: The trained federation.
        vector: The model to start from.
        rounds: How many; they are numbered after those of the training.

    Returns:
        The model after the last of them.

    """
    first = len(federation.training.rounds) + 1
    done = 0
    for done, after in enumerate(federation.run_rounds(vector, first, first + rounds - 1), start=1):
        vector = after
        federation.tell(done, rounds)
    return vector
