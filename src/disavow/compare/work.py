"""Where a comparison keeps its pieces; a module of its own, because erasures look here and need nothing else."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from disavow.errors import RunInUse
from disavow.ledger.files import kind_of
from disavow.ledger.lock import Lock


def default_work(run: Path) -> Path:
    """Return where pieces are kept unless somebody says otherwise: beside the run."""
    run = run.resolve()
    return run.with_name(run.name + ".compare")


def remove_work(run: Path) -> bool:
    """Delete what an interrupted comparison left beside a run: copies of it, with everybody in them.

    Args:
        run: The run.

    Returns:
        False if there is nothing, or a comparison at work.

    """
    work = default_work(run)
    if kind_of(work) != "a folder":
        return False
    with suppress(RunInUse):
        with Lock(work):
            shutil.rmtree(work)
        return True
    return False
