"""An fsync that fails, ours or SQLite's, stops a run and never breaks it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.process import environment

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="preloads a library in C"),
]


def failing(folder: Path, *, training: int, erasure: int) -> Any:
    """What became of the runs, every so many fsyncs; in one process, because importing everything takes seconds."""
    library = folder / "failing_fsync.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "failing_fsync.c", "-ldl"], check=True)
    command = [sys.executable, "-m", "tests.kill.fsync_driver", str(folder), str(training), str(erasure)]
    around = environment(LD_PRELOAD=str(library), DISAVOW_KEYS=str(folder / "keys"))
    done = subprocess.run(command, cwd=HERE.parents[1], env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(stories: Any) -> None:
    """No run is broken, all end alike, and most failures are noticed."""
    for story in ("training", "erasure"):
        points, due, runs = (stories[story][name] for name in ("points", "due", "runs"))
        assert points > 10  # SQLite's own among them
        assert [run for run in runs if run["faults"]] == []
        assert [run for run in runs if run["end"] != due] == []
        # SQLite may move its log into the file when it likes: nothing depends on that
        assert sum(run["failed"] is not None for run in runs) > len(runs) / 2
        # an error of the disk is not called a full one
        assert {run["failed"] for run in runs if run["error"] == "EIO"} <= {None, "StorageError"}
        assert {run["failed"] for run in runs if run["error"] == "ENOSPC"} <= {None, "StorageError", "StorageFull"}


def test_whichever_fsync_fails_no_run_is_broken(tmp_path: Path) -> None:
    check(failing(tmp_path, training=5, erasure=16))


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_each_single_fsync_fails_and_no_run_is_broken(tmp_path: Path) -> None:
    check(failing(tmp_path, training=1, erasure=1))
