"""One writer at a time; whoever comes second is told who came first."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from disavow.errors import RunInUse
from disavow.ledger import Ledger, fsck
from tests.cli.forked import disavow
from tests.cli.process import assert_refused
from tests.ledger.making import create
from tests.refusals import refuses

HOLD = """
import sys, time
from pathlib import Path
from disavow.ledger import Ledger
with Ledger.open(Path(sys.argv[1]), write=True):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def holder(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the run open for writing."""
    command = [sys.executable, "-c", HOLD, str(directory), "client-named-in-an-argument"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_second_writer_is_refused_and_told_the_pid_until_the_first_is_killed(run_dir: Path) -> None:
    with holder(run_dir) as process:
        with refuses(RunInUse, f"process {process.pid} ("):
            Ledger.open(run_dir, write=True)
        # the arguments of a command may be client ids; the lock is a file that stays
        assert "client-named-in-an-argument" not in (run_dir / "lock").read_text()
        # readers do not need it
        with Ledger.open(run_dir) as ledger:
            assert ledger.next_round() == (4, 1)
        assert fsck(run_dir) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Ledger.open(run_dir, write=True) as ledger:
            assert ledger.next_round() == (4, 1)


def test_a_second_writer_on_the_command_line_is_exit_4(run_dir: Path) -> None:
    with holder(run_dir) as process:
        result = disavow("resume", run_dir)
        assert_refused(result, RunInUse, process.pid)


def test_a_lock_is_given_back_on_close_and_closing_twice_is_closing_once(tmp_path: Path) -> None:
    ledger = create(tmp_path / "run")
    with pytest.raises(RunInUse):
        Ledger.open(tmp_path / "run", write=True)
    ledger.close()
    ledger.close()
    with Ledger.open(tmp_path / "run", write=True):
        assert json.loads((tmp_path / "run" / "lock").read_text()).keys() == {"pid", "command", "since"}
    assert (tmp_path / "run" / "lock").read_text() == ""


def test_a_lock_is_given_back_when_opening_fails(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "remove_leftovers", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Ledger.open(run_dir, write=True)
    with Ledger.open(run_dir, write=True) as ledger:
        assert ledger.next_round() == (4, 1)


def test_a_holder_that_left_no_name_is_still_respected(run_dir: Path) -> None:
    with holder(run_dir):
        (run_dir / "lock").write_text("not JSON")
        with refuses(RunInUse, "another process"):
            Ledger.open(run_dir, write=True)
