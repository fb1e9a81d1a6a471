"""Audits of some records of a client, which itself takes part in every world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from typer.testing import CliRunner

import disavow
from disavow import config
from disavow.audit.game import Stage
from disavow.audit.rehearsal import rehearse
from disavow.audit.signals import alignment, client_losses
from disavow.audit.subject import FEWEST_RECORDS, Subject, subject_of
from disavow.audit.trainer import trainer_of
from disavow.audit.worlds import Kind, WorldKey, standing_models, train_worlds
from disavow.cli.app import app
from disavow.engines.state import model_of
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.errors import ConfigError, RecordErased, RecordsUnchecked, UnknownRecord
from disavow.federation import Federation
from disavow.tasks.task import Task
from tests.audit.making import CLIENT, keys_of
from tests.audit.test_task_audit import regression
from tests.refusals import refuses

ROOT = Path(__file__).parents[2]
RECORD_ATTACKERS = {"loss threshold", "LiRA online", "LiRA offline"}


def keyed() -> Task:
    """A regression whose records have names; the first three of each client are one."""
    return regression(
        record_keys={f"clinic-{i}": ["first"] * 3 + [f"p{j}" for j in range(9)] for i in range(5)},
        optimizer=_adam,
        model=_linear,
    )


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.05)


def _linear() -> nn.Module:
    return nn.Linear(3, 1)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of that regression."""
    directory, policy = tmp_path_factory.mktemp("numbers") / "run", disavow.Policy(k=2, x=2, draws="seeded")
    settings = config.from_values({"engine": {"name": "sequential"}}, source="tests")
    with Federation.create(directory, keyed(), policy=policy, rounds=1, settings=settings) as run:
        run.train()
    return directory


def images_of(directory: Path, count: int) -> tuple[str, ...]:
    """Keys of some images of the audited client."""
    with Federation.open(directory, keys=keys_of(directory)) as federation:
        return (federation.record_keys_of(CLIENT) or ())[:count]


def subject_with(directory: Path, records: tuple[str, ...]) -> Subject:
    return subject_of(directory, CLIENT, keys=keys_of(directory), records=records)


def world(subject: Subject, kind: Kind, folder: Path) -> Any:
    trainer = trainer_of(subject)
    try:
        found = train_worlds(
            subject,
            [WorldKey(kind, 0)],
            folder,
            trainer=trainer,
            mechanism=Retrain(),
            seed=1,
            on_round=lambda rounds: None,
        )
    finally:
        trainer.close()
    return found[kind][0]


def test_records_are_the_clients_examples_of_these_keys(numbers: Path) -> None:
    subject = subject_of(numbers, "clinic-1", task=keyed(), records=["first", "p4"])
    assert subject.own.tolist() == [12, 13, 14, 19]
    assert subject.kept.tolist() == [i for i in range(12, 24) if i not in {12, 13, 14, 19}]
    assert len(subject.held_out) == FEWEST_RECORDS
    assert subject.left is not None
    assert len(subject.left.samples["clinic-1"]) == 8
    shadow: Any = subject.workload_of_shadow(np.array([True, *[False] * 13]))
    assert len(shadow.loaded.samples["clinic-1"]) == 9
    losses = client_losses(subject, subject.initial)
    rows = subject.samples.batch(subject.own)
    expected = functional.mse_loss(subject.holding(subject.initial)(rows[0]), rows[1])
    assert losses[0] == pytest.approx(float(expected.detach()), rel=1e-5)


def test_a_few_records_are_audited_by_attackers_of_worlds_alone(
    numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    (tmp_path / "keys.txt").write_text("first\n\np4\n")
    arguments = ["audit", str(numbers), "--client=clinic-1", "--task=tests.audit.test_record_audit:keyed"]
    arguments += [f"--work={tmp_path / 'work'}", "--worlds=32", "--forgings=1", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--record=p5", f"--records={tmp_path / 'keys.txt'}"])
    assert result.exit_code in (0, 1), result.output
    found = json.loads(result.stdout)
    assert (found["unit"], found["erased"], found["records"]["own"]) == ("record", ["p5", "first", "p4"], 5)
    assert found["left_out"].keys() == RECORD_ATTACKERS
    assert {each["attacker"] for each in found["attackers"]} == {"subject level", "update alignment", "parameters"}
    assert found["epsilon"] is None
    [forged] = found["forged"]["rounds"]
    assert forged["identical"] == forged["recomputed"] > 0
    (tmp_path / "none.txt").write_text("\n")
    refused = CliRunner().invoke(app, [*arguments, f"--records={tmp_path / 'none.txt'}"])
    assert isinstance(refused.exception, ConfigError)


def test_records_that_cannot_be_audited_are_refused(numbers: Path, broken: Path) -> None:
    with refuses(UnknownRecord, "p99", "clinic-1"):
        subject_of(numbers, "clinic-1", task=keyed(), records=["p99"])
    with refuses(RecordsUnchecked, "clinic-1"):
        subject_of(numbers, "clinic-1", task=keyed(), records=["first", *(f"p{j}" for j in range(9))])
    with Federation.open(broken, keys=keys_of(broken)) as federation:
        other = (federation.record_keys_of("client-01") or ())[0]
    with refuses(UnknownRecord, other):
        subject_with(broken, (other,))


def test_a_record_that_was_erased_is_refused_and_in_no_audit(own_run: Path) -> None:
    gone, *others = images_of(own_run, 3)
    with Federation.open(own_run, keys=keys_of(own_run)) as federation:
        federation.erase(CLIENT, records=[gone])
    with refuses(RecordErased, gone):
        subject_with(own_run, (gone,))
    subject = subject_with(own_run, tuple(others))
    assert int(gone) not in subject.parts[CLIENT]
    assert sorted(subject.own.tolist()) == sorted(int(each) for each in others)


def test_a_world_without_the_records_is_the_federation_that_never_held_them(broken: Path, tmp_path: Path) -> None:
    subject = subject_with(broken, images_of(broken, 20))
    assert subject.too_few is None
    without, retrained = (world(subject, kind, tmp_path) for kind in (Kind.WITHOUT, Kind.RETRAINED))
    whole = world(subject, Kind.WITH, tmp_path)
    assert whole.verdict == "rollback to round 1"  # x = 2 in clusters of two
    assert not np.array_equal(whole.seen[Stage.BEFORE].weights, whole.seen[Stage.SERVED].weights)
    assert without.verdict is None
    assert not np.array_equal(without.seen[Stage.RETRAINED].weights, retrained.seen[Stage.RETRAINED].weights)


def test_the_rehearsed_erasure_trains_without_the_records(broken: Path, tmp_path: Path) -> None:
    subject = subject_with(broken, images_of(broken, 20))
    with rehearse(subject, tmp_path, keys=keys_of(broken), mechanism=Retrain()) as rehearsal:
        assert rehearsal.answer.records == 20
        assert CLIENT in rehearsal.ledger.clients()
        update = rehearsal.engine.train(model_of(subject.network), [CLIENT], 1)
        assert update.samples == (len(subject.kept),)
        trainer = trainer_of(subject)
        aligned = alignment(subject, trainer, standing_models(rehearsal.ledger))
        trainer.close()
        assert -1 <= aligned <= 1
