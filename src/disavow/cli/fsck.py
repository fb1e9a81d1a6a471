"""`disavow fsck`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from disavow.cli.files import read_bytes
from disavow.cli.output import Bar, print_json, progress, results
from disavow.ledger import Finding
from disavow.run_checks import check_run


def fsck(directory: Path, *, absent: list[str], checkpoint: Path | None, as_json: bool) -> None:
    """Check a run, and that ids are absent from it; exit 1 when something is wrong."""
    head = read_bytes(checkpoint) if checkpoint else None
    with Bar(progress(), "checking", 1) as shown:

        def on_progress(done: int, total: int) -> None:
            shown.update(done, total=total)

        found = check_run(directory, absent=absent, checkpoint=head, on_progress=on_progress)
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
