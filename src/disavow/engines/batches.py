"""Which samples a client takes in which batch: the same in every engine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from disavow.rounds.randomness import Stream, training_stream


def keys(samples: int, *, epochs: int, seed: int, round_number: int, client: str) -> npt.NDArray[np.uint64]:
    """Draw the keys by which a client orders its samples, one row an epoch.

    Args:
        samples: How many it holds.
        epochs: Local epochs.
        seed: That of the run.
        round_number: The round.
        client: Its id.

    Returns:
        A client takes its samples in the order of their keys.
    """
    stream = training_stream(seed, "batches", round_number=round_number, client=client)
    return stream.words(epochs * samples).reshape(epochs, samples)


def batches(
    samples: int, *, epochs: int, batch_size: int, seed: int, round_number: int, client: str
) -> Iterator[npt.NDArray[np.int64]]:
    """Order a client's samples in batches, shuffled anew each epoch, the last short batch included.

    Args:
        samples: How many it holds.
        epochs: Local epochs.
        batch_size: Samples in a batch.
        seed: That of the run.
        round_number: The round.
        client: Its id.

    Yields:
        Positions of its samples, batch by batch.
    """
    drawn = keys(samples, epochs=epochs, seed=seed, round_number=round_number, client=client)
    yield from _cut(drawn, batch_size)


def batches_from(stream: Stream, samples: int, *, epochs: int, batch_size: int) -> Iterator[npt.NDArray[np.int64]]:
    """Order samples by the stream itself: for a client that was given its key, and not the run's seed.

    Args:
        stream: The client's stream of the round.
        samples: How many it holds.
        epochs: Local epochs.
        batch_size: Samples in a batch.

    Yields:
        Positions of its samples, batch by batch.
    """
    yield from _cut(stream.words(epochs * samples).reshape(epochs, samples), batch_size)


def _cut(drawn: npt.NDArray[np.uint64], batch_size: int) -> Iterator[npt.NDArray[np.int64]]:
    samples = drawn.shape[1]
    for order in np.argsort(drawn, axis=1, kind="stable"):
        yield from (order[start : start + batch_size] for start in range(0, samples, batch_size))
