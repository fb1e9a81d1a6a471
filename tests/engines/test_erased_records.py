"""What every engine owes a record that was erased: it trains what a task that never held it trains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from disavow.config import EngineSettings, TrainingSettings
from disavow.domain import EngineChoice, Exclusions
from disavow.engines import build as build_for_images
from disavow.engines.fused import FusedTrainer, nvrtc
from disavow.engines.pool import PoolTrainer
from disavow.engines.pool.worker import save_workload
from disavow.engines.sequential import SequentialEngine
from disavow.engines.stacked import StackedTrainer
from disavow.engines.stacked.tasks import StackedTasks
from disavow.engines.state import model_of
from disavow.engines.task_engine import PooledTasks, TaskEngine, Trains, build_for_task, recognise
from disavow.engines.task_workload import TaskWorkload
from disavow.engines.trainer import VectorisedEngine
from disavow.engines.workload import Workload, image_workload
from disavow.tasks import ImageTask, image_task
from disavow.tasks.loading import LoadedTask, load
from tests.engines.fused.emulator import COMPILER, Emulator
from tests.engines.pool.builders import with_workers_ready
from tests.engines.pool.forked_workers import forked_pool
from tests.selection import some_of
from tests.tasks.recorded import ERASED, EXCLUSIONS, KINDS, loaded, never_held

SEED = 5
TRAINING = TrainingSettings(epochs=2, batch_size=4, learning_rate=0.05)
CPU = EngineSettings(device="cpu")
ROUNDING = {"sequential": 0.0, "pool": 0.0, "stacked": 1e-5, "compiled": 1e-5, "fused": 1e-5}
"""How far each engine may be from the reference, as a share of the update."""

UNSTACKABLE = {"datasets", "loop"}
"""A loop of the user's own is not stacked; a stack of what draws while it reads draws in another order."""

GPU = torch.cuda.is_available()


@pytest.fixture(scope="module")
def workers() -> Iterator[PoolTrainer]:
    """Two worker processes, up and running."""
    with forked_pool() as trainer:
        yield with_workers_ready(trainer)


