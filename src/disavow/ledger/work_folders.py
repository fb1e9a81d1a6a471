"""Folders beside a run in which an audit or a comparison keeps what it has done, until it ends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from disavow.errors import RunInUse, StorageError, StorageFull
from disavow.ledger.database import room_to_write
from disavow.ledger.files import kind_of
from disavow.ledger.lock import Lock

Study = Literal["audit", "compare"]


def work_folder(run: Path, study: Study) -> Path:
    """Return where a study keeps its work unless somebody says otherwise: beside the run.

    Args:
        run: The run.
        study: What is done.

    """
    run = run.resolve()
    return run.with_name(f"{run.name}.{study}")


def remove_work_folder(run: Path, study: Study) -> bool:
    """Delete what an interrupted study left beside a run: copies of it, with everybody in them.

    Args:
        run: The run.
        study: What was done.

    Returns:
        False if there is nothing, or somebody is at work in it.

    """
    work = work_folder(run, study)
    if kind_of(work) != "a folder":
        return False
    # a comparison holds the folder itself, an audit one in it for each client
    held = [work] if study == "compare" else [each for each in work.iterdir() if kind_of(each) == "a folder"]
    with suppress(RunInUse), ExitStack() as locks:
        for folder in held:
            locks.enter_context(Lock(folder))
        shutil.rmtree(work)
        return True
    return False


@contextmanager
def hold_work_folder(folder: Path, purpose: str) -> Iterator[None]:
    """Make a folder, and hold it for one study at a time; where there is no room in it, say how to go on.

    Args:
        folder: Where the work is kept.
        purpose: What there may be no room for, such as "the audit".

    Raises:
        RunInUse: Another one is at work in it.
        StorageError: It cannot be written to.

    """
    again = "the run is as it was. The same command goes on with what is left; or choose another folder (--work)"
    try:
        with room_to_write(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with Lock(folder):
                yield
    except StorageFull as error:
        reason = error.__cause__ or error
        raise StorageFull(f"there is no room for {purpose} in {folder}: {reason}; {again}") from error
    except StorageError as error:
        raise StorageError(f"{folder} cannot be worked in: {error.__cause__ or error}; {again}") from error
