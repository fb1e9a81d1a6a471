"""Records that a node must not train on any more: in the messages to it, and out of its data.

The server knows such records by keyed hashes alone (`disavow.domain.Exclusions`). A train or evaluate message to
the node of a client that has some carries them with their key, in a record of its own; to any other node, nothing.
Only the node has the records' keys, so only the node can leave them out: whether it does, nobody else can see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Message

from disavow.domain import Exclusions
from disavow.errors import ConfigError
from disavow.flower.protocol import EXCLUSION_KEY, EXCLUSIONS, HASHES, HELD, REMOVALS

if TYPE_CHECKING:
    from flwr.app import RecordDict


def to_record(exclusions: Exclusions, removals: Iterable[bytes] = ()) -> ConfigRecord:
    """Write what one client must leave out, for a message to its node.

    Where nothing is excluded, no such record is sent, and so the key neither.

    Args:
        exclusions: The client's own.
        removals: The log's commitments to the records of requests that the node has not given its word on yet.

    """
    record = ConfigRecord({EXCLUSION_KEY: exclusions.key, HASHES: sorted(exclusions.hashes)})
    if commitments := list(removals):
        record[REMOVALS] = commitments
    return record


def without_excluded(message: Message, dataset: Any, keys: Sequence[str]) -> Any:
    """Leave out the examples whose record has been erased: one line before a node trains or evaluates.

    Where nothing is excluded, the data set is returned as it is.

    Example::

        data = without_excluded(message, data, patients)

    Args:
        message: The train or evaluate message.
        dataset: A torch data set, a list or tuple, or an array or tensor, of examples.
        keys: The key of the record that each example belongs to, in the same order; several may share one.

    Returns:
        The examples that are left: of a data set a `torch.utils.data.Subset`, else the same kind as was given.

    Raises:
        ConfigError: There are not as many keys as examples, or the message is not what the server sends.

    """
    if len(keys) != len(dataset):
        raise ConfigError(f"there are {len(keys)} record keys for {len(dataset)} examples; allowed: one for each")
    record = message.content.get(EXCLUSIONS)
    if record is None:
        return dataset
    excluded = _read(record)
    hashes = {key: excluded.hash_of(key) for key in set(keys)}
    kept = [i for i, key in enumerate(keys) if hashes[key] not in excluded.hashes]
    # where `evidence_mod` reads that the app has left them out, and which there were
    record[HELD] = sorted({*excluded.hashes} & {*hashes.values()} | {*record.get(HELD, [])})
    return dataset if len(kept) == len(keys) else _subset(dataset, kept)


def _read(record: Any) -> Exclusions:
    key, hashes = (record.get(EXCLUSION_KEY), record.get(HASHES)) if isinstance(record, ConfigRecord) else (None, 0)
    if not isinstance(key, bytes) or not isinstance(hashes, list) or not all(isinstance(h, bytes) for h in hashes):
        raise ConfigError(f"the record {EXCLUSIONS!r} of the message is not what KIPFedAvg sends")
    return Exclusions(key, frozenset(hashes))


def _subset(dataset: Any, kept: list[int]) -> Any:
    if isinstance(dataset, list | tuple):
        return type(dataset)([dataset[i] for i in kept])
    if hasattr(dataset, "shape"):
        return dataset[kept]
    from torch.utils.data import Subset

    return Subset(dataset, kept)


def left_out(content: RecordDict) -> bool:
    """Say whether the app has left out what a message excludes: it has called `without_excluded`."""
    record = content.get(EXCLUSIONS)
    return isinstance(record, ConfigRecord) and HELD in record


def never_held(content: RecordDict) -> list[bytes]:
    """List the hashes in a message that are of no record which this node has."""
    record = content.get(EXCLUSIONS)
    if not isinstance(record, ConfigRecord):
        return []
    return sorted({*_read(record).hashes} - {*record.get(HELD, [])})


def requested_removals(content: RecordDict) -> list[bytes]:
    """List the commitments that the server asks for a word on."""
    record = content.get(EXCLUSIONS)
    commitments = record.get(REMOVALS) if isinstance(record, ConfigRecord) else None
    return [each for each in commitments if isinstance(each, bytes)] if isinstance(commitments, list) else []
