"""What every engine of tasks must do, on every kind of task."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import disavow
from disavow.config import EngineSettings, TrainingSettings
from disavow.domain import EngineChoice
from disavow.engines.batches import batches
from disavow.engines.pool import PoolTrainer, why_unsendable
from disavow.engines.sequential import SequentialEngine
from disavow.engines.stacked import StackedTrainer
from disavow.engines.stacked.check import CannotStack
from disavow.engines.stacked.tasks import StackedTasks
from disavow.engines.state import model_of, put_model
from disavow.engines.task_engine import NotRecognised, PooledTasks, TaskEngine, build_for_task, recognise
from disavow.engines.task_workload import TaskWorkload
from disavow.engines.trainer import VectorisedEngine
from disavow.errors import ConfigError, RoundRefused, TaskError
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model
from disavow.tasks.factory import Factory
from disavow.tasks.loading import LoadedTask, load
from tests.engines.pool.builders import with_workers_ready
from tests.engines.pool.forked_workers import forked_pool
from tests.refusals import refuses
from tests.tasks import zoo
from tests.tasks.zoo import CLIENTS, FACTORIES, TASKS, tabular

SEED = 5
TRAINING = TrainingSettings(epochs=2, batch_size=4, learning_rate=0.05)
CPU = EngineSettings(device="cpu")

UNSTACKABLE = {
    "recurrent text": "lstm",
    "regression": "random",
    "own loop": "training loop",
}
"""Tasks that one client after the other trains on a GPU, with a word of the reason."""

RANDOM = {"dropout", "transformer text", "regression"}
"""Tasks whose models draw: what is stacked draws other masks than the reference does."""

SENT = {"dropout", "own loop", "tabular"}
"""Tasks that `make test` trains in worker processes too, with the code of the reference; `make torture`, all."""

STACKED = sorted(FACTORIES.keys() - UNSTACKABLE.keys())


def load_named(name: str) -> LoadedTask:
    """Load one of the tasks as settings name it."""
    factory = Factory(FACTORIES[name], {})
    return load(factory.build(), training=TRAINING, seed=SEED, factory=factory)


@dataclass(frozen=True)
class Case:
    """A task and an engine for it; `rounding` is how far it may be from the reference, as a share of the update."""

    name: str
    loaded: LoadedTask
    engine: Engine
    rounding: float

    def agrees(self, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
        """Whether two updates are the same, as far as this engine promises."""
        if self.rounding == 0.0:
            return torch.equal(ours, theirs)
        return float((ours - theirs).norm()) <= self.rounding * float(theirs.norm())


CASES = [
    *((name, "sequential") for name in sorted(FACTORIES)),
    *(
        (name, "pool") if name in SENT else pytest.param((name, "pool"), marks=pytest.mark.torture)
        for name in sorted(FACTORIES)
    ),
    *((name, "stacked") for name in STACKED),
    ("plain", "compiled"),
]


@pytest.fixture(scope="module")
def workers() -> Iterator[PoolTrainer]:
    """Two worker processes, up and running."""
    with forked_pool() as trainer:
        yield with_workers_ready(trainer)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    """One of the tasks, with one of the engines that train it."""
    name, kind = request.param
    loaded = load_named(name)
    workload = TaskWorkload(loaded, TRAINING, SEED)
    if kind == "sequential":
        engine: Engine = TaskEngine(workload, SequentialEngine(workload))
    elif kind == "pool":
        pool = request.getfixturevalue("workers")
        engine = TaskEngine(workload, PooledTasks(workload, EngineChoice("pool"), pool))
    elif kind == "stacked":
        engine = TaskEngine(workload, StackedTasks(workload))
    else:
        engine = build_for_task(loaded, TRAINING, SEED, CPU)
        if "compiled" not in str(engine.choice):  # type: ignore[attr-defined]
            pytest.skip("there is no compiler")
    return Case(name, loaded, engine, 1e-5 if kind in ("stacked", "compiled") else 0.0)


def reference(loaded: LoadedTask, training: TrainingSettings = TRAINING) -> SequentialEngine[Any]:
    return SequentialEngine(TaskWorkload(loaded, training, SEED))


def test_an_update_depends_on_nothing_but_seed_round_client_and_model(case: Case) -> None:
    model, engine = model_of(case.loaded.network), case.engine
    everybody = engine.train(model, tuple(CLIENTS), 3)
    torch.manual_seed(1234)  # what the program draws elsewhere must not matter
    again = engine.train(model, ("dan", "ada"), 3)
    assert everybody.samples == tuple(CLIENTS.values())
    assert case.agrees(again.vectors[0], everybody.vectors[3])
    assert case.agrees(again.vectors[1], everybody.vectors[0])
    assert torch.equal(engine.train(model, tuple(CLIENTS), 3).vectors, everybody.vectors)
    assert not case.agrees(engine.train(model, ("ada",), 4).vectors[0], everybody.vectors[0])
    assert bool((everybody.vectors.abs().sum(dim=1) > 0).all())


def test_training_leaves_the_generators_of_the_program_alone(case: Case) -> None:
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    expected = torch.rand(3), float(np.random.rand())  # noqa: NPY002
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    case.engine.train(model_of(case.loaded.network), ("ada",), 1)
    assert torch.equal(torch.rand(3), expected[0])
    assert float(np.random.rand()) == expected[1]  # noqa: NPY002


def test_engines_agree_with_the_reference(case: Case) -> None:
    model = model_of(case.loaded.network)
    updates = case.engine.train(model, tuple(CLIENTS), 2)
    assert updates.trainer == case.engine.choice.name  # type: ignore[attr-defined]
    theirs = reference(case.loaded).train(model, tuple(CLIENTS), 2).vectors
    if case.rounding and case.name in RANDOM:
        assert not case.agrees(updates.vectors, theirs)
        return
    assert all(case.agrees(*pair) for pair in zip(updates.vectors, theirs, strict=True))


def test_fewer_epochs_are_those_of_the_settings(case: Case) -> None:
    if case.rounding and case.name in RANDOM:
        return
    model = model_of(case.loaded.network)
    fewer = reference(case.loaded, TRAINING.model_copy(update={"epochs": 1})).train(model, ("bob",), 2).vectors
    assert case.agrees(case.engine.train(model, ("bob",), 2, epochs=1).vectors, fewer)


def test_metrics_are_what_the_task_measures(case: Case) -> None:
    evaluation = case.engine.evaluate(model_of(case.loaded.network))
    if case.loaded.test is None:
        assert evaluation is None
        return
    network = copy.deepcopy(case.loaded.network).eval()
    with torch.no_grad():
        expected = case.loaded.task.evaluate(network, case.loaded.test)
    assert evaluation is not None
    assert evaluation.metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert math.isclose(evaluation.metrics[name], value, rel_tol=1e-5, abs_tol=1e-6)


# -- which engine -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(UNSTACKABLE))
def test_what_cannot_be_stacked_says_why(name: str) -> None:
    with pytest.raises(CannotStack) as refused:
        StackedTasks(TaskWorkload(load_named(name), TRAINING, SEED))
    assert UNSTACKABLE[name] in str(refused.value)
    assert refused.value.runs_here


class _Branches(nn.Linear):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return super().forward(rows if rows.sum() > 0 else -rows)


class _Precise(nn.Linear):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return super().forward(rows.double())


class _Counts(nn.Linear):
    def __init__(self) -> None:
        super().__init__(6, 2)
        self.steps: torch.Tensor
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return super().forward(rows)


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 2, batch_first=True)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.layer(rows.unflatten(1, (2, 3)))[0][:, -1]
        return states


def _scheduled(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return optimizer


class _OwnSGD(torch.optim.SGD):
    """Not the one that is known."""


def _parts(**changes: Any) -> disavow.Task:
    rows = {
        client: (np.ones((samples, 6), np.float32), np.zeros(samples, int)) for client, samples in CLIENTS.items()
    }
    parts: dict[str, Any] = {"model": lambda: nn.Linear(6, 2), "clients": rows}
    return disavow.task(**(parts | changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": lambda: _Branches(6, 2)}, "data-dependent"),
        ({"model": _Counts}, "steps"),
        ({"model": _Recurrent}, "lstm"),
        ({"model": lambda: nn.BatchNorm1d(6, momentum=None)}, "counter"),
        ({"model": lambda: _Precise(6, 2).double()}, "float64"),
        ({"model": lambda: nn.Linear(5, 2)}, "does not run"),
        ({"optimizer": _scheduled}, "schedule"),
        ({"optimizer": lambda p: _OwnSGD(p, lr=0.1)}, "_OwnSGD"),
        ({"loss": lambda out, labels: out.mean() * float(np.random.rand())}, "random"),  # noqa: NPY002
    ],
    ids=["branches", "counts", "LSTM", "cumulative", "float64", "defect", "schedule", "subclass", "NumPy"],
)
def test_models_losses_and_optimizers_that_cannot_be_stacked(changes: dict[str, Any], named: str) -> None:
    loaded = load(_parts(**changes), training=TRAINING, seed=SEED)
    with pytest.raises(CannotStack) as refused:
        StackedTasks(TaskWorkload(loaded, TRAINING, SEED))
    assert named in str(refused.value)


def test_an_engine_that_fails_on_later_samples_lets_the_reference_train(caplog: pytest.LogCaptureFixture) -> None:
    def picky(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if len(outputs) == 1:  # the last sample of cyd, which a trial does not reach
            return outputs.sum() * float(outputs.detach().sum())
        return functional.cross_entropy(outputs, labels)

    loaded = load(_parts(loss=picky), training=TRAINING, seed=SEED)
    workload = TaskWorkload(loaded, TRAINING, SEED)
    engine = TaskEngine(workload, StackedTasks(workload))
    model = model_of(loaded.network)
    updates = engine.train(model, ("cyd", "dan"), 1)
    assert torch.equal(updates.vectors, reference(loaded).train(model, ("cyd", "dan"), 1).vectors)
    assert engine.choice.name == updates.trainer == "sequential"
    assert [name for name, _ in engine.choice.passed_over] == ["stacked"]


def test_a_stacked_client_that_draws_is_the_same_whoever_is_beside_it() -> None:
    loaded = load_named("dropout")
    engine = StackedTasks(TaskWorkload(loaded, TRAINING, SEED))
    model = model_of(loaded.network)
    alone = engine.train(model, ("bob",), 1).vectors[0]
    together = engine.train(model, ("dan", "bob", "ada"), 1).vectors[1]
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-6)
    engine._at_most = 1  # as where memory is short
    torch.testing.assert_close(engine.train(model, ("dan", "bob"), 1).vectors[1], alone, rtol=1e-5, atol=1e-6)


def test_an_object_of_an_importable_class_trains_in_other_processes(workers: PoolTrainer) -> None:
    loaded = load(zoo.ReportsProcess(), training=TRAINING, seed=SEED)
    engine = PooledTasks(TaskWorkload(loaded, TRAINING, SEED), EngineChoice("pool"), workers)
    updates = engine.train(model_of(loaded.network), tuple(CLIENTS), 1)
    processes = {int(number) for number in updates.vectors[:, 0]}
    assert os.getpid() not in processes


def test_a_task_that_comes_out_otherwise_in_a_worker_trains_here(workers: PoolTrainer) -> None:
    loaded = load(zoo.OtherData(), training=TRAINING, seed=SEED)
    workload = TaskWorkload(loaded, TRAINING, SEED)
    engine = TaskEngine(workload, PooledTasks(workload, EngineChoice("pool"), workers))  # which this ends
    model = model_of(loaded.network)
    expected = reference(loaded).train(model, tuple(CLIENTS), 1).vectors
    assert torch.equal(engine.train(model, tuple(CLIENTS), 1).vectors, expected)
    assert engine.choice.name == "sequential"
    assert "ada" in str(engine.choice)


@pytest.mark.parametrize(
    ("make", "settings", "expected"),
    [
        (lambda: load_named("tabular"), CPU, ("pool", "compiled", "stacked")),
        (lambda: load(tabular(), training=TRAINING, seed=SEED), CPU, ("sequential", "pool", "compiled", "stacked")),
        (
            lambda: load_named("tabular"),
            EngineSettings(name="sequential", device="cpu"),
            ("sequential", "others"),
        ),
        (lambda: load_named("own loop"), CPU, ("pool", "compiled", "stacked")),
    ],
    ids=["named", "object", "asked for", "own loop"],
)
def test_the_engine_says_why_no_faster_one_trains(
    make: Callable[[], LoadedTask],
    settings: EngineSettings,
    expected: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("disavow.engines.task_engine.cores", lambda: 2)
    engine = build_for_task(make(), TRAINING, SEED, settings)
    choice: EngineChoice = engine.choice  # type: ignore[attr-defined]
    assert (choice.name, *(name for name, _ in choice.passed_over)) == expected
    assert all(reason for _, reason in choice.passed_over)
    assert EngineChoice.from_text(choice.to_text()) == choice
    engine.close()


def test_a_class_of_the_script_itself_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(zoo.ReportsProcess(), training=TRAINING, seed=SEED)
    workload = TaskWorkload(loaded, TRAINING, SEED)
    assert why_unsendable(workload) is None
    monkeypatch.setattr(zoo.ReportsProcess, "__module__", "__main__")
    assert "ReportsProcess" in str(why_unsendable(workload))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("plain", "tabular"):
        with refuses(ConfigError, "engine.device"):
            build_for_task(load_named(name), TRAINING, SEED, EngineSettings(device="cuda"))
    with refuses(ConfigError, "engine.precision"):
        build_for_task(load_named("tabular"), TRAINING, SEED, EngineSettings(precision="tf32"))


# -- the reference ------------------------------------------------------------------------------------------------


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


def test_counters_of_a_client_are_not_those_of_the_one_before() -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 2), nn.BatchNorm1d(2, momentum=None))

    engine = reference(load(_parts(model=model), training=TRAINING, seed=SEED))
    broadcast = model_of(model())
    [alone] = engine.train(broadcast, ("dan",), 1).vectors
    assert torch.equal(engine.train(broadcast, ("bob", "dan"), 1).vectors[1], alone)


def test_the_loop_is_the_one_that_anybody_would_write() -> None:
    loaded = load(tabular(), training=TRAINING, seed=SEED)
    engine = build_for_task(loaded, TRAINING, SEED, EngineSettings(name="sequential", device="cpu"))
    update = engine.train(model_of(loaded.network), ("cyd",), 1).vectors[0]
    network = copy.deepcopy(loaded.network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
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
    for make in TASKS.values():
        with pytest.raises(NotRecognised):
            recognise(load(make(), training=TRAINING, seed=SEED), TRAINING, SEED)


# -- what users get wrong, on every engine ------------------------------------------------------------------------


def _engine_of(kind: str, task: disavow.Task) -> Engine:
    """An engine of this kind, on a CPU: `known` are those of tasks that kernels and stacks recognise."""
    loaded = load(task, training=TRAINING, seed=SEED)
    own = TaskWorkload(loaded, TRAINING, SEED)
    if kind == "sequential":
        return TaskEngine(own, SequentialEngine(own))
    if kind == "stacked":
        return TaskEngine(own, StackedTasks(own))
    known = recognise(loaded, TRAINING, SEED)
    trainer = PoolTrainer() if kind == "known, pool" else StackedTrainer(torch.device("cpu"))
    engine = SequentialEngine(known) if kind == "known, sequential" else VectorisedEngine(known, trainer)
    return TaskEngine(own, engine, evaluated_by=engine)


ENGINES = ["sequential", "stacked", "known, sequential", "known, pool", "known, stacked"]


class _Picky(nn.BatchNorm1d):
    """Refuses a batch of one sample in training, as batch norm does, and more than one otherwise."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if not self.training and len(rows) > 1:
            raise LookupError("not in evaluation")
        return super().forward(rows)


