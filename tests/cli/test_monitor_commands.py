"""A server that holds its own key and changes history is caught by `gossip` and `watch`, by no file from before."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from disavow.errors import ConfigError, LogShrunk, LogStale, LogUnreachable, SplitView
from tests.cli.lying_server import BEFORE, FORKED, HONEST, ONE, OTHER, REWRITTEN, LyingServer
from tests.cli.process import COMMAND, assert_refused, environment
from tests.kill.erasure_driver import Driver
from tests.server.receiver import receiving

MISCHIEF = {FORKED: SplitView, REWRITTEN: SplitView, BEFORE: LogShrunk}
"""What the server does to its log, and what that is."""


@pytest.fixture(scope="session")
def server(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> LyingServer:
    """Look, do not touch."""
    return LyingServer.make(driver, tmp_path_factory.mktemp("lying server"))


@pytest.fixture
def live(server: LyingServer, tmp_path: Path) -> Path:
    """The run that the server shows: at first the honest one."""
    return Path(shutil.copytree(server.state(HONEST), tmp_path / "live"))


class Run(Protocol):
    """Runs a command with the server's keys."""

    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def disavow(server: LyingServer) -> Run:
    def run_it(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        ended = server.driver.run(*arguments, keys=server.folder / "keys", cwd=server.folder)
        return subprocess.CompletedProcess(arguments, ended.status, ended.stdout, ended.stderr)

    return run_it


def show(live: Path, state: Path) -> None:
    """Put another state in the place of the one that is shown, at once."""
    shutil.copytree(state, live.with_name("next"))
    live.rename(live.with_name("gone"))
    live.with_name("next").rename(live)


def gossip(server: LyingServer, *files: Path, log: Path | None = None) -> tuple[int, dict[str, Any]]:
    more = () if log is None else ("--log", log)
    command = ("gossip", *files, "--key", server.key, *more, "--json")
    ended = server.driver.run(*command, keys=server.folder / "keys", cwd=server.folder)
    assert ended.stdout, ended.stderr
    return ended.status, json.loads(ended.stdout)


# -- gossip --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [FORKED, REWRITTEN])
def test_receipts_of_two_clients_name_a_split_view_and_the_files_that_show_it(
    server: LyingServer, state: str
) -> None:
    code, found = gossip(server, server.receipts(HONEST) / ONE, server.receipts(state) / OTHER)
    assert (code, found["outcome"]) == (SplitView.exit_code, "split view")
    [log] = found["logs"]
    for conflict in log["conflicts"]:
        [one], [other] = ({Path(file).parent.name for file in head["files"]} for head in conflict["heads"])
        assert {one, other} == {ONE, OTHER}


def test_receipts_of_one_history_are_no_split_view(server: LyingServer) -> None:
    code, found = gossip(server, server.receipts(HONEST), log=server.state(HONEST))
    assert (code, found["outcome"]) == (0, "consistent")
    assert found["logs"][0]["conflicts"] == []


@pytest.mark.parametrize(("state", "kind"), MISCHIEF.items())
def test_receipts_of_one_client_convict_the_log_that_is_shown_now(
    server: LyingServer, state: str, kind: type[SplitView | LogShrunk]
) -> None:
    code, found = gossip(server, server.receipts(HONEST) / ONE, log=server.state(state))
    assert code == kind.exit_code
    assert found["logs"][0]["conflicts"]


def test_in_words_a_split_view_names_both_files(server: LyingServer, disavow: Run) -> None:
    one, other = server.receipts(HONEST) / ONE, server.receipts(FORKED) / OTHER
    ended = disavow("gossip", one, other, "--key", server.key)
    assert ended.returncode == SplitView.exit_code
    assert str(one) in ended.stdout
    assert str(other) in ended.stdout


def test_heads_that_nothing_ties_together_are_not_called_consistent(
    server: LyingServer, disavow: Run, tmp_path: Path
) -> None:
    for state in (BEFORE, HONEST):
        ended = disavow("checkpoint", server.state(state), "-o", tmp_path / state)
        assert ended.returncode == 0, ended.stderr
    code, found = gossip(server, tmp_path / BEFORE, tmp_path / HONEST)
    assert (code, found["outcome"]) == (44, "not compared")
    assert gossip(server, tmp_path / BEFORE, tmp_path / HONEST, log=server.state(HONEST))[0] == 0


def test_gossip_refuses_files_without_heads_and_logs_that_are_none(
    server: LyingServer, disavow: Run, tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("none")
    assert disavow("gossip", tmp_path / "notes", "--key", server.key).returncode == 2
    assert_refused(disavow("gossip", tmp_path, "--key", server.key), ConfigError)
    kept = server.receipts(HONEST)
    assert_refused(disavow("gossip", kept, "--key", server.key, "--log", "ftp://x/y"), ConfigError, "ftp://x/y")
    ended = disavow("gossip", kept, "--key", server.key, "--log", "http://127.0.0.1:9/v1/runs/first")
    assert_refused(ended, LogUnreachable)


# -- watch ---------------------------------------------------------------------------------------------------------


class Watching:
    """A watch that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def event(self) -> dict[str, Any]:
        """The next thing that it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def alarm(self) -> tuple[int, dict[str, Any]]:
        """What it ends with; that it could not look for a moment is no alarm."""
        while (event := self.event())["event"] != "alarm":
            assert event["event"] in ("unreachable", "head"), event
        return self.process.wait(60), event


@contextmanager
def watching(log: Path | str, key: Path, *more: str, **variables: str) -> Iterator[Watching]:
    command = [*COMMAND, "watch", str(log), "--key", str(key), "--every", "0.1", "--json", *more]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**variables)
    )
    try:
        yield Watching(process)
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.parametrize(("state", "kind"), MISCHIEF.items())
def test_a_watch_that_keeps_no_file_catches_what_the_server_does(
    server: LyingServer, live: Path, state: str, kind: type[SplitView | LogShrunk]
) -> None:
    with watching(live, server.key) as watch:
        assert watch.event()["size"] == 5
        show(live, server.state(state))
        code, alarm = watch.alarm()
    assert (code, alarm["code"]) == (kind.exit_code, kind.code)
    assert alarm["seen"] != alarm["given"]
    assert alarm["seen"].splitlines()[1] == "5"


