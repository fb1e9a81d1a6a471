"""`disavow audit`, run as a person runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.audit_table import table
from disavow import config
from disavow.audit.attackers import ATTACKERS
from disavow.audit.audit import Effort, worlds_to_detect
from disavow.cli import audit as command
from disavow.cli.app import app
from disavow.cli.audit import COULD_NOT_SEE
from disavow.errors import ConfigError, DisavowError, RunMissing, UnknownClient
from disavow.federation import Federation
from disavow.ledger import Ledger
from tests.cli.forked import disavow
from tests.cli.process import COMMAND, assert_refused, environment
from tests.ledger.making import files_of

SETTINGS: dict[str, Any] = {
    "rounds": 1,
    "draws": "seeded",
    "data": {"clients": 8, "test_fraction": 0.8},
    "clustering": {"k": 3},
    "deniability": {"x": 3},
    "training": {"epochs": 1, "batch_size": 32},
}
"""Clusters of three and five: whoever leaves the small one takes it below x."""

QUICK = ("--worlds=32", "--shadows=4", "--forgings=2")
STAGES = ("before", "served", "retrained")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("audit command") / "run"
    with Federation.create(directory, config.from_values(SETTINGS, source="tests")) as started:
        started.train()
    return directory


@pytest.fixture(scope="module")
def client(run: Path) -> str:
    """Somebody in the small cluster."""
    with Ledger.open(run) as ledger:
        return min(ledger.membership(1), key=len)[0]


@dataclass(frozen=True)
class Resumed:
    """An audit that was interrupted, what was left then, and what it came to when it went on."""

    status: int
    stderr: str
    kept: set[str]
    report: dict[str, Any]
    ended: subprocess.CompletedProcess[str]
    work: Path


@pytest.fixture(scope="module")
def resumed(run: Path, client: str, tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    """An audit that is asked for more than its worlds can show, and finds nothing."""
    work = tmp_path_factory.mktemp("audit work") / "work"
    line = ["audit", str(run), "--client", client, *QUICK, "--detect=0.2", "--json", "--work", str(work)]
    started = subprocess.Popen(
        [*COMMAND, *line], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while started.poll() is None and not _kept_worlds(work):
        time.sleep(0.01)
    os.kill(started.pid, signal.SIGINT)
    _, err = started.communicate(timeout=60)
    kept = {path.name for path in work.rglob("*.json")}
    assert not list(work.rglob("rehearsal"))
    done = disavow(*line)
    return Resumed(started.returncode, err, kept, json.loads(done.stdout), done, work)


def _kept_worlds(work: Path) -> list[Path]:
    """Worlds that are finished. Folders come and go while the audit works, under whoever looks through them."""
    try:
        return list(work.rglob("with-*.json"))
    except FileNotFoundError:
        return []


@pytest.fixture(scope="module")
def document(resumed: Resumed) -> dict[str, Any]:
    return resumed.report


@pytest.fixture(scope="module")
def shown(run: Path, client: str, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The same audit in words, which nobody interrupts."""
    before = files_of(run)
    plot = tmp_path_factory.mktemp("audit plot") / "roc.png"
    done = disavow("audit", run, "--client", client, *QUICK, "--plot", plot)
    assert done.returncode in (0, 1), done.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert files_of(run) == before
    assert not run.with_name("run.audit").exists()
    return done


def test_an_audit_reports_three_models_for_each_attacker_and_leaves_the_run_alone(
    shown: subprocess.CompletedProcess[str],
) -> None:
    text = shown.stdout
    for stage in STAGES:
        assert stage in text
    assert "what releasing both models gives away" in text
    assert "whole histories of the survivors alone, 16 exact retrainings" in text
    for attacker in ATTACKERS:
        assert sum(line.startswith(attacker) for line in text.splitlines()) >= 3
    assert "TPR at 1 % FPR" in text
    assert "it needs 1,000" in text
    assert "updates, computed again, are bit for bit those the ledger recorded" in text
    assert ("does not contain 0" in text) == (shown.returncode == 1)
    assert all(len(line) <= 116 for line in text.split("\n\n")[1].splitlines())


def test_more_is_asked_than_its_worlds_can_show(resumed: Resumed) -> None:
    assert resumed.report["clean"]
    assert resumed.ended.returncode == COULD_NOT_SEE == 16
    assert f"an advantage of 0.2 takes {resumed.report['detect']['worlds_needed']} worlds" in resumed.ended.stderr


@pytest.mark.kill
def test_an_interrupted_audit_goes_on_and_comes_to_the_same(
    resumed: Resumed, shown: subprocess.CompletedProcess[str]
) -> None:
    assert resumed.status == 130, resumed.stderr
    assert "the same command goes on" in resumed.stderr
    assert resumed.kept
    assert not list(resumed.work.iterdir())
    for attacker in resumed.report["attackers"]:
        cells = [attacker["stages"][stage]["auc"] for stage in STAGES]
        row = "".join(
            f"{c['estimate']:.2f} [{c['interval']['low']:.2f}, {c['interval']['high']:.2f}]".rjust(20)
            for c in cells
        )
        assert f"{attacker['attacker']}, {attacker['unit']}s".ljust(24) + row in shown.stdout