@pytest.fixture(scope="module")
def fused_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[torch.device]:
    """The GPU where there is one; else the kernels are emulated."""
    if GPU:
        yield torch.device("cuda")
        return
    if COMPILER is None:
        pytest.skip("there is neither a GPU nor a compiler here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "compile_kernel", Emulator(tmp_path_factory.mktemp("emulated")))
        yield torch.device("cpu")


def tasks_of(kind: str) -> tuple[LoadedTask, LoadedTask]:
    """A task without erased records, and the one that never held them."""
    if kind != "images":
        return loaded(kind).without(EXCLUSIONS), never_held(kind)
    whole = image_task("digits", model="convnet", clients=4, test_fraction=0.97).read(SEED, lambda *_: None)
    task = load(whole, training=TRAINING, seed=SEED)
    gone = {client: (task.record_keys(client) or ())[1::3] for client in ("client-01", "client-03")}
    erased = {client: Exclusions(bytes(32)).adding(records) for client, records in gone.items()}
    parts = {
        client: part[[str(i) not in gone.get(client, ()) for i in part.tolist()]]
        for client, part in whole.data.parts.items()
    }
    never = ImageTask(whole._data_settings, whole._model_settings, replace(whole.data, parts=parts))
    return task.without(erased), load(never, training=TRAINING, seed=SEED)


def kernels_of(task: LoadedTask) -> Workload:
    """The task as kernels know it."""
    if isinstance(task.task, ImageTask):
        return image_workload(task.task, task.network, TRAINING, SEED)
    return recognise(task, TRAINING, SEED)


def engine_of(kind: str, task: LoadedTask, request: pytest.FixtureRequest) -> Trains:
    """The engine of this name for a task without records."""
    if kind == "fused" or isinstance(task.task, ImageTask):
        known = kernels_of(task)
        return SequentialEngine(known) if kind == "sequential" else trainer_of(kind, known, request)
    workload = TaskWorkload(task, TRAINING, SEED)
    if kind == "pool":
        return PooledTasks(workload, EngineChoice("pool"), request.getfixturevalue("workers"))
    if kind == "compiled":
        engine = build_for_task(task, TRAINING, SEED, CPU)
        assert isinstance(engine, TaskEngine)
        if "compiled" not in str(engine.choice):
            pytest.skip("there is no compiler")
        return engine
    return SequentialEngine(workload) if kind == "sequential" else StackedTasks(workload)


def trainer_of(kind: str, known: Workload, request: pytest.FixtureRequest) -> Trains:
    """The trainer of this name for what kernels know."""
    if kind == "pool":
        return VectorisedEngine(known, request.getfixturevalue("workers"))
    if kind == "stacked":
        return VectorisedEngine(known, StackedTrainer(torch.device("cpu")))
    if kind == "compiled":
        engine = build_for_images(known, CPU)
        if "compiled" not in str(engine.choice):
            pytest.skip("there is no compiler")
        return engine
    channels, height, width = known.images.shape[1:]
    device = request.getfixturevalue("fused_device")
    return VectorisedEngine(known, FusedTrainer(known.network, (channels, height, width), device))


CASES = [
    *((kind, "sequential") for kind in (*sorted(KINDS), "images")),
    *((kind, "pool") for kind in (*sorted(KINDS), "images")),
    *((kind, "stacked") for kind in (*sorted(KINDS), "images") if kind not in UNSTACKABLE),
    *((kind, engine) for kind in ("plain", "images") for engine in ("compiled", "fused")),
]


SENT = {"arrays", "images", "loop"}
"""Kinds that `make test` trains in worker processes too, with the code of the reference; `make torture`, all."""


@pytest.mark.parametrize(("kind", "name"), some_of(CASES, lambda case: case[1] != "pool" or case[0] in SENT))
def test_without_records_every_engine_trains_what_a_task_trains_that_never_held_them(
    kind: str, name: str, request: pytest.FixtureRequest
) -> None:
    left, never = tasks_of(kind)
    model, clients = model_of(never.network), tuple(never.samples)
    if isinstance(never.task, ImageTask):
        reference: SequentialEngine[object] = SequentialEngine(kernels_of(never))
    else:
        reference = SequentialEngine(TaskWorkload(never, TRAINING, SEED))
    expected = reference.train(model, clients, 2)
    found = engine_of(name, left, request).train(model, clients, 2)
    assert found.samples == expected.samples
    if ROUNDING[name] == 0.0:
        assert torch.equal(found.vectors, expected.vectors)
    else:
        apart = (found.vectors.cpu() - expected.vectors).norm(dim=1)
        assert bool((apart <= ROUNDING[name] * expected.vectors.norm(dim=1)).all())


def test_the_records_mattered() -> None:
    whole, never = loaded("arrays"), never_held("arrays")
    model, clients = model_of(whole.network), tuple(whole.samples)
    ours, theirs = (
        SequentialEngine(TaskWorkload(each, TRAINING, SEED)).train(model, clients, 2).vectors
        for each in (whole, never)
    )
    changed = [client for client, a, b in zip(clients, ours, theirs, strict=True) if not torch.equal(a, b)]
    assert changed == list(ERASED)


def test_worker_processes_are_sent_no_key_of_a_record(workers: PoolTrainer) -> None:
    workload = TaskWorkload(loaded("arrays").without(EXCLUSIONS), TRAINING, SEED)
    sent = save_workload(workload)
    assert all(record.encode() not in sent for records in ERASED.values() for record in records)
    PooledTasks(workload, EngineChoice("pool"), workers).train(model_of(workload.network), ("ada", "dan"), 1)
    for worker in workers._workers:
        command = Path(f"/proc/{worker._process.pid}/cmdline")
        if command.exists():
            assert all(record.encode() not in command.read_bytes() for each in ERASED.values() for record in each)