def test_a_growing_log_is_no_alarm(server: LyingServer, tmp_path: Path) -> None:
    live = Path(shutil.copytree(server.state(BEFORE), tmp_path / "live"))
    with watching(live, server.key) as watch:
        assert watch.event()["size"] == 3
        show(live, server.state(HONEST))
        while (event := watch.event())["event"] == "unreachable":
            pass
        assert (event["event"], event["size"]) == ("head", 5)
        assert watch.process.poll() is None


def test_for_cron_a_watch_looks_once_and_keeps_the_head_in_a_file(
    server: LyingServer, disavow: Run, live: Path, tmp_path: Path
) -> None:
    state = tmp_path / "head.json"
    once = ("watch", live, "--key", server.key, "--once", "--state", state)
    assert disavow(*once).returncode == 0
    assert disavow(*once).returncode == 0
    assert disavow(*once, "--max-age", "0").returncode == LogStale.exit_code
    kept = state.read_bytes()
    show(live, server.state(FORKED))
    for _ in range(2):
        ended = disavow(*once)
        assert ended.returncode == SplitView.exit_code
        assert SplitView.code in ended.stderr
        assert state.read_bytes() == kept
    shutil.rmtree(live)
    live.mkdir()
    assert_refused(disavow(*once), LogUnreachable)


def test_a_watch_refuses_what_it_cannot_use(server: LyingServer, disavow: Run, live: Path, tmp_path: Path) -> None:
    watch = ("watch", live, "--key", server.key, "--once")
    assert_refused(disavow(*watch, "--max-age", "5"), ConfigError, "--state")
    assert_refused(disavow(*watch, "--state", tmp_path / "no" / "file"), ConfigError, "--state")
    assert_refused(disavow(*watch, "--webhook", "file:///etc/passwd"), ConfigError, "--webhook")
    assert disavow("watch", live, "--key", live, "--once").returncode == 2


def test_an_alarm_is_posted_signed_and_again_until_it_is_taken(
    server: LyingServer, live: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("between us\n")
    with receiving() as receiver:
        receiver.statuses = [500]
        more = ("--webhook", receiver.url, "--webhook-secret-file", str(secret))
        with watching(live, server.key, *more) as watch:
            assert watch.event()["event"] == "head"
            show(live, server.state(BEFORE))
            code, alarm = watch.alarm()
        assert code == LogShrunk.exit_code
        assert len(receiver.got) == 2
        headers, body = receiver.got[-1]
    assert json.loads(body) == alarm
    at, mac = (part.partition("=")[2] for part in headers["disavow-signature"].split(","))
    signed = hmac.new(b"between us", f"{at}.".encode() + body, hashlib.sha256)
    assert mac == signed.hexdigest()


def test_a_watch_loads_neither_torch_nor_for_a_service_a_database(server: LyingServer) -> None:
    program = (
        "import sys\nfrom disavow.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'sqlalchemy', 'numpy'} & set(sys.modules)))"
    )
    url = ("watch", "http://127.0.0.1:9/v1/runs/first", "--key", str(server.key), "--once")
    ended = subprocess.run(
        [COMMAND[0], "-c", program, *url], capture_output=True, text=True, env=environment(), check=False
    )
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr
    folder = ("watch", str(server.state(HONEST)), "--key", str(server.key), "--once")
    ended = subprocess.run(
        [COMMAND[0], "-c", program, *folder], capture_output=True, text=True, env=os.environ, check=False
    )
    assert "torch" not in ended.stdout.splitlines()[-1]
