"""`disavow fsck`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import typer

from disavow.cli.files import read_bytes
from disavow.cli.output import bar, print_json, progress, results
from disavow.erasure.prove import default_openings
from disavow.errors import ConfigError, VerificationError
from disavow.ledger import Finding, Ledger
from disavow.ledger import fsck as check
from disavow.ledger.absent import files_with
from disavow.ledger.keys import default_folder
from disavow.ledger.requests import refuse_broken_text
from disavow.proof.opening import read_opening


def fsck(directory: Path, *, absent: list[str], checkpoint: Path | None, as_json: bool) -> None:
    """Check a run, and that ids are absent from it; exit 1 when something is wrong."""
    console, head = progress(), read_bytes(checkpoint) if checkpoint else None
    with bar(console, "checking", 1) as shown:

        def on_progress(done: int, total: int) -> None:
            shown.update(shown.task_ids[0], completed=done, total=total)

        found = check(directory, on_progress, checkpoint=head)
    found += _forgotten(directory, found)
    found += _still_there(directory, absent)
    faults = [finding for finding in found if finding.fault]
    if as_json:
        print_json({"run": str(directory), "clean": not faults, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            results().print(f"{'fault' if finding.fault else 'note'}: {finding}")
        for client in absent:
            if not any(finding.what.startswith(repr(client)) for finding in found):
                results().print(f"{client!r} is in no file of {directory}")
        results().print(f"{directory}: {_count(faults)}")
    if faults:
        raise typer.Exit(1)


def _count(faults: list[Finding]) -> str:
    return f"{len(faults)} fault{'s' if len(faults) > 1 else ''}" if faults else "clean"


def _forgotten(directory: Path, found: list[Finding]) -> list[Finding]:
    """Clients who left the run and are in it again, as far as the tombstones of whoever asks can tell."""
    if any(finding.fault for finding in found):
        return []  # it may not even be readable
    with Ledger.open(directory) as ledger:
        forgotten = ledger.restored_from_backup(default_folder())
    back = [
        Finding("table clients", f"{client!r} left this run and is in it again") for client in forgotten.clients
    ]
    return back + [Finding("this run", f"is {note}", fault=bool(back)) for note in filter(None, [str(forgotten)])]


def _still_there(directory: Path, ids: list[str]) -> list[Finding]:
    """Files that contain one of these ids, whole: rows, free pages, write-ahead log, names."""
    if not ids:
        return []
    for client in ids:
        refuse_broken_text(client)
    if "" in ids:
        raise ConfigError("--absent is empty; allowed: a client id")
    with Ledger.open(directory) as ledger:
        known = ledger.clients()
    inside = [
        Finding(str(path.relative_to(directory)), f"{client!r} is in this file")
        for client in ids
        for path in files_with(directory, client, known)
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
            named.add(read_opening(read_bytes(path)).client)
    return named
