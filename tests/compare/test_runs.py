"""Runs of other settings: secret participation, fixed clusters, kept updates, batch norm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from disavow.audit.subject import subject_of
from disavow.compare.choice import Effort, allowed, methods_named
from disavow.compare.comparison import compare
from disavow.compare.problem import Problem, problem_of
from disavow.compare.scheme import SCHEMES, TrainingResources
from disavow.compare.trainer import trainer_of
from disavow.ledger import Ledger
from tests.audit.making import hashes_of, keys_of, make_run
from tests.compare.conftest import SETTINGS

QUICK = Effort(seeds=1, references=3, quick=True)
OWN = ["retrain-from-scratch", "retrain", "ours-purged"]


def problem_in(directory: Path) -> Problem:
    """Somebody who took part leaves."""
    keys = keys_of(directory)
    with Ledger.open(directory, keys=keys) as ledger:
        client = ledger.membership(1)[0][0]
    return problem_of(subject_of(directory, client, keys=keys), keys=keys)


@pytest.mark.parametrize(
    ("changes", "seeds"),
    [
        ({"draws": "fresh", "training": {"fraction": 0.75}}, 2),
        ({"draws": "fresh", "clustering": {"k": 3, "method": "fixed"}}, 2),
        ({"model": {"name": "resnet-mini"}, "rounds": 1, "training": {"epochs": 1}}, 1),
    ],
    ids=["some take part in secret", "fixed clusters", "batch norm"],
)
def test_a_run_of_other_settings_is_compared(changes: dict[str, Any], seeds: int, tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run", SETTINGS, {"rounds": 2}, changes)
    before = hashes_of(directory)
    problem = problem_in(directory)
    found = compare(problem, methods_named(OWN), replace(QUICK, seeds=seeds), work=tmp_path / "work")
    assert hashes_of(directory) == before
    assert [row.method.name for row in found.rows] == OWN
    for row in found.rows:
        assert {"accuracy", "best_attacker", "relearning", "work"} <= set(row.estimates)
    work = {row.method.name: row.estimates["work"].mean for row in found.rows}
    assert work["retrain-from-scratch"] == pytest.approx(1.0, abs=0.2)
    assert work["retrain"] <= work["retrain-from-scratch"]


def test_updates_that_the_run_kept_are_those_that_would_be_recomputed(tmp_path: Path) -> None:
    mechanism = {"mechanism": {"name": "federaser", "interval": 1}}
    problem = problem_in(make_run(tmp_path / "run", SETTINGS, {"rounds": 2}, mechanism))
    usable, skipped = allowed(problem, methods_named([]), QUICK, named=False)
    assert "federaser" in {method.name for method in usable}
    assert "federaser" not in skipped
    trainer = trainer_of(problem)
    try:
        kept, again = (
            SCHEMES["run"].train(
                problem, 0, tmp_path / str(recompute), TrainingResources(trainer, recompute=recompute)
            )
            for recompute in (False, True)
        )
    finally:
        trainer.close()
    for mine, theirs in zip(kept.rounds, again.rounds, strict=True):
        assert mine.updates is not None
        assert theirs.updates is not None
        assert torch.equal(mine.updates, theirs.updates)
        assert (mine.clients, mine.samples) == (theirs.clients, theirs.samples)
