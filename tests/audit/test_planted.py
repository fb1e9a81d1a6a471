"""An audit that cannot fail is worthless: planted leaks are found, and clean cases are not accused.

`benchmarks.planted` counts over many seeds; here is one, whose worlds without the client are trained once for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.planted import (
    CLEAN,
    EFFORT,
    FEWEST,
    LEAKS,
    OVERFITTED,
    PRETENDED,
    WARM,
    History,
    Leaking,
    audited,
    count,
    sharing,
)
from disavow.audit import audit as audit_module
from disavow.audit.attackers import ATTACKERS
from disavow.audit.audit import Effort, attack, hand_out
from disavow.audit.game import Handed, Stage
from disavow.audit.report import Audit
from disavow.audit.subject import Subject
from disavow.audit.worlds import World, WorldKey
from disavow.domain import Layout, VerdictKind
from disavow.rounds.vectors import Model, Updates
from tests.audit import planted
from tests.selection import some_of

FOUND = ("old dense layers", "20 % blend", "full share added back", WARM)
"""The leaks that an audit must see."""


@dataclass(frozen=True, eq=False)
class Clean:
    """A clean audit, the worlds it trained that never had the client, and what it handed to attackers."""

    report: Audit
    kept: dict[WorldKey, World]
    layout: Layout
    handed: dict[Stage, list[Handed]]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    kept: dict[WorldKey, World] = {}
    seen: list[tuple[Layout, dict[Stage, list[Handed]]]] = []

    def noted(subject: Subject, *rest: Any) -> dict[Stage, list[Handed]]:
        seen.append((subject.layout, hand_out(subject, *rest)))
        return seen[-1][1]

    with sharing(kept), pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit_module, "hand_out", noted)
        report = audited(tmp_path_factory.mktemp("clean"), OVERFITTED)
    return Clean(report, kept, *seen[0])


def nobody(client: str) -> Updates:
    raise AssertionError(f"{client} trained")


def strongest(report: Audit, stage: Stage) -> float:
    return max(found.stages[stage].auc.estimate or 0.0 for found in report.found)


def test_an_overfitted_federation_is_caught_and_exact_retraining_is_not_accused(clean: Clean) -> None:
    report = clean.report
    assert strongest(report, Stage.BEFORE) > 0.95
    assert report.recognised
    assert report.clean, report.conclusion()
    assert all(found.difference.contains_zero for found in report.found)


def test_releasing_both_models_gives_the_leaver_away_and_nobody_is_accused_of_it(clean: Clean) -> None:
    """As much with models that are exactly retrained: it is the superseded one that remembers."""
    given = clean.report.given_away
    assert (given.clients, given.pairs) == (4, 32)
    assert all(given.first[stage] > given.pairs / given.clients for stage in (Stage.SERVED, Stage.RETRAINED))
    assert all((attacked.auc.estimate or 0) > 0.6 for attacked in given.stages.values())
    assert clean.report.clean


def test_an_exact_retraining_is_no_nearer_to_others_than_they_are_to_each_other(clean: Clean) -> None:
    histories = clean.report.histories
    assert histories.retrainings == 32
    assert histories.distance == pytest.approx(histories.among, rel=0.25)
    assert [each.attacker for each in histories.alike] == ["loss threshold", "LiRA online", "LiRA offline"]
    assert all(0.5 < each.retrained < 1 for each in histories.alike)


@pytest.mark.parametrize("leak", some_of(["old dense layers", "20 % blend"], ["20 % blend"]))
def test_what_is_put_back_into_the_served_model_is_found_in_its_parameters(clean: Clean, leak: str) -> None:
    """The server's change, made to each honestly retrained world of the clean audit."""
    [served] = clean.handed[Stage.SERVED]
    changed = []
    for numbers in zip(served.present.weights, served.before.weights, strict=True):
        honest, old = (Model(clean.layout, torch.from_numpy(each.copy())) for each in numbers)
        changed.append(LEAKS[leak](honest, History({3: old}, 3, nobody, 4)).vector.numpy())
    leaking = replace(served, present=replace(served.present, weights=np.stack(changed)))
    found = attack(ATTACKERS["parameters"], {**clean.handed, Stage.SERVED: [leaking]})
    assert found.difference.interval.low > 0
    assert attack(ATTACKERS["parameters"], clean.handed).difference.contains_zero


@pytest.mark.parametrize(
    ("leak", "effort"),
    [
        (PRETENDED, FEWEST),
        pytest.param(WARM, FEWEST, marks=pytest.mark.torture),
        pytest.param("full share added back", EFFORT, marks=pytest.mark.torture),  # needs more worlds
    ],
)
def test_a_server_that_leaks_is_caught(tmp_path: Path, clean: Clean, leak: str, effort: Effort) -> None:
    with sharing(clean.kept):
        report = audited(tmp_path, OVERFITTED, effort, Leaking(leak=leak))
    assert report.answer.cost is not None
    assert report.answer.cost.rounds == OVERFITTED["rounds"]
    assert (report.moved == 0) == (leak == PRETENDED)
    assert "parameters" in {found.attacker for found in report.remembering}
    assert "still remembers" in " ".join(report.conclusion())


BACKDOORED = {
    "rounds": 2,
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
    report = planted.audited(tmp_path, BACKDOORED, monkeypatch, effort=FEWEST, backdoor=True)
    assert report.answer.verdict is not None
    assert report.answer.verdict.kind is VerdictKind.DENIABLE
    assert {"subject level", "update alignment", "parameters"} & {found.attacker for found in report.remembering}
    assert "Deniability is not deletion" in " ".join(report.conclusion())
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.torture
def test_a_deniable_client_behind_enough_noise_is_not_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is kept with the client in it, but the noise hides everybody: no attacker may claim otherwise."""
    values = {
        **BACKDOORED,
        "training": {"epochs": 1},
        "noise": {"mode": "calibrated", "clip": 0.02, "tau": 0.1},
    }
    report = planted.audited(tmp_path, values, monkeypatch, effort=FEWEST)
    assert report.answer.verdict is not None
    assert report.answer.verdict.kind is VerdictKind.DENIABLE
    assert report.clean, report.conclusion()
    assert not report.recognised
    assert all(each.within for each in report.forged)


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_leaks_are_found_in_nine_of_ten_federations() -> None:
    counted = {each["case"]: each["accused"] for each in count(FOUND, range(1, 11))}
    assert all(counted[leak] >= 9 for leak in FOUND), counted


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_clean_servers_are_accused_in_at_most_one_of_twenty_audits() -> None:
    [counted] = count((CLEAN,), range(1, 101), effort=FEWEST)
    assert counted["accused"] <= 5
