"""Captured steps, with a stand-in for what only a GPU has; see `test_cuda` for the real ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from disavow.config import TrainingSettings
from disavow.engines.stacked import StackedTrainer, step, trainer
from disavow.engines.stacked.step import SGD
from tests.engines.stacked.workloads import AGREEMENT, CPU, Tiny, a_workload, an_ask, deviation, reference

SIZES = [9, 20, 3, 16, 16, 30, 1]


class Graph:
    """Stands in for a CUDA graph: replaying it does the work again."""

    def __init__(self, recorder: Recorder, work: Callable[[], None]) -> None:
        self._recorder, self._work = recorder, work

    def replay(self) -> None:
        self._recorder.replays += 1
        self._work()


class Recorder:
    """Stands in for capturing, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captures = self.replays = 0
        monkeypatch.setattr(step, "captured", self.captured)

    def captured(self, work: Callable[[], None], pool: object) -> Graph:
        self.captures += 1
        work()
        work()
        return Graph(self, work)


def a_capturing_trainer() -> StackedTrainer:
    made = StackedTrainer(CPU)
    made._captures = True
    return made


@pytest.mark.parametrize("network", ["lenet5", "resnet-mini"])
def test_captured_steps_are_replayed_in_later_calls_and_disturb_nobody(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, trainer = Recorder(monkeypatch), a_capturing_trainer()
    ask = an_ask(a_workload(SIZES, network))
    [first] = trainer.train([ask])
    captures, replays = recorder.captures, recorder.replays
    assert 0 < captures < replays
    [second] = trainer.train([ask])
    assert (recorder.captures, recorder.replays) == (captures, 2 * replays)
    assert torch.equal(first.vectors, second.vectors)
    assert deviation(first.vectors, reference(ask).vectors) < AGREEMENT


def test_a_shrinking_set_of_clients_needs_few_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, trainer = Recorder(monkeypatch), a_capturing_trainer()
    whole = an_ask(a_workload([8] * 50, Tiny()))
    for leavers in range(5):
        ask = replace(whole, clients=whole.clients[leavers:])
        [updates] = trainer.train([ask])
        assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT
    # 50, 49 -> 50; 48, 47 -> 48; 46
    assert recorder.captures == 3


def test_more_clients_than_before_take_a_larger_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    Recorder(monkeypatch)
    trainer, whole = a_capturing_trainer(), an_ask(a_workload(SIZES))
    for clients in (whole.clients[:2], whole.clients, whole.clients[3:]):
        ask = replace(whole, clients=clients)
        [updates] = trainer.train([ask])
        assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_no_more_than_a_few_shapes_stay_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, trainer = Recorder(monkeypatch), a_capturing_trainer()
    monkeypatch.setattr(step, "_CAPTURED", 2)
    for size in (8, 7, 6, 8):
        ask = an_ask(a_workload([size] * 3, Tiny()))
        [updates] = trainer.train([ask])
        assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT
    assert recorder.captures == 4


def test_a_capture_that_fails_is_told_once_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(work: Callable[[], None], pool: object) -> Graph:
        work()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(step, "captured", captured)
    trainer, ask = a_capturing_trainer(), an_ask(a_workload(SIZES))
    with pytest.warns(RuntimeWarning, match="capturing a CUDA graph failed") as caught:
        [updates] = trainer.train([ask])
    assert len(caught) == 1
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.train([ask])


def test_running_out_of_memory_while_capturing_is_a_matter_of_fewer_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder, tried = Recorder(monkeypatch), list[object]()

    def captured(work: Callable[[], None], pool: object) -> Graph:
        tried.append(pool)
        if len(tried) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return recorder.captured(work, pool)

    monkeypatch.setattr(step, "captured", captured)
    ask = an_ask(a_workload(SIZES))
    [updates] = a_capturing_trainer().train([ask])
    assert len(tried) > 1
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


def test_on_a_cpu_nothing_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    StackedTrainer(CPU).train([an_ask(a_workload(SIZES))])
    assert recorder.captures == 0


def test_all_numbers_of_a_stack_go_over_in_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, send = list[int](), trainer.to_device

    def counted(numbers: trainer.Ints, device: torch.device) -> torch.Tensor:
        sent.append(len(numbers))
        return send(numbers, device)

    monkeypatch.setattr(trainer, "to_device", counted)
    StackedTrainer(CPU).train([an_ask(a_workload(SIZES))])
    # which federation each client is of, its samples, and where its update goes
    assert len(sent) == 3


def test_sgd_is_that_of_torch() -> None:
    settings = TrainingSettings(learning_rate=0.1, momentum=0.9, weight_decay=0.2)
    generator = torch.Generator().manual_seed(1)
    start, *gradients = (torch.rand(3, 5, generator=generator) for _ in range(4))
    expected = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([expected], lr=0.1, momentum=0.9, weight_decay=0.2)
    parameters, state = start, {name: torch.zeros(3, 5) for name in SGD.state}
    rates = {name: torch.full((3, 1), float(getattr(settings, name))) for name in SGD.hyperparameters}
    for gradient in gradients:
        expected.grad = gradient.clone()
        optimizer.step()
        parameters, state = SGD.update(parameters, gradient, state, rates)
    torch.testing.assert_close(parameters, expected.detach())
