"""Where an audit keeps its worlds; not in `audit`, whose imports take time, because erasures look here, too."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from disavow.errors import RunInUse
from disavow.ledger.files import kind_of
from disavow.ledger.lock import Lock


def default_work(run: Path) -> Path:
    """Return where worlds are kept unless somebody says otherwise: beside the run."""
    run = run.resolve()
    return run.with_name(run.name + ".audit")


def remove_work(run: Path) -> bool:
    """Delete what an interrupted audit of a run left beside it; False if there is nothing, or an audit at work."""
    work = default_work(run)
    if kind_of(work) != "a folder":
        return False
    with suppress(RunInUse), ExitStack() as locks:
        for folder in work.iterdir():
            if kind_of(folder) == "a folder":
                locks.enter_context(Lock(folder))
        shutil.rmtree(work)
        return True
    return False
