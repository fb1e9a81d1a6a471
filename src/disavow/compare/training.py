"""A federation that was trained, as methods of unlearning find it: models, who took part, what they sent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from disavow.domain import Layout
from disavow.rounds.vectors import Model


@dataclass(frozen=True, eq=False)
class TrainedRound:
    """One round of a training.

    Attributes:
        number: Which round, from 1 on.
        before: The model that was broadcast, a float32 vector on the CPU.
        clients: Who took part, by id.
        samples: How many records each of them trained on.
        updates: What each of them sent, one row each: its model minus the broadcast one. None where a server would
            not have them.

    """

    number: int
    before: Tensor
    clients: tuple[str, ...]
    samples: tuple[int, ...]
    updates: Tensor | None

    def update_of(self, client: str) -> Tensor | None:
        """Return what a client sent; None where it did not take part, or nothing was stored.

        Args:
            client: Its id.

        """
        if self.updates is None or client not in self.clients:
            return None
        return self.updates[self.clients.index(client)]


@dataclass(frozen=True, eq=False)
class Training:
    """A scheme that was carried out with one seed.

    Attributes:
        layout: How tensors lie in a model's vector.
        rounds: All rounds, in order.
        served: The model after the last one.
        seed: Of batches, participation and secret draws.
        run: The folder of the run's copy, where the scheme records its rounds in a ledger; None where it does not.
        keys: The folder of that copy's keys.

    """

    layout: Layout
    rounds: tuple[TrainedRound, ...]
    served: Tensor
    seed: int
    run: Path | None = None
    keys: Path | None = None

    @property
    def initial(self) -> Tensor:
        """The model before the first round."""
        return self.rounds[0].before

    def model(self, vector: Tensor) -> Model:
        """Give a vector its layout.

        Args:
            vector: Of this training's size.

        """
        return Model(self.layout, vector.to(torch.float32))

    def first_round_of(self, client: str) -> int | None:
        """Return the first round in which a client took part; None where it never did.

        Args:
            client: Its id.

        """
        return next((each.number for each in self.rounds if client in each.clients), None)
