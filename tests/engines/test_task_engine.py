"""What every engine of tasks must do, on every kind of task."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import disavow
from disavow.config import EngineSettings, TrainingSettings
from disavow.engines.state import model_of, put_model
from disavow.engines.task_engine import NotRecognised, build_for_task, recognise
from disavow.errors import RoundRefused, TaskError
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model
from disavow.tasks.loading import LoadedTask, load
from tests.tasks.zoo import CLIENTS, TASKS, tabular

SEED = 5
TRAINING = TrainingSettings(epochs=2, batch_size=4, learning_rate=0.05)


@pytest.fixture(params=sorted(TASKS))
def loaded(request: pytest.FixtureRequest) -> LoadedTask:
    """One of the tasks, with its model and data."""
    return load(TASKS[request.param](), training=TRAINING, seed=SEED)


@pytest.fixture(params=["sequential", "auto"])
def engine(request: pytest.FixtureRequest, loaded: LoadedTask) -> Iterator[Engine]:
    """An engine for the task."""
    made = build_for_task(loaded, TRAINING, SEED, EngineSettings(name=request.param, device="cpu"))
    yield made
    made.close()


def test_an_update_depends_on_nothing_but_seed_round_client_and_model(loaded: LoadedTask, engine: Engine) -> None:
    model = model_of(loaded.network)
    everybody = engine.train(model, tuple(CLIENTS), 3)
    torch.manual_seed(1234)  # what the program draws elsewhere must not matter
    again = engine.train(model, ("dan", "ada"), 3)
    assert everybody.samples == tuple(CLIENTS.values())
    assert torch.equal(again.vectors[0], everybody.vectors[3])
    assert torch.equal(again.vectors[1], everybody.vectors[0])
    assert not torch.equal(engine.train(model, ("ada",), 4).vectors[0], everybody.vectors[0])
    assert bool((everybody.vectors.abs().sum(dim=1) > 0).all())


def test_training_leaves_the_generators_of_the_program_alone(loaded: LoadedTask, engine: Engine) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    engine.train(model_of(loaded.network), ("ada",), 1)
    assert torch.equal(torch.rand(3), expected)


def test_engines_agree_to_the_last_bit(loaded: LoadedTask, engine: Engine) -> None:
    reference = build_for_task(loaded, TRAINING, SEED, EngineSettings(name="sequential", device="cpu"))
    model = model_of(loaded.network)
    theirs, ours = (each.train(model, tuple(CLIENTS), 2).vectors for each in (reference, engine))
    assert torch.equal(theirs, ours)


def test_metrics_are_what_the_task_measures(loaded: LoadedTask, engine: Engine) -> None:
    evaluation = engine.evaluate(model_of(loaded.network))
    if loaded.test is None:
        assert evaluation is None
        return
    network = copy.deepcopy(loaded.network).eval()
    with torch.no_grad():
        expected = loaded.task.evaluate(network, loaded.test)
    assert evaluation is not None
    assert evaluation.metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert math.isclose(evaluation.metrics[name], value, rel_tol=1e-5, abs_tol=1e-6)


def test_frozen_and_tied_parameters_are_where_they_belong() -> None:
    loaded = load(TASKS["transformer text"](), training=TRAINING, seed=SEED)
    model = model_of(loaded.network)
    names = [spec.name for spec in model.layout.tensors]
    assert "position" not in names
    assert names.count("embedding.weight") == 1
    assert "head.weight" not in names
    assert [each.name for each in model.layout.constants] == ["order"]
    engine = build_for_task(loaded, TRAINING, SEED, EngineSettings(name="sequential", device="cpu"))
    trained = Model(model.layout, model.vector + engine.train(model, ("ada",), 1).vectors[0])
    network: Any = copy.deepcopy(loaded.network)
    put_model(network, trained)
    assert network.head.weight is network.embedding.weight
    assert torch.equal(network.position, loaded.network.position)  # type: ignore[arg-type]


def test_the_loop_is_the_one_that_anybody_would_write() -> None:
    loaded = load(tabular(), training=TRAINING, seed=SEED)
    engine = build_for_task(loaded, TRAINING, SEED, EngineSettings(name="sequential", device="cpu"))
    update = engine.train(model_of(loaded.network), ("cyd",), 1).vectors[0]
    network = copy.deepcopy(loaded.network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    from disavow.engines.batches import batches

    for positions in batches(5, epochs=2, batch_size=4, seed=SEED, round_number=1, client="cyd"):
        inputs, labels = loaded.samples["cyd"].batch(positions)
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
    assert torch.equal(model_of(network).vector - model_of(loaded.network).vector, update)


def test_a_task_of_plain_parts_is_recognised_and_others_say_why_not() -> None:
    plain = disavow.task(
        model=lambda: nn.Linear(3, 2), clients={"ada": (torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))}
    )
    assert recognise(load(plain, training=TRAINING, seed=SEED), TRAINING, SEED).settings == TRAINING
    for name, make in TASKS.items():
        with pytest.raises(NotRecognised):
            recognise(load(make(), training=TRAINING, seed=SEED), TRAINING, SEED)
        assert name


def test_a_loss_that_is_not_finite_refuses_the_round_and_names_the_client() -> None:
    task = disavow.task(
        model=lambda: nn.Linear(1, 1),
        clients={"ada": (torch.ones(4, 1), torch.full((4, 1), torch.inf))},
        loss=functional.mse_loss,
    )
    engine = build_for_task(load(task, training=TRAINING, seed=SEED), TRAINING, SEED, EngineSettings(device="cpu"))
    with pytest.raises(RoundRefused) as refused:
        engine.train(model_of(task.model()), ("ada",), 6)
    assert "ada" in str(refused.value)
    assert "round 6" in str(refused.value)


def test_a_batch_that_the_loss_cannot_take_names_client_and_shapes() -> None:
    task = disavow.task(
        model=lambda: nn.Linear(2, 1),
        clients={"ada": (torch.ones(4, 3), torch.ones(4, 1))},
        loss=functional.mse_loss,
    )
    engine = build_for_task(load(task, training=TRAINING, seed=SEED), TRAINING, SEED, EngineSettings(device="cpu"))
    with pytest.raises(TaskError) as refused:
        engine.train(model_of(task.model()), ("ada",), 1)
    assert "ada" in str(refused.value)
    assert "(float32(4, 3), float32(4, 1))" in str(refused.value)
