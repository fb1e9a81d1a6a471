"""`disavow audit`, run as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from disavow import config
from disavow.audit.attackers import ATTACKERS
from disavow.audit.audit import Effort, worlds_to_detect
from disavow.cli import audit as command
from disavow.cli.app import app
from disavow.cli.audit import COULD_NOT_SEE
from disavow.federation import Federation
from disavow.ledger import Ledger
from tests.cli import process
from tests.cli.forked import disavow
from tests.cli.process import COMMAND, environment, only_error
from tests.ledger.making import files_of

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "draws": "seeded",
    "data": {"clients": 8, "test_fraction": 0.8},
    "clustering": {"k": 3},
    "deniability": {"x": 3},
    "training": {"epochs": 1, "batch_size": 32},
}
"""Clusters of three and five: whoever leaves the small one takes it below x."""

QUICK = ("--worlds=32", "--shadows=4", "--forgings=2")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("audit command") / "run"
    with Federation.create(directory, config.from_values(SETTINGS, source="tests")) as started:
        started.train()
    return directory


@pytest.fixture(scope="module")
def client(run: Path) -> str:
    """Somebody in the small cluster of the last round."""
    with Ledger.open(run) as ledger:
        return min(ledger.membership(2), key=len)[0]


def test_an_audit_reports_three_models_for_each_attacker_and_leaves_the_run_alone(
    run: Path, client: str, tmp_path: Path
) -> None:
    before = files_of(run)
    plot = tmp_path / "roc.png"
    done = process.disavow("audit", run, "--client", client, *QUICK, "--plot", plot)
    assert done.returncode in (0, 1), done.stderr
    text = done.stdout
    for stage in ("before", "served", "retrained"):
        assert stage in text
    assert "what releasing both models gives away" in text
    assert "whole histories of the survivors alone, 16 exact retrainings" in text
    for attacker in ATTACKERS:
        assert sum(line.startswith(attacker) for line in text.splitlines()) >= 3
    assert "TPR at 1 % FPR" in text
    assert "it needs 1,000" in text
    assert "updates, computed again, are bit for bit those the ledger recorded" in text
    assert ("does not contain 0" in text) == (done.returncode == 1)
    assert all(len(line) <= 116 for line in text.split("\n\n")[1].splitlines())
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert files_of(run) == before
    assert not run.with_name("run.audit").exists()


@pytest.fixture(scope="module")
def told(run: Path, client: str) -> dict[str, Any]:
    """An audit that is asked for more than its worlds can show, and finds nothing."""
    done = disavow("audit", run, "--client", client, *QUICK, "--detect=0.2", "--json")
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["clean"]
    assert done.returncode == COULD_NOT_SEE == 16
    assert f"an advantage of 0.2 takes {report['detect']['worlds_needed']} worlds" in done.stderr
    return report


def test_json_holds_everything(told: dict[str, Any], client: str) -> None:
    assert told["client"] == client
    assert told["rehearsed"]["verdict"] == "rollback to round 1"
    assert told["rehearsed"]["moved"] > 0
    assert [attacker["attacker"] for attacker in told["attackers"]] == list(ATTACKERS)
    for attacker in told["attackers"]:
        assert set(attacker["stages"]) == {"before", "served", "retrained"}
        for attacked in attacker["stages"].values():
            assert attacked["auc"]["interval"]["low"] <= attacked["auc"]["estimate"] <= 1
            assert attacked["tpr"]["0.001"]["reason"]
            assert attacked["present"]
            assert attacked["absent"]
        difference = attacker["served_minus_retrained"]
        low, high = difference["interval"]["low"], difference["interval"]["high"]
        assert low < high
        assert difference["contains_zero"] == (low <= 0 <= high)
    assert told["clean"] == all(each["served_minus_retrained"]["contains_zero"] for each in told["attackers"])
    given = told["given_away"]
    assert given["attacker"] == "before and after"
    assert (given["clients"], given["pairs"], set(given["stages"])) == (8, 16, {"served", "retrained"})
    assert 1 <= given["rank"] <= 8
    assert len(told["histories"]["alike"]) == 3
    assert told["histories"]["retrainings"] == 16
    assert told["detect"]["advantage"] == 0.2
    assert told["detect"]["power"] < 0.5
    assert told["detect"]["worlds_needed"] > 200
    assert told["could_not_have_seen_it"]
    assert len(told["forged"]["rounds"]) == 2
    assert all(each["within"] for each in told["forged"]["rounds"])


@pytest.mark.parametrize(
    ("given", "worlds", "detect"),
    [
        ([], 64, None),
        (["--detect", "0.2"], worlds_to_detect(0.2), 0.2),
        (["--detect", "0.5"], worlds_to_detect(0.5), 0.5),
        (["--detect", "0.2", "--worlds", "48"], 48, 0.2),
        (["--worlds", "48"], 48, None),
    ],
)
def test_what_is_to_be_detected_chooses_the_number_of_worlds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: list[str], worlds: int, detect: float | None
) -> None:
    asked: list[Effort] = []
    monkeypatch.setattr(command, "audit_client", lambda run, client, effort, **more: asked.append(effort))
    result = CliRunner().invoke(app, ["audit", str(tmp_path), "--client", "ada", *given])
    assert result.exit_code == 0, result.output
    assert [(effort.worlds, effort.detect) for effort in asked] == [(worlds, detect)]


def _kept_worlds(work: Path) -> list[Path]:
    """Worlds that are finished. Folders come and go while the audit works, under whoever looks through them."""
    try:
        return list(work.rglob("with-*.json"))
    except FileNotFoundError:
        return []


@pytest.mark.kill
def test_an_interrupted_audit_goes_on_and_comes_to_the_same(
    run: Path, client: str, told: dict[str, Any], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    line = [*COMMAND, "audit", str(run), "--client", client, *QUICK, "--json", "--work", str(work)]
    process = subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not _kept_worlds(work):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command goes on" in err
    kept = {path.name: path.stat().st_mtime_ns for path in work.rglob("*.json")}
    assert kept
    assert not list(work.rglob("rehearsal"))
    resumed = disavow("audit", run, "--client", client, *QUICK, "--json", "--work", work)
    assert json.loads(resumed.stdout)["attackers"] == told["attackers"]
    assert not list(work.iterdir())


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (["--client", "nobody"], 7, "'nobody' is not a client of this run, or has left it"),
        (["--client", "CLIENT", "--worlds", "31"], 2, "--worlds is 31; allowed: an even number of at least 32"),
        (["--client", "CLIENT", "--detect", "0"], 2, "--detect is 0; allowed: an advantage above 0 and below 1"),
        (["--client", "CLIENT", "--detect", "0.005"], 2, "--detect is 0.005; allowed: at least 0.009"),
        (["--client", "CLIENT", "--shadows", "2"], 2, "--shadows is 2; allowed: an even number of at least 4"),
        (["--client", "CLIENT", "--forgings", "0"], 2, "--forgings is 0; allowed: a whole number of at least 1"),
        (["--client", "CLIENT", "--plot", "roc.txt"], 2, "--plot is roc.txt; allowed: a file name that ends in"),
        (["--client", "CLIENT", "--plot", "no/roc.png"], 2, "--plot is no/roc.png; allowed: a file in a directory"),
        (["--client", "CLIENT", "--work", "RUN/work"], 2, "allowed: a folder outside the run directory"),
    ],
)
def test_what_cannot_be_audited_is_refused_at_once(
    run: Path, client: str, line: list[str], code: int, words: str
) -> None:
    filled = [part.replace("CLIENT", client).replace("RUN", str(run)) for part in line]
    done = disavow("audit", run, *filled)
    assert done.returncode == code
    assert words in only_error(done)


def test_an_erasure_removes_what_an_interrupted_audit_left_and_its_client_cannot_be_audited(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with Federation.create(directory, config.from_values(SETTINGS, source="tests")) as started:
        started.train()
    left = tmp_path / "run.audit" / "0123456789abcdef" / "2-rounds"
    left.mkdir(parents=True)
    (left / "with-000.json").write_text("{}")
    done = process.disavow("erase", directory, "client-01", "--yes")
    assert done.returncode == 0, done.stderr
    assert "which an interrupted audit left" in done.stderr
    assert not (tmp_path / "run.audit").exists()
    done = disavow("audit", directory, "--client", "client-01")
    assert done.returncode == 7
    assert "has left it" in only_error(done)


def test_no_run_no_audit(tmp_path: Path) -> None:
    done = disavow("audit", tmp_path / "none", "--client", "client-01")
    assert done.returncode == 2
    assert "holds no run" in only_error(done)
