"""Requests by commands: decided, due, registered; models released and superseded; leavers readmitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from disavow.cli.requests import OVERDUE
from disavow.errors import (
    ApprovalAwaited,
    ConfigError,
    DeadlineRefused,
    ForecastChanged,
    NotForgotten,
    RequestNotOpen,
    RunError,
    TextNamesClient,
    UnknownClient,
    UnknownRequest,
)
from disavow.ledger import Ledger
from tests.cli.erasing import Command
from tests.cli.process import assert_refused
from tests.ledger.making import MOMENT

WHO = ("--by", "officer")


@pytest.fixture
def waiting(run: Path) -> Path:
    """A run with two requests that wait, and were asked years ago."""
    with Ledger.open(run, shared=True) as ledger:
        ledger.place_requests(["client-03", "client-05"], at=MOMENT)
    return run


@pytest.fixture
def approving(run: Path) -> Path:
    """A run in which everything has to be approved."""
    path = run / "config.toml"
    text = path.read_text()
    assert 'approval = "never"' in text
    path.write_text(text.replace('approval = "never"', 'approval = "always"'))
    return run


def test_from_the_request_over_its_approval_to_its_answer(approving: Path, disavow: Command) -> None:
    run = approving
    placed = disavow("erase", run, "client-03", *WHO)
    assert (placed.returncode, ApprovalAwaited.code in placed.stderr) == (ApprovalAwaited.exit_code, True)
    assert "unapproved" in disavow("requests", run).stdout
    shown = json.loads(disavow("request", "show", run, "1", "--json").stdout)["request"]
    assert (shown["client"], shown["approval"], shown["state"]) == ("client-03", "awaited", "waiting")
    assert_refused(
        disavow("request", "approve", run, "1", *WHO, "--forecast", "0" * 64), ForecastChanged, "request 1"
    )
    for command, reason in (("pause", "whose is it?"), ("resume", "passport seen"), ("extend", "many at once")):
        assert disavow("request", command, run, "1", *WHO, "--reason", reason).returncode == 0
    approved = disavow("request", "approve", run, "1", *WHO, "--forecast", shown["forecast_digest"], "--json")
    assert json.loads(approved.stdout)["request"]["approval"] == "approved"
    assert disavow("resume", run).returncode == 0
    words = disavow("request", "show", run, "1").stdout
    for each in ("deniable", "officer, whose is it?", "passport seen", "until 20", "answered"):
        assert each in words
    assert disavow("fsck", run).returncode == 0


def test_what_is_overdue_has_an_exit_code_of_its_own(waiting: Path, disavow: Command) -> None:
    found = disavow("due", waiting, waiting, "--json")
    assert found.returncode == OVERDUE
    due = json.loads(found.stdout)["due"]
    assert [(each["request"]["number"], each["overdue"]) for each in due] == [(1, True), (2, True)]
    assert due[0]["days_left"] < 0
    assert "OVERDUE" in disavow("due", waiting).stdout
    status = disavow("status", waiting)
    assert "2 open; 2 overdue" in status.stdout
    for number in ("1", "2"):
        assert disavow("request", "refuse", waiting, number, *WHO, "--reason", "unfounded").returncode == 0
    nothing = disavow("due", waiting, "--within", "7")
    assert (nothing.returncode, nothing.stdout) == (0, "nothing is due\n")


def test_the_register_goes_to_a_file_outside_the_run(waiting: Path, disavow: Command, tmp_path: Path) -> None:
    assert disavow("request", "cancel", waiting, "2", *WHO).returncode == 0
    target = tmp_path / "register.csv"
    assert disavow("register", waiting, "--csv", "-o", target).returncode == 0
    assert [line.split(",")[:2] for line in target.read_text().splitlines()[1:]] == [
        ["1", "client-03"],
        ["2", "client-05"],
    ]
    assert disavow("register", waiting, "--csv").stdout == target.read_text()
    assert len(json.loads(disavow("register", waiting, "--json").stdout)["requests"]) == 2
    assert "cancelled" in disavow("register", waiting).stdout
    assert_refused(disavow("register", waiting, "--csv", "--json"), ConfigError)
    assert_refused(disavow("register", waiting, "-o", waiting / "register.json"), ConfigError)
    assert_refused(disavow("register", waiting, "-o", target), ConfigError, "--force")


def test_releases_are_superseded_by_a_rollback_and_whoever_has_them_is_told(
    run: Path, pair: list[str], disavow: Command, tmp_path: Path
) -> None:
    model = tmp_path / "model.safetensors"
    for name in ("Ministry of Health", "../University"):
        assert disavow("export", run, "-o", model, "--to", name).returncode == 0
    before = json.loads(disavow("releases", run, "--json").stdout)["releases"]
    assert [each["superseded"] for each in before] == [False, False]
    erased = disavow("erase", run, *pair, "--yes")
    assert "2 releases are superseded" in erased.stdout
    assert disavow("export", run, "-o", model, "--to", "Ministry of Health").returncode == ConfigError.exit_code
    assert disavow("export", run, "-o", model, "--to", "Ministry of Health", "--force").returncode == 0
    document = json.loads(disavow("releases", run, "--notices", tmp_path / "notices", "--json").stdout)
    # what could not be written was not recorded as given out
    assert [each["superseded"] for each in document["releases"]] == [True, True, False]
    notices = [Path(path) for path in document["notices"]]
    assert sorted(path.parent for path in notices) == [tmp_path / "notices"] * 2
    texts = "".join(path.read_text() for path in notices)
    assert "To: Ministry of Health" in texts
    assert "To: ../University" in texts
    assert texts.count(before[0]["digest"]) == 2
    assert not any(client in texts for client in pair)
    assert_refused(disavow("releases", run, "--notices", run / "notices"), ConfigError)


def test_somebody_who_was_erased_returns_by_a_decision(run: Path, disavow: Command) -> None:
    again = ("--reason", "consented again", *WHO)
    assert_refused(disavow("readmit", run, "client-03", *again), NotForgotten, "client-03")
    assert_refused(disavow("readmit", run, "nobody", *again), UnknownClient, "nobody")
    assert disavow("erase", run, "client-03").returncode == 0
    assert_refused(disavow("readmit", run, "client-03", "--reason", "client-05 asked", *WHO), TextNamesClient)
    assert disavow("readmit", run, "client-03", *again).returncode == 0
    assert "client-03" in disavow("clients", run).stdout
    assert (disavow("keyring", "check", run).returncode, disavow("fsck", run).returncode) == (0, 0)
    assert disavow("erase", run, "client-03").returncode == 0
    assert disavow("fsck", run, "--absent", "client-03", "--absent", "officer").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (("show", "9"), UnknownRequest),
        (("approve", "0"), UnknownRequest),
        (("resume", "1", "--reason", "why"), RequestNotOpen),
        (("pause", "1", "--reason", " "), ConfigError),
        (("pause", "1", "--reason", "it is client-07"), TextNamesClient),
        (("extend", "1", "--reason", "why"), DeadlineRefused),
        (("extend", "1", "--reason", "why", "--until", "tomorrow"), ConfigError),
        (("extend", "1", "--reason", "why", "--until", "2020-01-01"), DeadlineRefused),
    ],
)
def test_what_cannot_be_done_is_one_line_with_a_code(
    waiting: Path, disavow: Command, arguments: tuple[str, ...], refusal: type[RunError]
) -> None:
    command, number, *more = arguments
    by = () if command == "show" else WHO
    assert_refused(disavow("request", command, waiting, number, *more, *by), refusal)
    with Ledger.open(waiting) as ledger:
        assert [len(request.history) for request in ledger.requests()] == [1, 1]
