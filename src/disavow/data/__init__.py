"""What the clients hold: a data set, split into what is trained on and what is held out, over clients."""

from __future__ import annotations

from disavow.config import DataSettings
from disavow.data.dataset import Dataset, FederatedData
from disavow.data.digits import digits
from disavow.data.partition import PARTITIONS, held_out
from disavow.errors import ConfigError
from disavow.federation.randomness import training_stream

SOURCES = {"digits": digits}


def client_ids(count: int) -> tuple[str, ...]:
    """Ids of one width for `count` clients, so that none is a part of another.

    >>> client_ids(2)
    ('client-01', 'client-02')
    """
    width = max(2, len(str(count)))
    return tuple(f"client-{i:0{width}d}" for i in range(1, count + 1))


def load(settings: DataSettings, *, seed: int) -> FederatedData:
    """The data of a federation: every draw in it is a training draw, so that a run can be repeated."""
    whole = SOURCES[settings.name]()
    train, test = held_out(len(whole), settings.test_fraction, training_stream(seed, "held out"))
    if settings.clients > len(train):
        raise ConfigError(
            f"data.clients is {settings.clients}; allowed: up to {len(train)}, "
            f"the training samples of {settings.name}"
        )
    parts = PARTITIONS[settings.partition](
        whole.labels[train].numpy(), settings.clients, settings.alpha, training_stream(seed, "partition")
    )
    return FederatedData(
        train=whole.select(train),
        test=whole.select(test),
        parts=dict(zip(client_ids(settings.clients), parts, strict=True)),
    )


__all__ = ["Dataset", "FederatedData", "client_ids", "load"]
