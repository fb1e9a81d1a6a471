"""Weighted means of what clients send, as federated averaging takes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from disavow.compare.training import TrainedRound
from disavow.errors import ConfigError


def weighted_mean(vectors: Tensor, samples: Sequence[int]) -> Tensor:
    """Average updates by the number of records behind each, in float64.

    Args:
        vectors: One row a client.
        samples: Records of each client.

    Returns:
        The mean, float32 on the CPU.

    """
    weights = torch.tensor(samples, dtype=torch.float64)
    return ((weights / weights.sum()) @ vectors.cpu().double()).to(torch.float32)


def stored_updates(
    trained: TrainedRound, clients: Collection[str]
) -> tuple[tuple[str, ...], tuple[int, ...], Tensor]:
    """Select what some clients sent in a round.

    Args:
        trained: The round.
        clients: Whose updates are wanted; those who did not take part are passed over.

    Returns:
        Who took part of them, the records of each, and one row each.

    Raises:
        ConfigError: No updates were stored.

    """
    if trained.updates is None:
        raise ConfigError(f"no updates are stored of round {trained.number}")
    chosen = [i for i, client in enumerate(trained.clients) if client in clients]
    return (
        tuple(trained.clients[i] for i in chosen),
        tuple(trained.samples[i] for i in chosen),
        trained.updates[chosen].cpu(),
    )
