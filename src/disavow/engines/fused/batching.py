"""Which sample lies in which position of which row at each step, worked out on the device for all rows at once.

Every client takes the samples, in the batches, of `engines.batches`. Sorting their keys one client after the other
would take as long as training on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from disavow.engines.batches import keys
from disavow.engines.trainer import Ask


@dataclass(frozen=True, eq=False)
class Client:
    """A row to be: a client, by its position in an ask."""

    ask: int
    position: int
    name: str
    samples: int
    epochs: int
    batch: int

    @property
    def steps(self) -> int:
        """How many steps of SGD it takes."""
        return self.epochs * -(-self.samples // self.batch)

    @property
    def largest(self) -> int:
        """How many positions its largest batch takes."""
        return min(self.samples, self.batch)


def clients_of(ask: Ask, number: int) -> list[Client]:
    """List the clients of an ask.

    Args:
        ask: Whose clients.
        number: The number of the ask in the call.

    Returns:
        One entry a client, in order.
    """
    settings, parts = ask.workload.settings, ask.workload.parts
    return [
        Client(number, position, name, len(parts[name]), settings.epochs, settings.batch_size)
        for position, name in enumerate(ask.clients)
    ]


@dataclass(frozen=True, eq=False)
class BatchIndex:
    """For each step: the sample in each position (steps, rows, positions), how many are taken, how many rows."""

    index: Tensor
    count: Tensor
    active: list[int]


def batch_index_of(
    asks: Sequence[Ask], clients: Sequence[Client], *, rows: int, batch: int, device: torch.device
) -> BatchIndex:
    """Work out which sample each row takes at each step.

    Args:
        asks: All of the call.
        clients: Sorted by their steps, those with most first.
        rows: How many rows the stack has.
        batch: Positions in a row.
        device: Where the stack is.

    Returns:
        The index, on the device.
    """
    samples, epochs, sizes = (
        np.array([getattr(client, name) for client in clients]) for name in ("samples", "epochs", "batch")
    )
    taken = _in_order(asks, clients, samples, epochs, device)
    first = torch.from_numpy(np.concatenate([[0], np.cumsum(epochs * samples)[:-1]])).to(device)
    n, size, several = (torch.from_numpy(a).to(device) for a in (samples, sizes, epochs))
    each = (n + size - 1) // size  # batches in an epoch
    step = torch.arange(clients[0].steps, device=device)[:, None]
    epoch, start = step // each, step % each * size
    count = torch.where(epoch < several, torch.minimum(n - start, size), 0)
    spot = torch.arange(batch, device=device)
    at = (first + epoch * n + start)[:, :, None] + spot
    index = torch.zeros(len(step), rows, batch, dtype=torch.int32, device=device)
    filled = spot < count[:, :, None]
    index[:, : len(clients)] = torch.where(filled, taken[torch.where(filled, at, 0)], 0)
    whole = torch.zeros(len(step), rows, dtype=torch.int32, device=device)
    whole[:, : len(clients)] = count
    steps = np.array([client.steps for client in clients])
    return BatchIndex(index, whole, [int((steps > t).sum()) for t in range(len(step))])


def _in_order(
    asks: Sequence[Ask],
    clients: Sequence[Client],
    samples: npt.NDArray[np.int64],
    epochs: npt.NDArray[np.int64],
    device: torch.device,
) -> Tensor:
    """The samples' numbers as they are taken: client after client, epoch after epoch."""
    drawn, parts = [], []
    for client in clients:
        ask = asks[client.ask]
        drawn.append(
            keys(
                client.samples,
                epochs=client.epochs,
                seed=ask.workload.seed,
                round_number=ask.round_number,
                client=client.name,
            ).reshape(-1)
        )
        parts.append(ask.workload.parts[client.name])
    # keys are unsigned; with the first bit turned they sort as signed numbers do
    signed = (np.concatenate(drawn) ^ np.uint64(1 << 63)).view(np.int64)
    lengths = np.repeat(samples, epochs)
    segment = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    held = np.repeat(np.concatenate([[0], np.cumsum(samples)[:-1]]), epochs) - begins
    # first by key, then by client and epoch: whoever is in one segment stays in the order of the keys
    by_key = torch.argsort(torch.from_numpy(signed).to(device))
    segments = torch.from_numpy(segment).to(device)
    order = by_key[torch.argsort(segments[by_key], stable=True)]
    shift = torch.from_numpy(held).to(device)[segments]
    return torch.from_numpy(np.concatenate(parts)).to(device)[order + shift].to(torch.int32)
