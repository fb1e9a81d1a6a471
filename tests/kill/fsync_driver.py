"""Train a toy run and erase from it while an fsync fails, one after the other; print what became of each run.

Run as `python -m tests.kill.fsync_driver FOLDER EVERY EVERY` with the library of `failing_fsync.c` preloaded: every
so many of the fsyncs of a training and of an erasure fail.
"""

from __future__ import annotations

import ctypes
import errno
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disavow.federation import Federation
from disavow.ledger import Ledger
from tests.erasure.mechanisms.contract import ask, digests, faults, reopen_toy, start_toy, toy_settings

_EVER = 1 << 40

Story = Callable[[Federation], None]


@dataclass(frozen=True)
class Syncs:
    """The counters of the preloaded library."""

    seen: ctypes.c_long
    first: ctypes.c_long
    last: ctypes.c_long
    error: ctypes.c_int

    def fail(self, first: int, last: int, error: int) -> None:
        """Count from here on, and let these fail; 0 for none."""
        self.seen.value, self.first.value, self.last.value, self.error.value = 0, first, last, error


def preloaded() -> Syncs:
    """Find them in this process."""
    library = ctypes.CDLL(None)
    seen, first, last = (ctypes.c_long.in_dll(library, f"syncs_{name}") for name in ("seen", "fail_at", "fail_to"))
    return Syncs(seen, first, last, ctypes.c_int.in_dll(library, "syncs_error"))


def train(run: Federation) -> None:
    """All rounds."""
    run.train()


def erase(run: Federation) -> None:
    """A rollback of all rounds; whoever has asked does not ask again."""
    if not run.ledger.requests():
        ask(run, "client-03", "client-05", "client-07")
    run.answer()


def live(base: Path, folder: Path, story: Story, syncs: Syncs, every: int) -> dict[str, Any]:
    """Live a story on copies of a run: undisturbed, then with one fsync failing, or all from one on."""
    folder.mkdir()
    run = _copy(base, folder / "undisturbed")
    keys = _copy(base.with_name("keys"), folder / "keys")
    syncs.fail(0, 0, 0)
    with reopen_toy(run, keys=keys) as opened:
        story(opened)
    points = syncs.seen.value
    runs = [
        _disturbed(base, folder / f"{point}-{once}", story, syncs, point, once=once)
        for point in range(1, points + 1)
        for once in (True, False)
        if (point + once) % every == 0
    ]
    return {"points": points, "due": _state(run, keys), "runs": runs}


def _disturbed(base: Path, folder: Path, story: Story, syncs: Syncs, point: int, *, once: bool) -> dict[str, Any]:
    folder.mkdir()
    run, keys, failed = _copy(base, folder / "run"), _copy(base.with_name("keys"), folder / "keys"), None
    error = errno.EIO if point % 2 else errno.ENOSPC
    syncs.fail(point, point if once else _EVER, error)
    try:
        with reopen_toy(run, keys=keys) as opened:
            try:
                story(opened)
            finally:
                if once:  # the power fails next: files stay as they are, without SQLite's memory of its log
                    run, keys = _copy(run, folder / "crashed"), _copy(keys, folder / "crashed keys")
    except Exception as refused:
        failed = type(refused).__name__
    syncs.fail(0, 0, 0)
    outcome = {"point": point, "once": once, "error": errno.errorcode[error], "failed": failed}
    outcome |= _taken_up(run, story, keys)
    shutil.rmtree(folder)
    return outcome


def _copy(run: Path, target: Path) -> Path:
    return Path(shutil.copytree(run, target, ignore=shutil.ignore_patterns("*-shm", "lock")))


def _taken_up(run: Path, story: Story, keys: Path) -> dict[str, Any]:
    """What is wrong with a run that is opened again, and where its story ends."""
    try:
        with reopen_toy(run, keys=keys) as opened:
            story(opened)
    except Exception as error:
        return {"faults": [f"{type(error).__name__}: {error}", *faults(run, keys)]}
    return {"faults": faults(run, keys), "end": _state(run, keys)}


def _state(run: Path, keys: Path) -> Any:
    with Ledger.open(run, keys=keys) as ledger:
        requests = [(request.state.value, str(request.verdict)) for request in ledger.requests()]
        return [digests(ledger), requests, sorted(ledger.store.digests())]


def main(folder: Path, training: int, erasure: int) -> None:
    """Both stories, as JSON."""
    syncs = preloaded()
    start_toy(folder / "new", toy_settings(rounds=2), keys=folder / "keys").close()
    with start_toy(folder / "trained", toy_settings(rounds=2), keys=folder / "keys") as run:
        run.train()
    stories = {
        "training": live(folder / "new", folder / "training", train, syncs, training),
        "erasure": live(folder / "trained", folder / "erasure", erase, syncs, erasure),
    }
    print(json.dumps(stories))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
