"""The ways a launch can run, with stand-ins for what only a GPU has."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from disavow.engines.stacked import StackedTrainer, launcher, plan
from disavow.engines.stacked.step import Advance, Step
from disavow.engines.stacked.ways import GRAPH_FROM, Ways
from tests.engines.stacked.federations import AGREEMENT, CPU, Tiny, a_workload, an_ask, deviation, reference

CUDA = torch.device("cuda")
SIZES = [9, 20, 3, 16, 16, 30, 1]


class Recorder:
    """Stands in for CUDA graphs: what is captured is done on the way, and replayed by doing it again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captures = self.replays = 0
        monkeypatch.setattr(Ways, "captures", lambda ways, launches: launches >= GRAPH_FROM and not ways.closed)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
        monkeypatch.setattr(launcher, "captured", self.captured)

    def captured(self, work: Callable[[], None], pool: object) -> Callable[[], None]:
        assert pool == (0, 0)
        self.captures += 1
        work()
        work()

        def replay() -> None:
            self.replays += 1
            work()

        return replay


@pytest.mark.parametrize("network", ["lenet5", "resnet-mini"])
def test_captured_launches_are_replayed_in_later_calls_and_disturb_nobody(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, trainer = Recorder(monkeypatch), StackedTrainer(CPU)
    ask = an_ask(a_workload(SIZES, network))
    [first] = trainer.train([ask])
    captures, replays = recorder.captures, recorder.replays
    assert 0 < captures < replays
    [second] = trainer.train([ask])
    assert (recorder.captures, recorder.replays) == (captures, 2 * replays)
    assert torch.equal(first.vectors, second.vectors)
    assert deviation(first.vectors, reference(ask).vectors) < AGREEMENT


def test_a_shrinking_set_of_clients_needs_few_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, trainer = Recorder(monkeypatch), StackedTrainer(CPU)
    workload = a_workload([8] * 50, Tiny())
    whole = an_ask(workload)
    for leavers in range(5):
        ask = type(whole)(workload, whole.model, whole.clients[leavers:], 1)
        [updates] = trainer.train([ask])
        assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT
    # 50, 49 -> 50; 48, 47 -> 48; 46
    assert recorder.captures == 3


def test_more_clients_than_before_take_a_larger_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    Recorder(monkeypatch)
    trainer, workload = StackedTrainer(CPU), a_workload(SIZES)
    whole = an_ask(workload)
    for clients in (whole.clients[:2], whole.clients, whole.clients[3:]):
        ask = type(whole)(workload, whole.model, clients, 1)
        [updates] = trainer.train([ask])
        assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_a_capture_that_fails_is_told_once_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    Recorder(monkeypatch)

    def captured(work: Callable[[], None], pool: object) -> Callable[[], None]:
        work()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(launcher, "captured", captured)
    trainer, ask = StackedTrainer(CPU), an_ask(a_workload(SIZES))
    with pytest.warns(RuntimeWarning, match="capturing a CUDA graph failed.*not permitted") as caught:
        [updates] = trainer.train([ask])
    assert len(caught) == 1
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.train([ask])


def test_running_out_of_memory_while_capturing_is_a_matter_of_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    tried = []

    def captured(work: Callable[[], None], pool: object) -> Callable[[], None]:
        tried.append(pool)
        if len(tried) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return recorder.captured(work, pool)

    monkeypatch.setattr(launcher, "captured", captured)
    ask = an_ask(a_workload(SIZES))
    [updates] = StackedTrainer(CPU).train([ask])
    assert len(tried) > 1
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_a_compiler_that_fails_is_told_once_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(step: Step) -> Advance:
        def advance(*inputs: Any) -> Any:
            raise RuntimeError("Cannot find a working triton installation")

        return advance

    monkeypatch.setattr(launcher, "compiled", compiled)
    trainer, ask = StackedTrainer(CPU, compile="always"), an_ask(a_workload(SIZES))
    with pytest.warns(RuntimeWarning, match="compiling a step failed.*triton") as caught:
        [updates] = trainer.train([ask])
    assert len(caught) == 1
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_what_is_compiled_is_used_for_every_launch_of_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def compiled(step: Step) -> Advance:
        def advance(*inputs: Any) -> Any:
            calls.append(inputs[0].shape)
            return step(*inputs)

        return advance

    monkeypatch.setattr(launcher, "compiled", compiled)
    trainer, ask = StackedTrainer(CPU, compile="always"), an_ask(a_workload([16] * 7))
    [updates] = trainer.train([ask])
    # once to compile, then two batches in each of two epochs
    assert len(calls) == 1 + 4
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_a_compiled_step_agrees_with_the_reference() -> None:
    # a real compilation, of the smallest network there is, because each takes seconds
    ask = an_ask(a_workload([8, 8, 8], Tiny()))
    trainer = StackedTrainer(CPU, compile="always")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        [updates] = trainer.train([ask])
    if any("compiling a step failed" in str(warning.message) for warning in caught):
        pytest.skip("there is no compiler here")
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_all_numbers_of_a_call_go_over_in_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def counted(numbers: plan.Ints, device: torch.device) -> torch.Tensor:
        sent.append(len(numbers))
        return torch.from_numpy(numbers)

    monkeypatch.setattr(plan, "sent", counted)
    StackedTrainer(CPU).train([an_ask(a_workload(SIZES)), an_ask(a_workload([40], seed=2))])
    assert len(sent) == 1


def test_on_a_cpu_nothing_is_compiled_captured_or_padded_unless_asked_for() -> None:
    ways = Ways(CPU)
    assert not ways.compiles
    assert not ways.captures(10**6)
    assert not ways.fixed_widths
    assert Ways(CPU, compile="always").compiles


def test_on_a_gpu_what_is_launched_often_is_captured_and_nothing_is_compiled_unasked() -> None:
    ways = Ways(CUDA)
    assert not ways.compiles
    assert ways.captures(GRAPH_FROM)
    assert not ways.captures(GRAPH_FROM - 1)
    assert ways.fixed_widths


def test_what_failed_or_is_not_wanted_is_not_tried() -> None:
    for ways in (
        Ways(CUDA, compile="always", closed={"compile", "graphs"}),
        Ways(CUDA, compile="never", graphs="never"),
    ):
        assert not ways.compiles
        assert not ways.captures(10**6)
        assert not ways.fixed_widths


def test_the_client_axis_can_be_exact() -> None:
    assert Ways(CPU, client_axis="padded").fixed_widths
    assert not Ways(CUDA, client_axis="exact").fixed_widths