@pytest.mark.parametrize("kind", ENGINES)
def test_a_batch_that_the_model_cannot_take_names_client_round_and_shapes(kind: str) -> None:
    engine = _engine_of(kind, _parts(model=lambda: _Picky(6), test=_parts().clients()["bob"]))
    model = model_of(_Picky(6))
    engine.train(model, ("bob", "dan"), 7)  # whose batches are all of four
    with refuses(TaskError, "client cyd", "round 7", "(float32(1, 6), int64(1,))", "ValueError"):
        engine.train(model, ("bob", "cyd"), 7)
    with refuses(TaskError, "evaluation", "not in evaluation"):
        engine.evaluate(model)
    engine.close()


@pytest.mark.parametrize("kind", ["sequential", "stacked"])
def test_a_loss_that_is_not_finite_refuses_the_round_and_names_the_client(kind: str) -> None:
    rows = {"bob": (torch.ones(4, 1), torch.ones(4, 1)), "ada": (torch.ones(4, 1), torch.full((4, 1), torch.inf))}
    task = disavow.task(model=lambda: nn.Linear(1, 1), clients=rows, loss=functional.mse_loss)
    with refuses(RoundRefused, "ada", "round 6"):
        _engine_of(kind, task).train(model_of(task.model()), ("bob", "ada"), 6)


