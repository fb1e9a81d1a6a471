"""Checks of a whole run from its stored bytes: also of one that cannot be opened, which no `Federation` is of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from disavow.erasure.proof_files import default_openings
from disavow.errors import ConfigError, IntegrityError, VerificationError
from disavow.ledger import Finding, Ledger
from disavow.ledger.keys import default_folder
from disavow.ledger.requests import refuse_broken_text
from disavow.proof.envelope import LARGEST
from disavow.proof.opening import Opening


def check_run(
    directory: Path,
    *,
    keys: Path | None = None,
    absent: Sequence[str] = (),
    checkpoint: bytes | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Finding]:
    """Check a run from its stored bytes: every digest, every invariant, and that ids are absent from it.

    Args:
        directory: Where the run lies; it need not be one that can be opened.
        keys: The folder of the operator's keys, with the run's keyring.
        absent: Ids that no file of the run or of its keyring may contain.
        checkpoint: A signed head that was kept; the log must go on from it.
        on_progress: Hears how many checks are done, of how many.

    Returns:
        Everything that was found, faults and notes; an empty list where there is nothing.

    """
    from disavow.ledger import fsck  # loads the verifier

    found = fsck(directory, on_progress, checkpoint=checkpoint, keys=keys)
    return found + _still_there(directory, absent, keys or default_folder())


def refuse_damaged(directory: Path, *, keys: Path | None = None) -> None:
    """Refuse a run that has faults.

    Args:
        directory: Where the run lies.
        keys: The folder of the operator's keys.

    Raises:
        IntegrityError: A check found some.

    """
    from disavow.ledger import fsck  # loads the verifier

    faults = [finding for finding in fsck(directory, keys=keys) if finding.fault and not finding.spare]
    if faults:
        raise IntegrityError(
            f"{directory} fails fsck ({faults[0]}{f' and {len(faults) - 1} more' if len(faults) > 1 else ''}); "
            "restore it from a backup first, nothing was changed"
        )


def _still_there(directory: Path, ids: Sequence[str], keys: Path) -> list[Finding]:
    """Files of the run and of its keyring that contain one of these ids, whole: rows, free pages, write-ahead log,
    names. In the keyring ids are sealed: whoever is in it can be named all the same.
    """
    if not ids:
        return []
    from disavow.ledger.id_search import blobs_with, files_with, tables_with  # loads what unpacks files

    for client in ids:
        refuse_broken_text(client)
    if "" in ids:
        raise ConfigError("--absent is empty; allowed: a client id")
    with Ledger.open(directory, keys=keys) as ledger:
        known = ledger.clients() if ledger.keyring.exists else ()
        keyring = ledger.keyring.folder
        elsewhere = () if ledger.models_at is None else (ledger.store.blobs, ledger.updates.blobs)
    inside = [Finding("keyring", f"{client!r} is a client in it") for client in ids if client in known]
    inside += [
        Finding(str(path.relative_to(folder)), f"{client!r} is in this file")
        for client in ids
        for folder in (directory, keyring)
        for path in files_with(folder, client, known)
    ]
    inside += [
        Finding(name, f"{client!r} is in this object")
        for client in ids
        for blobs in elsewhere
        for name in blobs_with(blobs, client, known)
    ]
    inside += [
        Finding(table, f"{client!r} is in this table")
        for client in ids
        for table in tables_with(directory, client, known)
    ]
    beside = default_openings(directory)
    others = {*known, *_named_by_openings(beside)}
    return inside + [
        Finding(
            str(path),
            f"names {client!r}, beside the run: give it to that client, then delete it",
            fault=False,
        )
        for client in ids
        for path in files_with(beside, client, others)
        if path.is_file()
    ]


def _named_by_openings(folder: Path) -> set[str]:
    """The ids that the openings in a folder are about: one may contain another, client-1 and client-10."""
    named = set()
    for path in folder.glob("*.json"):
        with suppress(VerificationError, OSError):
            if path.stat().st_size <= LARGEST:
                named.add(Opening.decode(path.read_bytes()).client)
    return named
