"""Audits of tasks of one's own: their own loss, and what a task does not have is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from typer.testing import CliRunner

import disavow
from disavow.audit import audit as audit_module
from disavow.audit.attackers import ATTACKERS
from disavow.audit.audit import Effort, able, audit_client, left_out
from disavow.audit.signals import client_losses, confidences, group_losses
from disavow.audit.subject import Subject, subject_of
from disavow.cli.app import app
from disavow.errors import CannotRetrain
from disavow.tasks import build
from tests.refusals import refuses

ROOT = Path(__file__).parents[2]
RECORDS = ["loss threshold", "LiRA online", "LiRA offline"]
POLICY = disavow.Policy(k=2, x=2, draws="seeded")


def held(client: int, samples: int = 12) -> tuple[Any, ...]:
    """Inputs of a client, and numbers that follow from them."""
    rng = np.random.Generator(np.random.PCG64(client))
    inputs = rng.normal(size=(samples, 3)).astype(np.float32)
    return inputs, inputs.sum(axis=1, keepdims=True)


def regression(**changes: Any) -> disavow.Task:
    """Mean squared error, trained by Adam."""
    parts: dict[str, Any] = {
        "model": lambda: nn.Linear(3, 1),
        "clients": {f"clinic-{i}": held(i) for i in range(5)},
        "test": held(99, 20),
        "loss": functional.mse_loss,
        "optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.05),
        "epochs": 1,
        "batch_size": 6,
    }
    return disavow.task(**(parts | changes))


class Survival(disavow.Task):
    """Cox's partial likelihood, which compares the records of a batch and says nothing of one alone."""

    epochs = 1
    batch_size = 12

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))

    def clients(self) -> dict[str, Any]:
        return {f"clinic-{i}": self._patients(i, 12) for i in range(5)}

    def test_data(self) -> Any:
        return self._patients(99, 20)

    def evaluate(self, model: nn.Module, data: Any) -> dict[str, float]:
        device = next(model.parameters()).device
        inputs, days = (torch.as_tensor(each, device=device) for each in data)
        return {"loss": float(self.loss(model, (inputs, days)))}

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, days = batch
        hazard = model(inputs)[torch.argsort(days[:, 0], descending=True)]
        found: Tensor = (torch.logcumsumexp(hazard, dim=0) - hazard).mean()
        return found

    def _patients(self, client: int, samples: int) -> tuple[Any, ...]:
        return held(client, samples)


def looped(model: nn.Module, data: Any, seed: int) -> None:
    """A training loop of the user's own."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs, targets = (torch.as_tensor(each) for each in data)
    functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    torch.Generator().manual_seed(seed)


def trained(folder: Path, task: disavow.Task, policy: disavow.Policy = POLICY) -> Path:
    with disavow.Federation.create(folder / "run", task, policy=policy, rounds=1) as run:
        run.train()
    return folder / "run"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Effort:
    """So few worlds that nothing could be concluded: here it is seen that they are trained and attacked."""
    monkeypatch.setattr(audit_module, "FEWEST_WORLDS", 8)
    return Effort(worlds=8, shadows=4, forgings=1)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of a regression that names no factory."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("numbers")
        patch.setenv("DISAVOW_KEYS", str(folder / "keys"))
        yield trained(folder, regression())


def test_the_hospitals_are_audited_by_all_attackers_with_their_own_loss(tmp_path: Path, few: Effort) -> None:
    task = build("hospitals:Hospitals", {}, ROOT / "examples" / "hospitals")
    directory = trained(tmp_path, task, disavow.Policy(k=3, x=3))
    with disavow.Federation.open(directory, task) as federation:
        report = audit_client(federation, "Bergen", few, work=tmp_path / "work")
    assert (report.skipped, report.own, report.held_out, report.shadows) == ({}, 38, 38, 4)
    assert len(report.found) == 6
    assert sum(each.identical for each in report.forged) == sum(each.recomputed for each in report.forged) > 0
    assert all(np.isfinite(found.difference.estimate) for found in report.found)


def test_a_regression_is_audited_by_a_command_with_its_task(
    numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [
        "audit",
        str(numbers),
        "--client",
        "clinic-1",
        "--worlds=32",
        "--shadows=4",
        "--forgings=1",
        "--json",
    ]
    work = f"--work={tmp_path / 'work'}"
    refused = CliRunner().invoke(app, [*arguments, work])
    assert isinstance(refused.exception, CannotRetrain)
    assert not (tmp_path / "work").exists()
    monkeypatch.syspath_prepend(ROOT)
    done = CliRunner().invoke(app, [*arguments, work, "--task=tests.audit.test_task_audit:regression"])
    assert done.exit_code in (0, 1), done.output
    document = json.loads(done.stdout)
    assert (document["left_out"], len(document["attackers"])) == ({}, 6)


def test_losses_of_records_are_the_tasks_own(numbers: Path) -> None:
    subject = subject_of(numbers, "clinic-1", task=regression())
    assert (subject.labelled, subject.classes, subject.lacking) == (False, False, {})
    found = confidences(subject, subject.initial)
    network = subject.holding(subject.initial)
    inputs, targets = (torch.as_tensor(each) for each in held(1))
    expected = (network(inputs) - targets).square().flatten().detach().numpy()
    np.testing.assert_allclose(-found.own, expected, rtol=1e-5)
    own, _ = group_losses(subject, subject.initial, found)
    assert own == pytest.approx(expected.mean(), rel=1e-5)
    assert client_losses(subject, subject.initial)[0] == pytest.approx(own)


@pytest.mark.parametrize(
    ("task", "skipped", "named"),
    [
        (Survival(), RECORDS, "single record"),
        (regression(test=None), [*RECORDS, "subject level"], "no test data"),
        (
            regression(train_client=looped, optimizer=None, epochs=None, batch_size=None),
            RECORDS[1:],
            "training loop",
        ),
    ],
    ids=["cox", "no test data", "own loop"],
)
def test_who_lacks_what_a_task_does_not_have_is_left_out_and_named(
    tmp_path: Path, task: disavow.Task, skipped: list[str], named: str
) -> None:
    subject: Subject = subject_of(trained(tmp_path, task), "clinic-1", task=task)
    found = left_out(subject)
    assert list(found) == skipped
    assert all(named in why for why in found.values())
    assert {each.name for each in able(subject)} == {*ATTACKERS} - {*skipped}
    assert all(key.kind.value != "shadow" for key in Effort().worlds_of(subject))
    assert np.isfinite(client_losses(subject, subject.initial)).all()


def test_a_task_that_has_changed_is_not_audited(numbers: Path) -> None:
    others = {f"clinic-{i}": held(i + (i == 4)) for i in range(5)}
    with refuses(CannotRetrain, "clinic-4"):
        subject_of(numbers, "clinic-1", task=regression(clients=others))


def test_a_plan_takes_the_numbers_of_a_run_and_needs_no_task(numbers: Path) -> None:
    done = CliRunner().invoke(app, ["plan", str(numbers), "--k=3", "--k=2", "--simulations=50", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["clients"], document["rounds"], {row["x"] for row in document["plans"]}) == (5, 1, {2})
