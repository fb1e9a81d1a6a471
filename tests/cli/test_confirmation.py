"""A rollback is confirmed before anything is placed, a request that waits can be cancelled, and a rebuild that is
unfinished is not handed out as if it were none.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from disavow.erasure.erase import judge_waiting
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from disavow.ledger.database import NAME
from disavow.rounds.options import now
from tests.cli.erasing import own_keys
from tests.cli.process import COMMAND, environment
from tests.kill.erasure_driver import Driver, Ended

ALONE = "client-03"


class Command:
    def __init__(self, driver: Driver, folder: Path) -> None:
        self._driver, self.folder = driver, folder

    def __call__(self, *arguments: str | Path) -> Ended:
        return self._driver.run(*arguments, keys=self.folder / "keys", cwd=self.folder)


@pytest.fixture
def command(run_dir: Path, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    own_keys(run_dir, tmp_path / "keys")
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    return Command(driver, tmp_path)


@pytest.fixture
def pair(run_dir: Path, command: Command) -> list[str]:
    """Clients of one cluster, of which too few are left when they go."""
    with Ledger.open(run_dir) as ledger:
        smallest = min(ledger.membership(1), key=len)
    return sorted(smallest)[: len(smallest) - 1]


def states(run: Path) -> list[str]:
    with Ledger.open(run) as ledger:
        return [request.state.value for request in ledger.requests()]


# -- a rollback is confirmed ---------------------------------------------------------------------------------------


def test_where_nobody_can_be_asked_a_rollback_needs_yes_and_without_it_nothing_changes(
    command: Command, run_dir: Path, pair: list[str]
) -> None:
    before = (run_dir / NAME).read_bytes()
    refused = command("erase", run_dir, *pair, "--json")
    assert (refused.status, refused.stdout) == (12, "")
    [line] = refused.stderr.splitlines()
    assert [
        word for word in ("rollback to round 1", "client-epochs", "--yes", "--dry-run") if word not in line
    ] == []
    assert ((run_dir / NAME).read_bytes(), states(run_dir)) == (before, [])
    assert command("erase", run_dir, *pair, "--yes").status == 0
    assert states(run_dir) == ["answered"] * len(pair)


def test_what_is_deniable_is_not_asked_about(command: Command, run_dir: Path, pair: list[str]) -> None:
    assert command("erase", run_dir, pair[0]).status == 0
    assert command("erase", run_dir, pair[0]).status == 0  # the first answer, again
    assert states(run_dir) == ["answered"]


def on_a_terminal(run: Path, clients: list[str], typed: bytes) -> tuple[int, str, str]:
    """Run `erase` with a person at the terminal; exit code, stdout, and what the person saw."""
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    with subprocess.Popen(
        [*COMMAND, "erase", str(run), *clients],
        env=environment(TERM="dumb"),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        shown = bytearray()
        try:
            while data := os.read(ours, 65536):
                shown.extend(data)
        except OSError:  # the end of a terminal is an error on Linux
            os.close(ours)
        assert process.stdout is not None
        with closing(process.stdout) as out:
            output = out.read()
        return process.wait(60), output, shown.decode()


@pytest.mark.parametrize("typed", [b"n\n", b"\x04"], ids=["no", "end of input"])
def test_on_a_terminal_a_person_sees_the_forecast_and_says_no(
    command: Command, run_dir: Path, pair: list[str], typed: bytes
) -> None:
    status, out, seen = on_a_terminal(run_dir, pair, typed)
    assert (status, out, states(run_dir)) == (12, "", [])
    with Ledger.open(run_dir) as ledger:
        expected = ["rollback to round 1", "client-epochs", "the initial model", ledger.initial_model, "[y/N]"]
    assert [words for words in expected if words not in seen] == []


def test_on_a_terminal_a_person_says_yes(command: Command, run_dir: Path, pair: list[str]) -> None:
    status, out, _ = on_a_terminal(run_dir, pair, b"yes\n")
    assert (status, states(run_dir)) == (0, ["answered"] * len(pair))
    assert out.startswith(f"{pair[0]}: request 1: rollback to round 1")


# -- a request is cancelled ----------------------------------------------------------------------------------------


def test_a_request_that_waits_is_cancelled_and_whoever_waits_for_it_hears_so(
    command: Command, run_dir: Path, driver: Driver, tmp_path: Path
) -> None:
    holder = driver.start(run_dir, task="hold")
    holder.wait_for_output("held", "stdout")
    try:
        waiting = driver.start("erase", run_dir, ALONE, "--wait", "600", keys=tmp_path / "keys")
        waiting.wait_for_output("the request is placed, waiting")
        cancelled = command("cancel", run_dir, ALONE, "--json")
        assert cancelled.status == 0, cancelled.stderr
        request = json.loads(cancelled.stdout)["request"]
        assert (request["number"], request["state"], request["client"]) == (1, "cancelled", ALONE)
        ended = waiting.wait()
        assert (ended.status, "request 1: cancelled" in ended.stdout) == (0, True)
    finally:
        holder.kill()
        holder.wait()
    again = command("cancel", run_dir, ALONE, "--json")
    assert (again.status, again.stdout) == (0, cancelled.stdout)
    listed = command("requests", run_dir)
    assert "cancelled" in listed.stdout
    assert json.loads(command("requests", run_dir, "--json").stdout)["requests"] == [request]
    assert command("resume", run_dir).status == 0
    with Ledger.open(run_dir) as ledger:
        assert ALONE in ledger.clients()
    assert fsck(run_dir) == []
    assert command("erase", run_dir, ALONE).status == 0  # it may ask again
    assert states(run_dir) == ["cancelled", "answered"]
    assert command("fsck", run_dir, "--absent", ALONE).status == 0


def test_what_cannot_be_cancelled_is_refused(command: Command, run_dir: Path) -> None:
    assert command("cancel", run_dir, "nobody").status == 7
    assert command("cancel", run_dir, ALONE).status == 2
    assert command("erase", run_dir, ALONE).status == 0
    assert command("cancel", run_dir, ALONE).status == 7  # it has left


# -- a rebuild is unfinished ---------------------------------------------------------------------------------------


@pytest.fixture
def undone(command: Command, run_dir: Path, pair: list[str]) -> Path:
    """A run whose rounds were undone and not one of them rebuilt yet."""
    with Federation.open(run_dir, write=True) as run:
        run.ledger.place_requests(pair, at=now())
        judge_waiting(run.ledger, run.options, run.mechanism, lambda verdict, requests: None)
    return run_dir


def test_status_says_that_a_rebuild_is_unfinished(command: Command, undone: Path) -> None:
    document = json.loads(command("status", undone, "--json").stdout)
    assert (document["rebuild"], document["complete"]) == ({"first": 1, "last": 3, "next": 1}, False)
    assert "a rollback to round 1 is unfinished: 3 of 3 rounds" in command("status", undone).stdout
    assert command("resume", undone).status == 0
    document = json.loads(command("status", undone, "--json").stdout)
    assert (document["rebuild"], document["complete"]) == (None, True)


def test_export_hands_out_no_unfinished_rebuild_unless_told_to(command: Command, undone: Path) -> None:
    file = command.folder / "model.safetensors"
    refused = command("export", undone, "-o", file)
    assert (refused.status, refused.stdout, file.exists()) == (11, "", False)
    assert "--anyway" in refused.stderr
    document = json.loads(command("export", undone, "-o", file, "--anyway", "--json").stdout)
    with Ledger.open(undone) as ledger:
        assert (document["model"], document["rebuild"]["next"]) == (ledger.initial_model, 1)
    assert "unfinished" in command("export", undone, "-o", file, "--anyway").stdout
    assert command("resume", undone).status == 0
    assert command("export", undone, "-o", file, "--force").status == 0


# -- files that are there ------------------------------------------------------------------------------------------


def test_export_overwrites_nothing_in_silence(command: Command, run_dir: Path) -> None:
    file = command.folder / "model.safetensors"
    assert command("export", run_dir, "-o", file).status == 0
    model = file.read_bytes()
    assert command("export", run_dir, "-o", file).status == 0  # the very same: nothing is lost
    file.write_bytes(b"somebody else's")
    for there in (file, command.folder):
        refused = command("export", run_dir, "-o", there)
        assert (refused.status, "--force" in refused.stderr) == (2, True)
    assert file.read_bytes() == b"somebody else's"
    assert command("export", run_dir, "-o", file, "--force").status == 0
    assert file.read_bytes() == model
