"""A commitment to who filled a slot, made when the round is recorded.

It binds the server to one story told before any request, and names nobody: without the salt it cannot be
linked to a client id, and when a leaver's salt is deleted nothing can link it any more.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection
from functools import lru_cache

TAG = b"disavow/slot/v1\x00"
REQUEST_TAG = b"disavow/request/v1\x00"
RECORDS_TAG = b"disavow/records/v1\x00"
RECORD_LIST_TAG = b"disavow/record list/v1\x00"
SALT_BYTES = 32


def commit(*, run_id: str, round_number: int, salt: bytes, client: str, update_digest: bytes) -> bytes:
    """Commit to who filled a slot: SHA-256(tag ‖ run ‖ round ‖ salt ‖ client id ‖ update digest).

    Run id and client id are UTF-8 behind their length in 4 bytes, the round number has 8 bytes, all big-endian. No
    two different inputs share an encoding.

    Args:
        run_id: The run.
        round_number: The round.
        salt: 32 random bytes.
        client: The client's id.
        update_digest: SHA-256 of its update, 32 bytes.

    Raises:
        ValueError: Salt or digest do not have 32 bytes.

    """
    if len(salt) != SALT_BYTES or len(update_digest) != hashlib.sha256().digest_size:
        raise ValueError("a salt and an update digest have 32 bytes each")
    encoded = _of_round(run_id, round_number) + salt + _with_length(client) + update_digest
    return hashlib.sha256(encoded).digest()


@lru_cache(maxsize=2)  # a round has many slots
def _of_round(run_id: str, round_number: int) -> bytes:
    return TAG + _with_length(run_id) + struct.pack(">Q", round_number)


def commit_client(*, run_id: str, salt: bytes, client: str) -> bytes:
    """Commit to who made a request: SHA-256(tag ‖ run ‖ salt ‖ client id), encoded in the same way.

    Args:
        run_id: The run.
        salt: 32 random bytes.
        client: The client's id.

    Raises:
        ValueError: The salt does not have 32 bytes.

    """
    if len(salt) != SALT_BYTES:
        raise ValueError("a salt has 32 bytes")
    return hashlib.sha256(REQUEST_TAG + _with_length(run_id) + salt + _with_length(client)).digest()


def close_records(*, salt: bytes, records: Collection[str]) -> bytes:
    """Close a list of records: SHA-256(tag ‖ salt ‖ their keys, sorted by their bytes, encoded in the same way).

    Args:
        salt: 32 random bytes.
        records: The keys of the records, each once.

    Raises:
        ValueError: The salt does not have 32 bytes.

    """
    if len(salt) != SALT_BYTES:
        raise ValueError("a salt has 32 bytes")
    keys = sorted(_with_length(record)[4:] for record in records)
    encoded = b"".join(struct.pack(">I", len(key)) + key for key in keys)
    return hashlib.sha256(RECORD_LIST_TAG + salt + encoded).digest()


def commit_records(*, run_id: str, count: int, closed: bytes) -> bytes:
    """Commit to the records of a request: SHA-256(tag ‖ run ‖ count in 8 bytes ‖ closed list).

    A proof says how many there were without naming them.

    Args:
        run_id: The run.
        count: How many records there are.
        closed: What `close_records` gave.

    """
    return hashlib.sha256(RECORDS_TAG + _with_length(run_id) + struct.pack(">Q", count) + closed).digest()


def _with_length(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack(">I", len(data)) + data
