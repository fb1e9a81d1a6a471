"""Tasks on a GPU. Run there with `pytest tests/engines/stacked/test_cuda_tasks.py`."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from disavow.config import EngineSettings
from disavow.domain import EngineChoice
from disavow.engines.stacked.tasks import StackedTasks
from disavow.engines.state import model_of
from disavow.engines.task_engine import TaskEngine, build_for_task
from disavow.engines.task_workload import TaskWorkload
from disavow.errors import ConfigError
from tests.engines.test_task_engine import (
    RANDOM,
    SEED,
    STACKED,
    TRAINING,
    UNSTACKABLE,
    load_named,
    reference,
)
from tests.refusals import refuses
from tests.tasks.zoo import CLIENTS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")

CUDA = EngineSettings(device="cuda")


def built(name: str, settings: EngineSettings = CUDA) -> Any:
    return build_for_task(load_named(name), TRAINING, SEED, settings)


@pytest.mark.parametrize("name", STACKED)
def test_stacked_clients_agree_with_the_reference_on_a_cpu_and_repeat_themselves(name: str) -> None:
    loaded = load_named(name)
    workload = TaskWorkload(loaded, TRAINING, SEED, torch.device("cuda"))
    engine = TaskEngine(workload, StackedTasks(workload))
    model = model_of(loaded.network)
    updates = engine.train(model, tuple(CLIENTS), 2)
    assert updates.trainer == "stacked"
    assert updates.vectors.device.type == "cpu"
    assert torch.equal(updates.vectors, engine.train(model, tuple(CLIENTS), 2).vectors)
    again = TaskEngine(workload, StackedTasks(workload))
    assert torch.equal(updates.vectors, again.train(model, tuple(CLIENTS), 2).vectors)
    if name in RANDOM:  # masks come from keys, the same on every device
        on_cpu = TaskWorkload(loaded, TRAINING, SEED)
        expected = StackedTasks(on_cpu).train(model, tuple(CLIENTS), 2).vectors
    else:
        expected = reference(loaded).train(model, tuple(CLIENTS), 2).vectors
    for ours, theirs in zip(updates.vectors, expected, strict=True):
        assert float((ours - theirs).norm()) <= 1e-3 * float(theirs.norm())


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_the_engine_of_each_task_and_why(device: Literal["auto", "cuda"]) -> None:
    settings = EngineSettings(device=device)
    names = {name: built(name, settings).choice.name for name in ("tabular", "recurrent text", "own loop", "plain")}
    own_loop = "sequential on cuda" if device == "cuda" else "pool"
    assert names == {
        "tabular": "stacked",
        "recurrent text": "sequential on cuda",
        "own loop": own_loop,
        "plain": "fused",
    }


def test_code_that_makes_tensors_on_the_cpu_trains_there_unless_a_gpu_was_asked_for() -> None:
    """The regression draws its noise on the CPU."""
    assert built("regression", EngineSettings()).choice.name == "pool"
    choice: EngineChoice = built("regression").choice
    assert choice.name == "sequential on cuda"


@pytest.mark.parametrize("name", sorted(UNSTACKABLE.keys() - {"regression", "own loop"}))
def test_one_client_after_the_other_on_a_gpu_repeats_itself(name: str) -> None:
    engine, model = built(name), model_of(load_named(name).network)
    first = engine.train(model, tuple(CLIENTS), 1)
    assert torch.equal(first.vectors, engine.train(model, tuple(CLIENTS), 1).vectors)
    expected = reference(load_named(name)).train(model, tuple(CLIENTS), 1).vectors
    assert float((first.vectors - expected).norm()) <= 1e-2 * float(expected.norm())


def test_evaluation_on_a_gpu_is_that_of_the_cpu() -> None:
    loaded = load_named("tabular")
    model = model_of(loaded.network)
    ours, theirs = built("tabular").evaluate(model), reference(loaded).evaluate(model)
    assert ours.metrics["accuracy"] == theirs.metrics["accuracy"]
    assert ours.metrics["loss"] == pytest.approx(theirs.metrics["loss"], rel=1e-4)


def test_a_stack_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_named("tabular")
    workload = TaskWorkload(loaded, TRAINING, SEED, torch.device("cuda"))
    engine, model = StackedTasks(workload), model_of(loaded.network)
    expected = engine.train(model, tuple(CLIENTS), 1).vectors
    whole = engine._train_stack

    def short(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if len(args[1]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(*args)

    monkeypatch.setattr(engine, "_train_stack", short)
    torch.testing.assert_close(engine.train(model, tuple(CLIENTS), 1).vectors, expected, rtol=1e-4, atol=1e-6)


def test_precisions_that_tasks_do_not_have_are_refused() -> None:
    with refuses(ConfigError, "engine.precision"):
        built("tabular", EngineSettings(precision="bf16"))
    assert built("tabular", EngineSettings(precision="tf32")).choice.name == "stacked"
