"""Comparisons of other things than images: tasks with a loss of their own, and records of a client that stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import disavow
from disavow import config
from disavow.audit.subject import subject_of
from disavow.compare.choice import Effort, allowed, methods_named
from disavow.compare.comparison import compare
from disavow.compare.method import METHODS
from disavow.compare.problem import Problem, problem_of
from disavow.compare.table import to_markdown
from disavow.errors import ConfigError
from disavow.federation import Federation
from tests.audit.making import CLIENT, hashes_of, keys_of
from tests.audit.test_record_audit import images_of
from tests.audit.test_task_audit import Survival, regression

QUICK = Effort(seeds=1, references=3, quick=True, recompute=True)
OWN = ("retrain-from-scratch", "retrain", "ours", "ours-purged", "federaser")


def keyed() -> disavow.Task:
    """A regression whose records have names."""
    return regression(record_keys={f"clinic-{i}": [f"p{j}" for j in range(12)] for i in range(5)})


def trained(directory: Path, task: disavow.Task) -> Path:
    policy = disavow.Policy(k=2, x=2, draws="seeded")
    settings = config.from_values({"engine": {"name": "sequential"}}, source="tests")
    with Federation.create(directory, task, policy=policy, rounds=2, settings=settings) as run:
        run.train()
    return directory


def problem_in(directory: Path, client: str, **more: Any) -> Problem:
    keys = keys_of(directory)
    return problem_of(subject_of(directory, client, keys=keys, **more), keys=keys)


@pytest.mark.parametrize("records", [(), ("p3", "p7")])
def test_a_regression_is_compared_by_losses(records: tuple[str, ...], tmp_path: Path) -> None:
    directory = trained(tmp_path / "run", keyed())
    before = hashes_of(directory)
    problem = problem_in(directory, "clinic-1", task=keyed(), records=records)
    found = compare(problem, [METHODS[name] for name in OWN], QUICK, work=tmp_path / "work")
    assert hashes_of(directory) == before
    assert {"backdoor", "reconstruction"} <= set(found.unmeasured)
    for row in found.rows:
        assert {"loss", "leaver_loss", "agreement", "relearning"} <= set(row.estimates)
    rows = {row.method.name: row.estimates for row in found.rows}
    clients = 5 if records else 4
    assert rows["retrain-from-scratch"]["client_epochs"].mean == 2 * clients
    assert "loss on the leaver" in to_markdown(found)


class Censored(Survival):
    """Batches have a third element, so that the model cannot be given all but the last."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch[:2])

    def evaluate(self, model: nn.Module, data: Any) -> dict[str, float]:
        return super().evaluate(model, data[:2])

    def _patients(self, client: int, samples: int) -> tuple[Any, ...]:
        inputs, days = super()._patients(client, samples)
        return inputs, days, torch.ones(samples)


def test_a_survival_model_is_compared_without_attackers(tmp_path: Path) -> None:
    directory = trained(tmp_path / "run", Censored())
    problem = problem_in(directory, "clinic-1", task=Censored())
    found = compare(problem, [METHODS["retrain"], METHODS["ours"]], QUICK, work=tmp_path / "work")
    assert {"best_attacker", "agreement"} <= set(found.unmeasured)
    assert {row.method.name for row in found.rows} == {"retrain", "ours"}


@pytest.mark.parametrize("method", ["npo", "distillation"])
def test_a_method_that_needs_what_a_task_cannot_say_is_left_out_or_refused(method: str, tmp_path: Path) -> None:
    problem = problem_in(trained(tmp_path / "run", Censored()), "clinic-1", task=Censored())
    effort = replace(QUICK, recompute=True)
    usable, skipped = allowed(problem, methods_named([]), effort, named=False)
    assert method in skipped
    assert "gradient-difference" in {each.name for each in usable}
    with pytest.raises(ConfigError, match=method):
        allowed(problem, methods_named([method]), effort, named=True)


def test_records_of_an_image_client_leave_and_the_client_stays(compared: Path, tmp_path: Path) -> None:
    keys = images_of(compared, 12)
    problem = problem_in(compared, CLIENT, records=keys)
    assert problem.remaining == problem.subject.clients
    names = ("retrain-from-scratch", "ours", "federaser", "fine-tune", "gradient-ascent", "npo")
    found = compare(problem, [METHODS[name] for name in names], QUICK, work=tmp_path)
    rows = {row.method.name: row.estimates for row in found.rows}
    assert rows["retrain-from-scratch"]["client_epochs"].mean == 3 * 8 * 2
    assert found.described["leaving_records"] == 12
    whole = problem.workload(0, without_leaver=False).parts[CLIENT]
    left = problem.workload(0, without_leaver=True).parts[CLIENT]
    assert len(whole) - len(left) == 12
    assert all(torch.isfinite(torch.tensor(each.values)).all() for row in rows.values() for each in row.values())