class _Scheduled(zoo.Regression):
    def learning_rate_factor(self, round_number: int) -> Any:
        return None


class _NoOptimizer(zoo.Regression):
    def optimizer(self, model: nn.Module) -> Any:
        raise KeyError("adam")


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (_Scheduled(), ["_Scheduled.learning_rate_factor()", "TypeError"]),
        (_NoOptimizer(), ["_NoOptimizer.optimizer()", "KeyError", "test_task_engine.py:"]),
        (_parts(optimizer=lambda parameters: 0.1), ["disavow.task(optimizer=...)", "float"]),
        (_parts(clients={"ada": [(torch.ones(6), 0), (torch.ones(5), 0)]}), ["client ada", "round 3", "read"]),
    ],
    ids=["schedule", "optimizer raises", "no optimizer", "ragged"],
)
def test_what_is_no_optimizer_no_factor_and_no_batch_is_refused_by_name(
    task: disavow.Task, named: list[str]
) -> None:
    with refuses(TaskError, *named):
        _engine_of("sequential", task).train(model_of(task.model()), ("ada",), 3)


def test_test_data_that_is_no_tensor_is_measured_by_the_task_itself() -> None:
    inputs, labels = _parts().clients()["dan"]
    pairs = [(torch.as_tensor(row), int(label)) for row, label in zip(inputs, labels, strict=True)]
    engine = build_for_task(load(_parts(test=pairs), training=TRAINING, seed=SEED), TRAINING, SEED, CPU)
    evaluation = engine.evaluate(model_of(_parts().model()))
    assert evaluation is not None
    assert math.isfinite(evaluation.loss)
    engine.close()


@pytest.mark.parametrize("metric", ["accuracy/ada", "ada", "f1_ada"])
def test_a_metric_that_is_named_after_a_client_is_refused(metric: str) -> None:
    task = _parts(test=_parts().clients()["bob"], metrics={metric: lambda outputs, labels: 0.5})
    with refuses(TaskError, repr(metric), "client ada"):
        _engine_of("sequential", task).evaluate(model_of(task.model()))


def test_names_of_metrics_may_be_anything_else() -> None:
    metrics = {name: lambda outputs, labels: 0.5 for name in ("top-1", "adaptive", "self", "[red]\n", "", "loss")}
    rows = {"1": _parts().clients()["ada"], "loss": _parts().clients()["bob"]}
    task = _parts(clients=rows, test=rows["1"], metrics=metrics)
    evaluation = _engine_of("sequential", task).evaluate(model_of(task.model()))
    assert evaluation is not None
    assert evaluation.metrics == dict.fromkeys(metrics, 0.5)
