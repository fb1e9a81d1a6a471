"""`disavow fsck`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from disavow.cli.output import bar, print_json, progress, results
from disavow.ledger import fsck as check


def fsck(directory: Path, *, as_json: bool) -> None:
    """Check a run; exit 1 when something is wrong with it."""
    console = progress()
    with bar(console, "checking", 1) as shown:

        def on_progress(done: int, total: int) -> None:
            if shown.task_ids:
                shown.update(shown.task_ids[0], completed=done, total=total)

        found = check(directory, on_progress)
    faults = [finding for finding in found if finding.fault]
    if as_json:
        print_json({"run": str(directory), "clean": not faults, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            results().print(f"{'fault' if finding.fault else 'note'}: {finding}")
        results().print(f"{directory}: {f'{len(faults)} faults' if faults else 'clean'}")
    if faults:
        raise typer.Exit(1)
