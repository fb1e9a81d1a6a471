"""An audit that cannot fail is worthless: planted leaks are found, and clean cases are not accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from disavow.audit.audit import Effort
from disavow.audit.game import Stage
from disavow.audit.report import Audit
from disavow.domain import VerdictKind
from tests.audit.planted import OVERFITTED, Pretend, audited

EFFORT = Effort(worlds=32, shadows=4, forgings=2)


def strongest(report: Audit, stage: Stage) -> float:
    return max(found.stages[stage].auc.estimate or 0.0 for found in report.found)


def test_an_overfitted_federation_is_caught_and_exact_retraining_is_not_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = audited(tmp_path, OVERFITTED, monkeypatch, effort=EFFORT)
    assert report.answer.verdict is not None
    assert report.answer.verdict.round == 1
    assert strongest(report, Stage.BEFORE) > 0.7
    assert report.clean, report.conclusion()
    assert all(found.difference.contains_zero for found in report.found)
    assert not list((tmp_path / "work").iterdir())


def test_a_server_that_only_claims_to_retrain_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = audited(tmp_path, OVERFITTED, monkeypatch, effort=EFFORT, mechanism=Pretend())
    assert report.answer.verdict is not None
    assert report.answer.verdict.round == 1
    assert report.answer.cost is not None
    assert report.answer.cost.rounds == OVERFITTED["rounds"]
    assert report.moved == 0
    assert "update alignment" in {found.attacker for found in report.remembering}
    assert "still remembers" in " ".join(report.conclusion())


BACKDOORED = {
    "rounds": 6,
    "draws": "seeded",
    "data": {"clients": 9, "test_fraction": 0.7},
    "clustering": {"k": 3},
    "deniability": {"x": 1},
    "noise": {"mode": "none"},
    "training": {"epochs": 4},
}


def test_a_backdoor_that_a_deniable_erasure_leaves_behind_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = audited(tmp_path, BACKDOORED, monkeypatch, effort=EFFORT, backdoor=True)
    assert report.answer.verdict is not None
    assert report.answer.verdict.kind is VerdictKind.DENIABLE
    assert {"subject level", "update alignment"} & {found.attacker for found in report.remembering}
    assert "Deniability is not deletion" in " ".join(report.conclusion())


def test_a_deniable_client_behind_enough_noise_is_not_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is kept with the client in it, but the noise hides everybody: no attacker may claim otherwise."""
    values = {
        **BACKDOORED,
        "training": {"epochs": 1},
        "noise": {"mode": "calibrated", "clip": 0.02, "tau": 0.1},
    }
    report = audited(tmp_path, values, monkeypatch, effort=EFFORT)
    assert report.answer.verdict is not None
    assert report.answer.verdict.kind is VerdictKind.DENIABLE
    assert report.clean, report.conclusion()
    assert all(each.within for each in report.forged)
