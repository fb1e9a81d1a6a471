"""Partitions by the partitioners of flwr-datasets, which others who publish results use too.

They are given shuffled samples and a seed of the run, so that the seed settles everything. What they may leave
empty is filled, and what they would leave out is refused: every client holds at least one sample, and every sample
is held once.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from disavow.config import DataSettings
from disavow.data.dataset import Indices
from disavow.data.partition import Labels, nobody_empty
from disavow.data.rows import needs_extra
from disavow.errors import ConfigError
from disavow.rounds.randomness import Stream

_LABEL, _NUMBER = "label", "number"


def partitioned(settings: DataSettings, labels: Labels, stream: Stream) -> list[Indices]:
    """Deal samples by the partitioner that the settings name.

    Args:
        settings: The section `data` of the configuration.
        labels: One a sample.
        stream: What is drawn from.

    Returns:
        The sorted indices that each client holds.

    Raises:
        ConfigError: The partitioner would not do as it was meant.
    """
    with needs_extra(f'data.partition "{settings.partition}"'):
        import datasets
        import flwr_datasets.partitioner as partitioners
    classes = len(np.unique(labels))
    _refuse(settings, len(labels), classes)
    order = stream.permutation(len(labels))
    partitioner = _partitioner(partitioners, settings, len(labels), seed=stream.below(1 << 63))
    partitioner.dataset = datasets.Dataset.from_dict({_LABEL: labels[order], _NUMBER: order})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # nobody is left empty; and pyarrow finds fault with how `datasets` sorts
            parts = [_numbers(partitioner, client) for client in range(settings.clients)]
    except ValueError:
        # the one thing left that they refuse: a label that more clients are to hold than it has samples
        raise ConfigError(
            f"data.clients is {settings.clients} with data.labels_per_client {settings.labels_per_client}: some "
            f"label of {settings.name} has fewer samples than clients that would share it; allowed: fewer of either"
        ) from None
    return nobody_empty(parts)


def _refuse(settings: DataSettings, samples: int, classes: int) -> None:
    """What the partitioners would not do as it was meant."""
    clients, each = settings.clients, settings.labels_per_client
    if settings.partition == "shards" and clients * each > samples:
        raise ConfigError(
            f"data.labels_per_client is {each} with data.clients {clients}; allowed: up to {samples // clients}, "
            f"so that none of the {clients * each:,} pieces of the {samples:,} training samples is empty"
        )
    if settings.partition != "pathological":
        return
    if each > classes:
        raise ConfigError(
            f"data.labels_per_client is {each}; allowed: up to {classes}, the labels of {settings.name}"
        )
    if clients < classes and each < classes:
        raise ConfigError(
            f'data.clients is {clients} with data.partition "pathological"; allowed: at least {classes}, the '
            f"labels of {settings.name}, so that somebody holds each"
        )


def _partitioner(partitioners: Any, settings: DataSettings, samples: int, *, seed: int) -> Any:
    clients, each = settings.clients, settings.labels_per_client
    if settings.partition == "iid":
        return partitioners.IidPartitioner(clients)
    if settings.partition == "dirichlet":
        # theirs would draw ten times for clients of one sample or more, and then give up
        return partitioners.DirichletPartitioner(
            clients, _LABEL, float(settings.alpha), min_partition_size=0, seed=seed
        )
    if settings.partition == "pathological":
        return partitioners.PathologicalPartitioner(
            clients, _LABEL, each, class_assignment_mode="first-deterministic", seed=seed
        )
    # asked for a number of pieces, theirs would leave out the samples that remain; asked for a size, it does not
    size = math.ceil(samples / (clients * each))
    if math.ceil(samples / size) < clients:
        size = samples // (clients * each)
    return partitioners.ShardPartitioner(clients, _LABEL, shard_size=size, keep_incomplete_shard=True, seed=seed)


def _numbers(partitioner: Any, client: int) -> Indices:
    part = partitioner.load_partition(client).with_format("numpy")
    return np.asarray(part[_NUMBER][:], dtype=np.int64)
