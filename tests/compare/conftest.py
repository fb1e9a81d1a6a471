"""Runs and trainings that tests of the comparison share. Look, do not touch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from disavow.audit.subject import subject_of
from disavow.compare.problem import Problem, problem_of
from disavow.compare.scheme import SCHEMES, TrainingResources, scheme_of
from disavow.compare.trainer import trainer_of
from disavow.compare.training import Training
from disavow.engines.trainer import Trainer
from tests.audit.making import CLIENT, keys_of, make_run

SETTINGS: dict[str, Any] = {
    "data": {"clients": 8, "test_fraction": 0.7},
    "clustering": {"k": 4},
    "deniability": {"x": 2},
    "training": {"epochs": 2, "batch_size": 32, "learning_rate": 0.1},
}
"""Eight clients in two clusters: three representatives can be drawn, and seven are left when one leaves."""


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight clients and three rounds, which kept no updates."""
    return make_run(tmp_path_factory.mktemp("compared") / "run", SETTINGS)


@pytest.fixture(scope="session")
def problem(compared: Path) -> Problem:
    """Client 3 of that run leaves."""
    keys = keys_of(compared)
    return problem_of(subject_of(compared, CLIENT, keys=keys), keys=keys)


@pytest.fixture(scope="session")
def trainer(problem: Problem) -> Iterator[Trainer]:
    """Trains all federations of the tests."""
    with closing(trainer_of(problem)) as made:
        yield made


@pytest.fixture(scope="session")
def trainings(problem: Problem, trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Training]:
    """The run itself under each scheme, with every update."""
    resources = TrainingResources(trainer, recompute=True)
    names = {scheme_of(name, problem) for name in SCHEMES}
    return {
        name: SCHEMES[name].train(problem, 0, tmp_path_factory.mktemp(name), resources) for name in sorted(names)
    }
