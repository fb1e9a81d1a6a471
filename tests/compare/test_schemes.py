"""Schemes: the run itself, its settings under another seed, and trainings that come back from disk as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from disavow.compare.memory_rounds import MemoryRun, run_rounds
from disavow.compare.problem import Problem
from disavow.compare.scheme import SCHEMES, TrainingResources, scheme_of
from disavow.compare.stored import load, save
from disavow.compare.training import Training
from disavow.engines.trainer import Trainer
from disavow.ledger import Ledger
from disavow.rounds.vectors import Model
from tests.audit.making import hashes_of


def test_seed_0_is_the_run(trainings: dict[str, Training], problem: Problem) -> None:
    training = trainings["run"]
    with Ledger.open(problem.subject.directory, keys=problem.keys) as ledger:
        for each in training.rounds:
            assert torch.equal(each.before, torch.from_numpy(ledger.model_before(each.number)))
            assert each.clients == tuple(
                sorted(ledger.membership(each.number)[0] + ledger.membership(each.number)[1])
            )
        assert torch.equal(training.served, torch.from_numpy(ledger.model_before(4)))
    assert scheme_of("s1", problem) == "run"
    assert scheme_of("s3", problem) == "s3"


def test_recomputed_updates_are_those_that_clients_sent(
    trainings: dict[str, Training], problem: Problem, trainer: Trainer
) -> None:
    workload = problem.workload(0, without_leaver=False)
    for each in trainings["run"].rounds:
        model = Model(problem.subject.layout, each.before)
        run = MemoryRun(workload, problem.policy, problem.options(0, ""), each.clients, model.layout, each.before)
        run.number = each.number
        [sent] = trainer.train([run.opened()])
        assert each.updates is not None
        assert torch.equal(each.updates, sent.in_id_order().vectors)


def test_without_recomputing_a_run_that_kept_none_has_no_updates(
    problem: Problem, trainer: Trainer, tmp_path: Path
) -> None:
    training = SCHEMES["run"].train(problem, 0, tmp_path, TrainingResources(trainer))
    assert all(each.updates is None for each in training.rounds)


@pytest.mark.parametrize("scheme", ["run", "s3"])
def test_rounds_in_memory_are_those_of_a_ledger(
    scheme: str, problem: Problem, trainer: Trainer, tmp_path: Path
) -> None:
    """Bit for bit, sticky clusters and secret draws included."""
    before = hashes_of(problem.subject.directory)
    recorded = SCHEMES[scheme].train(problem, 2, tmp_path, TrainingResources(trainer))
    policy = SCHEMES[scheme].policy(problem)  # type: ignore[attr-defined]
    run = problem.memory_run(2, f"training of {scheme}", without_leaver=False, policy=policy)
    kept = []
    run_rounds([run], trainer, problem.rounds, on_trained=lambda _, done: kept.append(done))
    assert torch.equal(run.vector, recorded.served)
    for mine, theirs in zip(kept, recorded.rounds, strict=True):
        assert torch.equal(mine.before, theirs.before)
        assert mine.updates is not None
        assert theirs.updates is not None
        assert torch.equal(mine.updates, theirs.updates)
    assert hashes_of(problem.subject.directory) == before


def test_another_seed_is_another_training_and_references_differ(
    trainings: dict[str, Training], problem: Problem, trainer: Trainer, tmp_path: Path
) -> None:
    resources = TrainingResources(trainer)
    first, second = (SCHEMES["run"].train(problem, seed, tmp_path / str(seed), resources) for seed in (1, 2))
    assert not torch.equal(first.served, second.served)
    assert torch.equal(first.initial, trainings["run"].initial)
    one, other = SCHEMES["run"].retrain(problem, [1, 2], resources)
    assert not torch.equal(one, other)
    assert torch.equal(one, SCHEMES["run"].retrain(problem, [1], resources)[0])


def test_a_training_comes_back_from_disk(trainings: dict[str, Training], problem: Problem, tmp_path: Path) -> None:
    training = trainings["run"]
    assert load(tmp_path, problem.subject.layout) is None
    save(training, tmp_path)
    found = load(tmp_path, problem.subject.layout)
    assert found is not None
    assert torch.equal(found.served, training.served)
    assert (found.seed, found.run) == (training.seed, tmp_path / "run")
    for mine, theirs in zip(found.rounds, training.rounds, strict=True):
        assert (mine.number, mine.clients, mine.samples) == (theirs.number, theirs.clients, theirs.samples)
        assert torch.equal(mine.before, theirs.before)
        assert mine.updates is not None
        assert theirs.updates is not None
        assert torch.equal(mine.updates, theirs.updates)


def test_a_training_of_which_the_description_is_missing_is_none(
    trainings: dict[str, Training], problem: Problem, tmp_path: Path
) -> None:
    save(trainings["run"], tmp_path)
    (tmp_path / "training.json").unlink()
    assert load(tmp_path, problem.subject.layout) is None


@pytest.mark.parametrize("name", ["models.f32", "updates.f32"])
def test_a_training_of_which_numbers_are_missing_is_none(
    name: str, trainings: dict[str, Training], problem: Problem, tmp_path: Path
) -> None:
    """Power was cut before they were on the disk, or they were copied from another machine in part."""
    save(trainings["run"], tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:-4])
    assert load(tmp_path, problem.subject.layout) is None
    (tmp_path / name).unlink()
    assert load(tmp_path, problem.subject.layout) is None
    (tmp_path / name).write_bytes(whole)
    assert load(tmp_path, problem.subject.layout) is not None
