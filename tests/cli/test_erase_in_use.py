"""`disavow erase` of a run that another process holds, trains or erases from."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from disavow.ledger import Ledger, fsck
from disavow.ledger.id_search import files_with
from tests.cli.erasing import IMPATIENT, SETTINGS, Command, launch, states
from tests.cli.process import write_config
from tests.kill.erasure_driver import Driver


@contextmanager
def held(driver: Driver, run: Path) -> Iterator[int]:
    """A process that holds the run and never answers anybody; its pid."""
    holder = driver.start(run, task="hold")
    holder.wait_for_output("held", "stdout")
    try:
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()


def test_in_use_is_exit_4_with_the_pid_and_the_request_is_answered_later(
    run: Path, driver: Driver, disavow: Command
) -> None:
    with held(driver, run) as pid:
        result = disavow("erase", run, "client-02", "--wait", "1")
        assert result.returncode == 4
        error = result.stderr.splitlines()[-1]
        assert error.startswith(f"error DSV-208: {run} is in use by process {pid} ")
        assert f"`disavow requests {run}` shows it" in error
        assert states(run) == ["waiting"]
        listed = disavow("requests", run)
        assert "waiting" in listed.stdout
        assert "client-02" in listed.stdout
    result = disavow("resume", run)
    assert result.returncode == 0, result.stderr
    assert "request 1 answered" in result.stderr
    assert states(run) == ["answered"]
    assert files_with(run, "client-02") == []


def test_interrupted_while_it_waits_it_says_who_will_complete_it(run: Path, driver: Driver, tmp_path: Path) -> None:
    with held(driver, run):
        waiting = driver.start("erase", run, "client-02", "--wait", "600", keys=tmp_path / "keys")
        waiting.wait_for_output("the request is placed, waiting")
        os.kill(waiting.pid, signal.SIGINT)
        ended = waiting.wait()
        assert ended.status == 130, ended.stderr
        assert f"`disavow resume {run}` completes the erasure" in ended.stderr
        assert states(run) == ["waiting"]


def test_two_processes_that_ask_for_the_same_client_at_once_get_one_answer(
    run: Path, driver: Driver, tmp_path: Path
) -> None:
    both = [driver.start("erase", run, "client-02", "--json", keys=tmp_path / "keys") for _ in range(2)]
    answers = []
    for ended in [child.wait() for child in both]:
        assert ended.status == 0, ended.stderr
        answers.append(json.loads(ended.stdout)["requests"])
    assert answers[0] == answers[1]
    assert answers[0][0]["number"] == 1
    assert states(run) == ["answered"]
    assert fsck(run) == []


def test_a_run_that_is_being_trained_answers_between_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disavow: Command
) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    endless = {**SETTINGS, "rounds": 100_000}
    run = tmp_path / "run"
    training = launch("train", write_config(tmp_path / "config.toml", endless), "--run", run)
    try:
        assert training.stderr is not None
        assert any(line.startswith(" round") for line in training.stderr)
        openings = tmp_path / "of client-04"
        # from another folder than the training's: the path must not depend on where either was started
        arguments = ("erase", run, "client-04", "--wait", str(IMPATIENT), "--openings", "of client-04")
        result = disavow(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        [request] = json.loads(result.stdout)["requests"]
        assert (request["client"], request["state"], request["verdict"]) == ("client-04", "answered", "deniable")
        assert training.poll() is None
        [opening] = openings.iterdir()
        assert not (tmp_path / "run.openings").exists()
        assert f"for the leaver alone: {Path('of client-04') / opening.name}" in disavow(*arguments).stdout
    finally:
        training.send_signal(signal.SIGINT)
        _, stderr = training.communicate(timeout=IMPATIENT)
    assert training.returncode == 130, stderr
    assert "1 request to be forgotten: deniable" in stderr
    assert "request 1 answered" in stderr
    assert str(opening) in stderr
    assert files_with(run, "of client-04") == []
    with Ledger.open(run) as ledger:
        assert ledger.summaries()[-1].participants == 7
    # an interruption between a model's file and its row leaves the file to the next writer: no fault
    assert [finding for finding in fsck(run) if finding.fault] == []
    assert files_with(run, "client-04") == []
