"""`disavow compare`, run as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from disavow import config
from disavow.errors import (
    ConfigError,
    NeverTookPart,
    RunInUse,
    RunMissing,
    UnknownClient,
    UnknownMethod,
    UnknownRecord,
    UpdatesNotKept,
)
from disavow.federation import Federation
from disavow.ledger import Ledger
from tests.cli.forked import disavow
from tests.cli.process import COMMAND, assert_refused, environment
from tests.ledger.making import files_of

CLIENT = "client-02"
SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "draws": "seeded",
    "data": {"clients": 6, "test_fraction": 0.8},
    "clustering": {"k": 2},
    "deniability": {"x": 1},
    "training": {"epochs": 1, "batch_size": 32},
}
QUICK = ("--quick", "--methods", "retrain,ours")


def make(directory: Path, **changes: Any) -> Path:
    """A complete run."""
    with Federation.create(directory, config.from_values({**SETTINGS, **changes}, source="tests")) as started:
        started.train()
    return directory


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("compare command") / "run")


def test_a_comparison_is_printed_and_written_and_leaves_the_run_alone(run: Path, tmp_path: Path) -> None:
    before = files_of(run)
    done = disavow("compare", run, "--client", CLIENT, *QUICK, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert files_of(run) == before
    assert not run.with_name("run.compare").exists()
    assert "What is left" in done.stdout
    assert "What it cost" in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "table.md",
        "table.csv",
        "compare.json",
        "pareto.svg",
        "pareto.png",
    }
    assert (tmp_path / "out" / "pareto.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert [each["method"] for each in written["methods"]] == ["retrain", "ours"]
    assert (written["seeds"], written["references"], written["clients"]) == (1, 3, 6)


def children_of(process: int) -> list[int]:
    """The processes that a process started."""
    found = Path(f"/proc/{process}/task/{process}/children")
    if not found.exists():
        pytest.skip("this system does not say which processes another one started")
    return [int(each) for each in found.read_text().split()]


def is_running(process: int) -> bool:
    """Whether a process is there, and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_comparison_that_was_killed_goes_on(jobs: str, run: Path, tmp_path: Path) -> None:
    """A real process, killed as soon as the first method is done; its pieces stay and are not made again."""
    work = tmp_path / "work"
    line = ["compare", str(run), "--client", CLIENT, *QUICK, "--json", "--work", str(work), "--jobs", jobs]
    started = subprocess.Popen(
        [*COMMAND, *line], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while started.poll() is None and not list(work.glob("forgotten-*")):
        time.sleep(0.01)
    helpers = children_of(started.pid)
    os.kill(started.pid, signal.SIGKILL)
    started.wait(timeout=60)
    assert helpers or jobs == "1"
    while any(map(is_running, helpers)):  # none outlives the one that it works for
        time.sleep(0.01)
    kept = {path: path.stat().st_mtime_ns for path in work.glob("*.safetensors")}
    assert kept
    done = disavow(*line)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(json.loads(done.stdout)["methods"]) == 2


def test_an_erasure_removes_what_an_interrupted_comparison_left(tmp_path: Path) -> None:
    own = make(tmp_path / "run", rounds=1)
    left = own.with_name("run.compare")
    left.mkdir()
    (left / "training-run-0").mkdir()
    done = disavow("erase", own, CLIENT, "--yes")
    assert done.returncode == 0, done.stderr
    assert not left.exists()


@pytest.mark.parametrize(
    ("arguments", "kind", "named"),
    [
        (["--client", CLIENT, "--methods", "retrian"], UnknownMethod, "retrain"),
        (["--client", CLIENT, "--methods", "federaser"], UpdatesNotKept, "--recompute-updates"),
        (["--client", "nobody"], UnknownClient, "nobody"),
        (["--client", CLIENT, "--references", "2"], ConfigError, "--references"),
        (["--client", CLIENT, "--seeds", "0"], ConfigError, "--seeds"),
        (["--client", CLIENT, "--record", "none"], UnknownRecord, "disavow erase --unchecked"),
        (["--client", CLIENT, "--methods", ","], ConfigError, "--methods"),
        (["--client", CLIENT, "--work", __file__], ConfigError, "--work"),
        (["--client", CLIENT, "--output", __file__], ConfigError, "--output"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: list[str], kind: type[ConfigError], named: str, run: Path
) -> None:
    before = files_of(run)
    assert_refused(disavow("compare", run, *arguments), kind, named)
    assert files_of(run) == before


def test_folders_in_the_run_are_refused(run: Path) -> None:
    for option in ("--work", "--output"):
        done = disavow("compare", run, "--client", CLIENT, *QUICK, option, run / "inside")
        assert_refused(done, ConfigError, option)


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = disavow("compare", run, "--client", CLIENT, *QUICK, "--output", tmp_path / "file" / "out")
    assert_refused(done, ConfigError, "--output")
    assert "comparing" not in done.stderr


def test_a_comparison_whose_figures_cannot_be_written_keeps_its_pieces(run: Path, tmp_path: Path) -> None:
    output, pieces = tmp_path / "out", run.with_name("run.compare")
    (output / "pareto.png").mkdir(parents=True)
    line = ("compare", run, "--client", CLIENT, "--quick", "--methods", "retrain", "--output", output)
    done = disavow(*line)
    assert done.returncode == ConfigError.exit_code
    assert "--output" in done.stderr
    assert list(pieces.glob("measured-*"))
    (output / "pareto.png").rmdir()
    assert disavow(*line).returncode == 0
    assert not pieces.exists()


def test_a_run_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert_refused(disavow("compare", tmp_path / "none", "--client", CLIENT), RunMissing)


def test_a_run_that_is_being_trained_is_refused(run: Path) -> None:
    with Ledger.open(run, write=True):
        before = files_of(run)
        assert_refused(disavow("compare", run, "--client", CLIENT, *QUICK), RunInUse, run)
        assert files_of(run) == before


def test_a_client_that_never_took_part_is_refused(tmp_path: Path) -> None:
    own = make(tmp_path / "run", rounds=1, training={"epochs": 1, "batch_size": 32, "fraction": 0.5})
    with Ledger.open(own) as ledger:
        idle = next(client for client in ledger.clients() if not ledger.rounds_with(client))
    before = files_of(own)
    assert_refused(disavow("compare", own, "--client", idle, *QUICK), NeverTookPart, idle)
    assert files_of(own) == before


def test_a_run_whose_log_is_signed_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    settings, run = tmp_path / "config.toml", tmp_path / "run"
    settings.write_text(config.to_toml(config.from_values(SETTINGS, source="tests")))
    assert disavow("keygen", "--no-passphrase").returncode == 0
    assert disavow("train", settings, "--run", run).returncode == 0
    before = files_of(run)
    done = disavow("compare", run, "--client", CLIENT, "--quick", "--methods", "ours,ours-purged")
    assert done.returncode == 0, done.stderr
    assert files_of(run) == before
