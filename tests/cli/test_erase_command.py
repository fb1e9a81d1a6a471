"""`disavow erase`, `disavow requests` and `disavow fsck --absent`, run as a person runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from disavow import config
from disavow.domain import TrainedBy
from disavow.erasure.proof_files import default_openings
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from disavow.ledger.database import NAME
from disavow.ledger.id_search import files_with
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from disavow.rounds.options import now
from tests.cli.process import COMMAND, environment, only_error, write_config
from tests.data.making import write
from tests.kill.erasure_driver import Driver
from tests.ledger.making import files_of

SETTINGS: dict[str, Any] = {
    "seed": 5,
    "rounds": 3,
    "draws": "seeded",
    "data": {"clients": 8},
    "model": {"name": "lenet5"},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3},
    "deniability": {"x": 2},
}
"""Two sticky clusters: anybody is deniable, and two of one cluster go back to round 1."""

IMPATIENT = 60


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("erase command") / "run"
    with Federation.create(directory, config.from_values(SETTINGS, source="tests")) as run:
        run.train()
    return directory


class Command(Protocol):
    """Runs a command to its end, in a process of its own; `limit` is as on a full disk: no file may grow beyond."""

    def __call__(
        self, *arguments: str | Path, keys: Path | None = None, limit: int | None = None
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def disavow(driver: Driver, tmp_path: Path) -> Command:
    def run_it(
        *arguments: str | Path, keys: Path | None = None, limit: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        ended = driver.run(*arguments, keys=keys or tmp_path / "keys", cwd=tmp_path, limit=limit)
        return subprocess.CompletedProcess(arguments, ended.status, ended.stdout, ended.stderr)

    return run_it


@pytest.fixture
def run(trained_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    return Path(shutil.copytree(trained_once, tmp_path / "run"))


@pytest.fixture
def pair(run: Path) -> list[str]:
    """Two clients of one cluster of four or three, of whom too few are left when both go."""
    with Ledger.open(run) as ledger:
        smallest = min(ledger.membership(1), key=len)
    return sorted(smallest)[: len(smallest) - 1]


def launch(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )


def states(run: Path) -> list[str]:
    with Ledger.open(run) as ledger:
        return [request.state.value for request in ledger.requests()]


def models(run: Path) -> list[tuple[int, int, str]]:
    with Ledger.open(run) as ledger:
        return [(s.number, s.attempt, s.after) for s in ledger.summaries() if s.standing]


def contents(run: Path) -> dict[str, bytes]:
    """What a command that changes nothing leaves alone: all but the lock, which says who came last."""
    return {name: data for name, data in files_of(run).items() if name != "lock"}


# -- answers -----------------------------------------------------------------------------------------------------


def test_a_dry_run_says_what_it_costs_and_changes_no_byte(run: Path, pair: list[str], disavow: Command) -> None:
    before = contents(run)
    words = disavow("erase", run, "client-01", "--dry-run")
    assert (words.returncode, words.stderr) == (0, "")
    assert words.stdout == (
        "client-01: deniable; the answer is immediate and the model stays\nNothing was changed.\n"
    )
    data = disavow("erase", run, *pair, "--dry-run", "--json")
    assert (data.returncode, data.stderr) == (0, "")
    told = json.loads(data.stdout)
    left = 8 - len(pair)
    seconds = told["cost"].pop("seconds")
    assert seconds > 0
    assert told == {
        "run": str(run),
        "dry_run": True,
        "clients": pair,
        "verdict": "rollback",
        "first_broken_round": 1,
        "rollback_to_round": 1,
        "mechanism": "retrain",
        "approximate": False,
        "cost": {
            "rounds": 3,
            "client_epochs": 3 * left,
            "exchanged_bytes": told["cost"]["exchanged_bytes"],
        },
        "served_round": 3,
        "obstacle": None,
        "cannot_retrain": None,
        "proof_too_large": None,
    }
    assert told["cost"]["exchanged_bytes"] % (2 * 3 * left * 4) == 0
    assert contents(run) == before
    # asking makes the key of the tombstones; asking what it would cost does not
    assert not (run.parent / "keys").exists()


def test_a_deniable_request_is_answered_in_a_sentence_and_asking_twice_repeats_it(
    run: Path, disavow: Command
) -> None:
    served = models(run)
    first = disavow("erase", run, "client-03")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("client-03: request 1: deniable; answered 20")
    assert first.stdout.splitlines()[0].endswith(" UTC")
    assert "proof: not signed, there is no key" in first.stdout.splitlines()[1]
    second = disavow("erase", run, "client-03", "client-03")
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert models(run) == served
    assert files_with(run, "client-03") == []
    listed = disavow("requests", run)
    assert listed.returncode == 0
    assert "(erased)" in listed.stdout
    assert "client-03" not in listed.stdout
    clean = disavow("fsck", run, "--absent", "client-03")
    assert clean.returncode == 0
    assert f"'client-03' is in no file of {run}" in clean.stdout
    [opening] = default_openings(run).iterdir()
    assert f"note: {opening}: " in clean.stdout
    assert str(opening) not in disavow("fsck", run, "--absent", "client-0").stdout  # another id that it contains
    opening.unlink()
    assert str(opening) not in disavow("fsck", run, "--absent", "client-03").stdout


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_openings_that_are_no_folder_are_refused_before_anything_is_placed(
    run: Path, kind: str, disavow: Command
) -> None:
    openings = default_openings(run)
    openings.touch() if kind == "file" else openings.symlink_to("nowhere")
    assert disavow("erase", run, "client-03").returncode == 2
    assert states(run) == []
    openings.unlink()
    assert disavow("erase", run, "client-03").returncode == 0


@pytest.mark.parametrize("kind", ["fifo", "link", "empty payload"])
def test_a_proof_that_is_none_does_not_change_an_answer(run: Path, kind: str, disavow: Command) -> None:
    assert disavow("erase", run, "client-03").returncode == 0
    [proof] = (run / "proofs").iterdir()
    proof.unlink()
    if kind == "fifo":
        os.mkfifo(proof)
    elif kind == "link":
        proof.symlink_to("/etc/passwd")
    else:
        proof.write_bytes(b"{}")
    assert disavow("erase", run, "client-03").returncode == 0
    assert disavow("fsck", run).returncode == 1


def test_a_rollback_is_answered_in_json_and_listed_so(run: Path, pair: list[str], disavow: Command) -> None:
    result = disavow("erase", run, *pair, "--yes", "--json")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["run"] == str(run)
    assert [one["client"] for one in told["requests"]] == pair
    for number, one in enumerate(told["requests"], start=1):
        assert (one["number"], one["state"], one["verdict"], one["first_broken_round"], one["remark"]) == (
            number,
            "answered",
            "rollback",
            1,
            "",
        )
        assert one["cost"]["rounds"] == 3
        assert one["cost"]["client_epochs"] == 3 * (8 - len(pair))
        assert one["seconds_taken"] >= 0
    assert "rollback to round 1" in result.stderr
    assert [(number, attempt) for number, attempt, _ in models(run)] == [(1, 2), (2, 2), (3, 2)]
    data = disavow("requests", run, "--json")
    listed = json.loads(data.stdout)["requests"]
    # no round that stands shows them
    assert [(one.pop("noise"), one.pop("summary")["rounds"]) for one in told["requests"]] == [(None, 0), (None, 0)]
    assert [{**one, "client": None} for one in told["requests"]] == listed
    clean = disavow("fsck", run, *(word for client in pair for word in ("--absent", client)), "--json")
    told = json.loads(clean.stdout)
    assert (clean.returncode, told["run"], told["clean"]) == (0, str(run), True)
    # only their openings name them still, beside the run: that is noted, each with whom it names
    beside = {str(path) for path in default_openings(run).iterdir()}
    assert {finding["where"] for finding in told["findings"]} == beside
    assert len(told["findings"]) == len(pair)
    assert not any(finding["fault"] for finding in told["findings"])


def test_no_requests(run: Path, disavow: Command) -> None:
    words, data = disavow("requests", run), disavow("requests", run, "--json")
    assert (words.returncode, words.stdout, data.returncode) == (0, "no requests\n", 0)
    assert json.loads(data.stdout) == {"run": str(run), "requests": []}


def test_a_client_who_never_took_part(run: Path, disavow: Command) -> None:
    with Federation.open(run, write=True) as opened:
        opened.ledger.register(["newcomer"], key=opened.tombstone_key())
    result = disavow("erase", run, "newcomer")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("newcomer: request 1: never present; answered ")
    assert files_with(run, "newcomer") == []


def test_too_few_to_retrain_is_said_first_and_afterwards(run: Path, disavow: Command) -> None:
    everyone = [f"client-0{i}" for i in range(1, 7)]
    first = disavow("erase", run, *everyone, "--dry-run")
    assert "rollback to round 1; it cannot be retrained (2 participants are left, fewer than k = 3)" in first.stdout
    assert "the initial model is served" in first.stdout
    result = disavow("erase", run, *everyone, "--yes")
    assert result.returncode == 0, result.stderr
    remark = "not retrained: 2 participants are left, fewer than k = 3; the initial model is served"
    assert [remark in line for line in result.stdout.splitlines()[:12:2]] == [True] * 6
    assert "export it again" in result.stdout.splitlines()[-1]
    assert models(run) == []
    assert fsck(run) == []


@pytest.mark.parametrize("client", ["[/b]", "[bold]somebody", "[red]"])
def test_an_id_that_looks_like_markup_is_an_id(run: Path, client: str, disavow: Command) -> None:
    with Federation.open(run, write=True) as opened:
        opened.ledger.register([client], key=opened.tombstone_key())
        opened.ledger.place_requests([client], key=opened.tombstone_key(), at=now())
    for arguments in ([client, "--dry-run"], [], [client]):
        result = disavow("erase" if arguments else "requests", run, *arguments)
        assert (result.returncode, client in result.stdout) == (0, True), (arguments, result.stdout, result.stderr)


# -- refusals ----------------------------------------------------------------------------------------------------


def test_an_unknown_client_is_exit_7_and_then_nobody_is_placed(run: Path, disavow: Command) -> None:
    for more in ([], ["--dry-run"]):
        result = disavow("erase", run, "client-01", "nobody", *more)
        assert result.returncode == 7
        assert only_error(result).startswith("error: 'nobody' is not a client of this run")
    assert states(run) == []


def test_an_id_that_is_no_text_is_exit_7_like_any_other_unknown_one(run: Path, disavow: Command) -> None:
    """Bytes that are no UTF-8 reach a program as lone surrogates."""
    result = disavow("erase", run, b"\xff\xfe".decode(errors="surrogateescape"))
    assert result.returncode == 7, result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert states(run) == []


def test_nobody_named_is_exit_2(run: Path, disavow: Command) -> None:
    result = disavow("erase", run)
    assert result.returncode == 2
    assert "CLIENT" in result.stderr
    assert states(run) == []


def test_no_run_is_exit_2_and_none_comes_into_being(tmp_path: Path, disavow: Command) -> None:
    for result in (disavow("erase", tmp_path / "no", "client-01"), disavow("requests", tmp_path / "no")):
        assert result.returncode == 2
        assert "holds no run" in only_error(result)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_run_is_exit_1_and_nothing_is_changed(run: Path, disavow: Command) -> None:
    victim = sorted((run / "models").iterdir())[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    before = contents(run)
    result = disavow("erase", run, "client-01", "--check")
    assert result.returncode == 1
    message = only_error(result)
    assert victim.name[:12] in message
    assert "restore it from a backup first, nothing was changed" in message
    assert contents(run) == before


def test_a_wrong_passphrase_is_exit_2_and_nobody_is_placed(
    run: Path, disavow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(run.parent / "keys", name="tests", passphrase="right", at=time_to_text(now()))
    monkeypatch.setenv("DISAVOW_PASSPHRASE", "wrong")
    result = disavow("erase", run, "client-01")
    assert result.returncode == 2
    assert "passphrase" in only_error(result)
    assert states(run) == []


def test_a_rollback_whose_data_is_gone_is_exit_10_and_deniable_ones_are_answered_all_the_same(
    tmp_path: Path, disavow: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    data = write(tmp_path / "data")
    settings = {**SETTINGS, "rounds": 1, "data": {"name": "mnist", "clients": 8, "dir": str(data)}}
    run = tmp_path / "run"
    with Federation.create(run, config.from_values(settings, source="tests")) as started:
        started.train()
        smaller, larger = sorted((sorted(group) for group in started.ledger.membership(1)), key=len)
    shutil.rmtree(data)
    answered = disavow("erase", run, larger[0])
    assert answered.returncode == 0, answered.stderr
    before = models(run)
    result = disavow("erase", run, *smaller[:-1], "--yes", "--json")
    assert result.returncode == 10
    told = {one["client"]: one["state"] for one in json.loads(result.stdout)["requests"]}
    assert told == {**dict.fromkeys(smaller[:-2], "answered"), smaller[-2]: "waiting"}
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"error DSV-302: {smaller[-2]}: ")
    assert str(data) in error
    assert models(run) == before
    assert fsck(run) == []


def test_a_run_of_own_code_is_never_retrained_on_something_else(
    run: Path, pair: list[str], disavow: Command
) -> None:
    """As `Ledger.create` records it; what trained it is not what config.toml says."""
    with closing(sqlite3.connect(run / NAME)) as connection, connection:
        connection.execute("UPDATE run SET trainer = ?", (TrainedBy("python").to_json(),))
    before = models(run)
    foretold = disavow("erase", run, *pair, "--dry-run")
    assert foretold.returncode == 0
    assert "cannot be trained here" in foretold.stdout
    assert json.loads(disavow("erase", run, *pair, "--dry-run", "--json").stdout)["cannot_retrain"]
    for refused in (disavow("erase", run, *pair, "--yes"), disavow("resume", run)):
        assert refused.returncode == 10, refused.stderr
        assert "docs/erasure.md" in refused.stderr.splitlines()[-1]
    assert models(run) == before
    assert states(run)[-1] == "waiting"
    assert disavow("audit", run, "--client", pair[-1]).returncode != 0
    dropped = disavow("erase", run, pair[-1], "--yes", "--without-retraining")
    assert dropped.returncode == 0, dropped.stderr
    assert "not retrained: retraining was declined; the initial model is served" in dropped.stdout
    assert models(run) == []
    assert states(run) == ["answered"] * len(pair)


def test_another_key_is_exit_1_and_says_where_to_look(run: Path, disavow: Command) -> None:
    assert disavow("erase", run, "client-01").returncode == 0
    result = disavow("erase", run, "client-02", keys=run.parent / "other keys")
    assert result.returncode == 1
    assert "another key: point DISAVOW_KEYS to the folder that holds it" in only_error(result)
    assert states(run) == ["answered"]


def test_keys_inside_the_run_are_exit_2(run: Path, disavow: Command) -> None:
    result = disavow("erase", run, "client-01", keys=run / "keys")
    assert result.returncode == 2
    assert "allowed: a folder outside the run directory" in only_error(result)
    assert not (run / "keys").exists()


def test_an_older_format_is_not_taken_for_damage(run: Path, disavow: Command) -> None:
    with closing(sqlite3.connect(run / NAME)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
        connection.commit()
    result = disavow("erase", run, "client-01")
    assert result.returncode == 6, result.stderr
    assert "0001" in only_error(result)


# -- another process holds the run -------------------------------------------------------------------------------


@contextmanager
def held(driver: Driver, run: Path) -> Iterator[int]:
    """A process that holds the run and never answers anybody; its pid."""
    holder = driver.start(run, task="hold")
    holder.wait_until_told("held", "stdout")
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
        waiting.wait_until_told("the request is placed, waiting")
        os.kill(waiting.pid, signal.SIGINT)
        ended = waiting.wait()
        assert ended.status == 130, ended.stderr
        assert f"`disavow resume {run}` completes the erasure" in ended.stderr
        assert states(run) == ["waiting"]


def test_two_processes_that_ask_for_the_same_client_at_once_get_one_answer(
    run: Path, driver: Driver, tmp_path: Path
) -> None:
    both = [driver.start("erase", run, "client-02", "--json", keys=tmp_path / "keys") for _ in range(2)]
    told = []
    for ended in [child.wait() for child in both]:
        assert ended.status == 0, ended.stderr
        told.append(json.loads(ended.stdout)["requests"])
    assert told[0] == told[1]
    assert told[0][0]["number"] == 1
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
        asked = ("erase", run, "client-04", "--wait", str(IMPATIENT), "--openings", "of client-04")
        result = disavow(*asked, "--json")
        assert result.returncode == 0, result.stderr
        [request] = json.loads(result.stdout)["requests"]
        assert (request["client"], request["state"], request["verdict"]) == ("client-04", "answered", "deniable")
        assert training.poll() is None
        [opening] = openings.iterdir()
        assert not (tmp_path / "run.openings").exists()
        assert f"for the leaver alone: {Path('of client-04') / opening.name}" in disavow(*asked).stdout
    finally:
        training.send_signal(signal.SIGINT)
        _, told = training.communicate(timeout=IMPATIENT)
    assert training.returncode == 130, told
    assert "1 request to be forgotten: deniable" in told
    assert "request 1 answered" in told
    assert str(opening) in told
    assert files_with(run, "of client-04") == []
    with Ledger.open(run) as ledger:
        assert ledger.summaries()[-1].participants == 7
    # an interruption between a model's file and its row leaves the file to the next writer: no fault
    assert [finding for finding in fsck(run) if finding.fault] == []
    assert files_with(run, "client-04") == []


# -- a disk that refuses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rollback", "limit"),
    [
        (True, 40_000),  # too small for a model
        (True, 100_000),  # too small for the log of a rebuild
        (False, 100_000),  # too small for the ledger file: the deletion cannot be moved into it
    ],
)
def test_files_that_may_not_grow_are_exit_14_and_resume_completes_what_they_stopped(
    run: Path, pair: list[str], rollback: bool, limit: int, disavow: Command
) -> None:
    assert (run / NAME).stat().st_size > limit
    leavers: Sequence[str] = pair if rollback else pair[:1]
    result = disavow("erase", run, *leavers, "--yes", limit=limit)  # a limit of the system, not a full disk
    assert result.returncode == 14, result.stderr
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"error DSV-701: {run} cannot be read or written: ")
    assert f"`disavow resume {run}` goes on" in error
    assert "make room" not in error
    assert "Traceback" not in result.stderr
    assert [str(finding) for finding in fsck(run) if finding.fault] == []
    assert len(states(run)) == len(leavers)
    assert "answered" not in states(run)
    result = disavow("resume", run)
    assert result.returncode == 0, result.stderr
    assert states(run) == ["answered"] * len(leavers)
    assert [(number, attempt) for number, attempt, _ in models(run)] == [(n, 1 + rollback) for n in (1, 2, 3)]
    assert fsck(run) == []
    for client in leavers:
        assert files_with(run, client) == []