def test_json_holds_everything(document: dict[str, Any], client: str) -> None:
    assert document["client"] == client
    assert document["rehearsed"]["verdict"] == "rollback to round 1"
    assert document["rehearsed"]["moved"] > 0
    assert [attacker["attacker"] for attacker in document["attackers"]] == list(ATTACKERS)
    for attacker in document["attackers"]:
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
    assert document["clean"] == all(
        each["served_minus_retrained"]["contains_zero"] for each in document["attackers"]
    )
    given = document["given_away"]
    assert given["attacker"] == "before and after"
    assert (given["clients"], given["pairs"], set(given["stages"])) == (8, 16, {"served", "retrained"})
    assert 1 <= given["rank"] <= 8
    assert len(document["histories"]["alike"]) == 3
    assert document["histories"]["retrainings"] == 16
    assert document["detect"]["advantage"] == 0.2
    assert document["detect"]["power"] < 0.5
    assert document["detect"]["worlds_needed"] > 200
    assert document["could_not_have_seen_it"]
    assert len(document["forged"]["rounds"]) == 1
    assert all(each["within"] for each in document["forged"]["rounds"])


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
    efforts: list[Effort] = []
    monkeypatch.setattr(command, "audit_client", lambda run, client, effort, **more: efforts.append(effort))
    result = CliRunner().invoke(app, ["audit", str(tmp_path), "--client", "ada", *given])
    assert result.exit_code == 0, result.output
    assert [(effort.worlds, effort.detect) for effort in efforts] == [(worlds, detect)]


@pytest.mark.parametrize(
    ("line", "kind", "named"),
    [
        (["--client", "nobody"], UnknownClient, ["nobody"]),
        (["--client", "CLIENT", "--worlds", "31"], ConfigError, ["--worlds is 31"]),
        (["--client", "CLIENT", "--detect", "0"], ConfigError, ["--detect is 0"]),
        (["--client", "CLIENT", "--detect", "0.005"], ConfigError, ["--detect is 0.005", "0.009"]),
        (["--client", "CLIENT", "--shadows", "2"], ConfigError, ["--shadows is 2"]),
        (["--client", "CLIENT", "--forgings", "0"], ConfigError, ["--forgings is 0"]),
        (["--client", "CLIENT", "--plot", "roc.txt"], ConfigError, ["--plot is roc.txt"]),
        (["--client", "CLIENT", "--plot", "no/roc.png"], ConfigError, ["--plot is no/roc.png"]),
        (["--client", "CLIENT", "--work", "RUN/work"], ConfigError, ["--work is RUN/work"]),
    ],
    ids=["nobody", "worlds", "detect 0", "too little", "shadows", "forgings", "suffix", "no folder", "inside"],
)
def test_what_cannot_be_audited_is_refused_at_once(
    run: Path, client: str, line: list[str], kind: type[DisavowError], named: list[str]
) -> None:
    filled, expected = (
        [part.replace("CLIENT", client).replace("RUN", str(run)) for part in parts] for parts in (line, named)
    )
    assert_refused(disavow("audit", run, *filled), kind, *expected)


def test_an_erasure_removes_what_an_interrupted_audit_left_and_its_client_cannot_be_audited(
    run: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(run, tmp_path / "run"))
    left = tmp_path / "run.audit" / "0123456789abcdef" / "2-rounds"
    left.mkdir(parents=True)
    (left / "with-000.json").write_text("{}")
    done = disavow("erase", directory, "client-01", "--yes")
    assert done.returncode == 0, done.stderr
    assert "run.audit" in done.stderr
    assert not (tmp_path / "run.audit").exists()
    assert_refused(disavow("audit", directory, "--client", "client-01"), UnknownClient, "client-01")


def test_no_run_no_audit(tmp_path: Path) -> None:
    assert_refused(disavow("audit", tmp_path / "none", "--client", "client-01"), RunMissing, tmp_path / "none")


def test_a_purge_is_audited_beside_the_answer_before_it(run: Path, tmp_path: Path) -> None:
    """Somebody in the large cluster is deniable: the model stays until the purge, which retrains all of it."""
    with Ledger.open(run) as ledger:
        deniable = max(ledger.membership(1), key=len)[0]
    before = files_of(run)
    plot = tmp_path / "roc.svg"
    done = disavow("audit", run, "--client", deniable, *QUICK, "--purge", "--json", "--plot", plot)
    assert done.returncode in (0, 1), done.stderr
    assert files_of(run) == before
    assert "answered: AUC" in plot.read_text()
    document = json.loads(done.stdout)
    assert (document["purged"], document["effort"]["purge"], document["verdicts"]) == (True, True, {"deniable": 16})
    assert document["rehearsed"]["moved"] > 0
    for found in document["attackers"]:
        assert list(found["stages"]) == ["before", "answered", "served", "retrained"]
        # the answer alone changes nothing, so whoever sees the model sees what it saw before
        assert found["stages"]["answered"] == found["stages"]["before"]
        assert found["stages"]["served"] != found["stages"]["before"]
        assert found["answered_minus_retrained"]["interval"] != found["served_minus_retrained"]["interval"]
    assert document["clean"] == all(
        found["served_minus_retrained"]["contains_zero"] for found in document["attackers"]
    )
    assert "Until the purge, after the answer alone, " in document["conclusion"]
    lines = list(table(document))
    assert len(lines) == 2 + len(document["attackers"])
    assert all(line.count("|") == 8 for line in lines)
