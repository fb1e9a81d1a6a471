"""Hand every engine models that are not its network's, in a process of its own: a crash is a finding too.

The compiled and fused kernels read memory by the numbers of their own network. A smaller model made them read past
its end, and the process died later, somewhere else.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from disavow.domain import Layout, TensorSpec
from disavow.engines.compiled import CompiledTrainer
from disavow.engines.compiled.build import NoKernels, load
from disavow.engines.fused import FusedTrainer, nvrtc
from disavow.engines.pool import PoolTrainer
from disavow.engines.sequential import SequentialEngine
from disavow.engines.stacked import StackedTrainer
from disavow.engines.trainer import VectorisedEngine
from disavow.errors import ModelMismatch
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model
from tests.cli import forked
from tests.engines.contract import PARTS, SHAPE, Case, a_case
from tests.engines.fused.emulator import COMPILER, Emulator

ROOT = Path(__file__).parents[2]
ENGINES = ("sequential", "compiled", "pool", "stacked", "fused")
FUZZED = 40


def make(name: str, case: Case, scratch: Path) -> Engine:
    """An engine of each kind, on the CPU."""
    device = torch.device("cpu")
    if name == "sequential":
        return SequentialEngine(case)
    if name == "compiled":
        return VectorisedEngine(case, CompiledTrainer(case.network, SHAPE))
    if name == "pool":
        return VectorisedEngine(case, PoolTrainer(2, start_after=0.0))
    if name == "stacked":
        return VectorisedEngine(case, StackedTrainer(device))
    nvrtc.compile_kernel = Emulator(scratch)
    return VectorisedEngine(case, FusedTrainer(case.network, SHAPE, device))


# -- models that are not the network's ----------------------------------------------------------------------------


def of_layout(tensors: list[TensorSpec]) -> Model:
    layout = Layout(tuple(tensors))
    return Model(layout, torch.zeros(layout.size))


def holding(model: Model, vector: torch.Tensor) -> Model:
    """The model with another vector than its layout says: what a subclass or a careless caller could make."""
    other = replace(model)
    object.__setattr__(other, "vector", vector)
    return other


def others(model: Model) -> Iterator[tuple[str, Model]]:
    """Models that are nearly right, one fault each, then random ones."""
    tensors, vector = list(model.layout.tensors), model.vector
    yield "without its last tensor", of_layout(tensors[:-1])
    yield "without its first tensor", of_layout(tensors[1:])
    yield "with one tensor more", of_layout([*tensors, TensorSpec("more.weight", (1000,))])
    yield "in another order", of_layout([*tensors[2:], *tensors[:2]])
    yield "under other names", of_layout([TensorSpec(f"module.{t.name}", t.shape) for t in tensors])
    yield "with another shape", of_layout([TensorSpec(tensors[0].name, tensors[0].shape[::-1]), *tensors[1:]])
    yield "of nothing", of_layout([])
    yield "of one number", of_layout([TensorSpec("x", (1,))])
    yield "with a shorter vector", holding(model, vector[:5].clone())
    yield "with a longer vector", holding(model, torch.zeros(10 * len(vector)))
    yield "with a table for a vector", holding(model, vector[None].clone())
    for dtype in (torch.float64, torch.float16, torch.int32, torch.complex64):
        yield f"in {dtype}", holding(model, vector.to(dtype))
    drawn = random.Random(1)
    for number in range(FUZZED):
        yield f"drawn {number}", of_layout(_mutated(tensors, drawn))


def _mutated(tensors: list[TensorSpec], drawn: random.Random) -> list[TensorSpec]:
    changes: list[Callable[[list[TensorSpec]], object]] = [
        lambda some: some.pop(drawn.randrange(len(some))),
        lambda some: some.insert(drawn.randrange(len(some) + 1), TensorSpec("x", (drawn.randrange(1, 3000),))),
        lambda some: some.reverse(),
        lambda some: some.__setitem__(0, TensorSpec(some[0].name, (*some[0].shape, drawn.randrange(2, 4)))),
    ]
    mutated = list(tensors)
    while mutated == tensors:
        for change in drawn.choices(changes, k=drawn.randrange(1, 4)):
            change(mutated)
    return mutated


# -- the process that is at risk ----------------------------------------------------------------------------------


def report(name: str, scratch: Path) -> None:
    """Print what became of every wrong model, and whether the engine still answers as before."""
    case = a_case()
    engine = make(name, case, scratch)
    before = None if name == "fused" else engine.train(case.model, list(PARTS), 1).vectors
    for fault, model in others(case.model):
        for verb, act in {
            "train": lambda model=model: engine.train(model, list(PARTS), 1),
            "train nobody": lambda model=model: engine.train(model, [], 1),
            "evaluate": lambda model=model: engine.evaluate(model),
        }.items():
            print(json.dumps([f"{verb} {fault}", _came_of(act)]), flush=True)
    if before is not None:
        same = torch.equal(engine.train(case.model, list(PARTS), 1).vectors, before)
        print(json.dumps(["afterwards", "ModelMismatch" if same else "another update"]), flush=True)
    engine.close()


def _came_of(act: Callable[[], object]) -> str:
    try:
        act()
    except ModelMismatch as refusal:
        return type(refusal).__name__ if str(refusal) else "no word"
    except Exception as error:  # any other is a finding
        return repr(error)
    return "no error"


@pytest.mark.parametrize("name", ENGINES)
def test_a_model_that_is_not_the_networks_is_refused(name: str) -> None:
    if name == "fused" and COMPILER is None:
        pytest.skip("there is no compiler to emulate the kernels with")
    if name == "compiled":
        try:
            load()
        except NoKernels as reason:
            pytest.skip(f"no kernels: {reason}")
    done = forked.module("tests.engines.test_other_models", name, cwd=ROOT)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(act, outcome) for act, outcome in said if outcome != "ModelMismatch"} == set()
    assert done.returncode == 0, done.stderr
    assert len(said) >= 3 * FUZZED


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        report(sys.argv[1], Path(folder))
