"""What the clients hold: a data set, split into what is trained on and what is held out, over clients."""

from __future__ import annotations

from dataclasses import replace

from disavow.config import DataSettings
from disavow.data.dataset import Dataset, FederatedData, Indices, Split
from disavow.data.digits import digits
from disavow.data.partition import PARTITIONS, held_out
from disavow.data.progress import OnProgress, nothing
from disavow.errors import ConfigError
from disavow.rounds.randomness import training_stream

DIGITS = "digits"


def client_ids(count: int) -> tuple[str, ...]:
    """Number clients with ids of one width, so that none is a part of another.

    >>> client_ids(2)
    ('client-01', 'client-02')

    Args:
        count: How many.

    Returns:
        The ids, in order.
    """
    width = max(2, len(str(count)))
    return tuple(f"client-{i:0{width}d}" for i in range(1, count + 1))


def load(settings: DataSettings, *, seed: int, on_progress: OnProgress = nothing) -> FederatedData:
    """Load the data of a federation: every draw in it is a training draw, so that a run can be repeated.

    `on_progress` hears how far decoding is, where images are decoded for the first time.

    Args:
        settings: The section `data` of the configuration.
        seed: That of the run.
        on_progress: Called with how far it is.

    Returns:
        Samples, and who holds which.

    Raises:
        ConfigError: The data cannot be used, or is not enough for so many clients.
    """
    if settings.name == DIGITS:
        whole = digits()
        kept, held = held_out(len(whole), settings.test_fraction, training_stream(seed, "held out"))
        found = Split(whole.select(kept), whole.select(held))
    else:
        from disavow.data.images import official

        found = official(settings, on_progress)
    if settings.validation > 0:
        found = _with_validation(found, settings.validation, seed)
    parts = dict(zip(client_ids(settings.clients), _parts(settings, found.train, seed), strict=True))
    return FederatedData(found.train, found.test, parts, found.notes, found.digest)


def fetch(settings: DataSettings, *, on_progress: OnProgress = nothing) -> None:
    """See to it that the data is at hand.

    Args:
        settings: The section `data` of the configuration.
        on_progress: Called with how far it is.

    Raises:
        ConfigError: It is not to be had, or cannot be used.
    """
    if settings.name != DIGITS:
        from disavow.data.images import at_hand

        at_hand(settings, on_progress)


def _with_validation(found: Split, share: float, seed: int) -> Split:
    """Put a share of the training samples in the place of the test samples, which nobody then sees."""
    kept, held = held_out(len(found.train), share, training_stream(seed, "validation"))
    return replace(found, train=found.train.select(kept), test=found.train.select(held))


def _parts(settings: DataSettings, train: Dataset, seed: int) -> list[Indices]:
    """Who holds what. Digits have partitions of their own, as quantity is for all, and need no extra for them."""
    if settings.clients > len(train):
        raise ConfigError(
            f"data.clients is {settings.clients}; allowed: up to {len(train)}, "
            f"the training samples of {settings.name}"
        )
    labels, stream = train.groups.numpy(), training_stream(seed, "partition")
    if settings.partition == "quantity" or (settings.name == DIGITS and settings.partition in PARTITIONS):
        return PARTITIONS[settings.partition](labels, settings.clients, settings.alpha, stream)
    from disavow.data.partitioners import partitioned

    return partitioned(settings, labels, stream)


__all__ = ["Dataset", "FederatedData", "OnProgress", "client_ids", "fetch", "load"]
