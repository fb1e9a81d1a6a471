"""What only a GPU can show. Run there with `pytest tests/engines/stacked/test_cuda.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch

from disavow.engines.stacked import StackedTrainer
from disavow.engines.stacked.step import ClientStack
from disavow.engines.stacked.trainer import _Prepared
from disavow.engines.trainer import Ask
from disavow.rounds.local_training import Engine
from tests.engines.contract import Case
from tests.engines.stacked.test_contract import OneFederation, StackedContract
from tests.engines.stacked.workloads import (
    AGREEMENT,
    SETTINGS,
    a_workload,
    agrees_but_for_kinks,
    an_ask,
    deviations,
    reference,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")

CUDA = torch.device("cuda", 0)
SIZES = [90, 200, 33, 160, 160, 300, 12]
TRAINING = SETTINGS.model_copy(update={"batch_size": 32, "momentum": 0.5, "learning_rate": 0.02})


def an_ask_of(network: str, sizes: list[int] | None = None, *, side: int = 28) -> Ask:
    return an_ask(a_workload(sizes or SIZES, network, side=side, settings=TRAINING))


class TestStackedOnCuda(StackedContract):
    """The whole contract, with CUDA graphs. Kernels differ from a CPU's, and batch norm multiplies that."""

    rounding = 1e-4

    def make(self, case: Case) -> Engine:
        return OneFederation(StackedTrainer(CUDA), case)


@pytest.mark.parametrize("graphs", ["auto", "never"])
@pytest.mark.parametrize("network", ["convnet", "lenet5", "resnet-mini"])
def test_it_agrees_with_the_reference(network: str, graphs: Literal["auto", "never"]) -> None:
    ask = an_ask_of(network)
    [updates] = StackedTrainer(CUDA, graphs=graphs).train([ask])
    assert updates.vectors.device == CUDA
    assert agrees_but_for_kinks(updates.vectors, reference(ask).vectors)


@pytest.mark.parametrize("network", ["lenet5", "resnet-mini"])
def test_cuda_graphs_give_what_plain_launches_give(network: str, recwarn: pytest.WarningsRecorder) -> None:
    ask = an_ask_of(network)
    [plain] = StackedTrainer(CUDA, graphs="never").train([ask])
    trainer = StackedTrainer(CUDA, graphs="auto")
    for _ in range(2):
        [replayed] = trainer.train([ask])
        assert agrees_but_for_kinks(replayed.vectors, plain.vectors)
        assert float(deviations(replayed.vectors, plain.vectors).median()) < 1e-6
    [prepared] = trainer._networks.values()
    assert prepared.stack is not None
    assert prepared.stack._graphs
    assert not [warning for warning in recwarn if "CUDA graph" in str(warning.message)]


@pytest.mark.parametrize("network", ["lenet5", "resnet-mini"])
def test_the_same_call_gives_the_same_bits(network: str) -> None:
    ask, trainer = an_ask_of(network), StackedTrainer(CUDA)
    [first], [second] = trainer.train([ask]), trainer.train([ask])
    assert torch.equal(first.vectors, second.vectors)
    [third] = StackedTrainer(CUDA).train([ask])
    assert torch.equal(first.vectors, third.vectors)


def test_nothing_waits_for_the_device_between_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = ClientStack.launch

    def without_waiting(self: ClientStack, *arguments: Any) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            launch(self, *arguments)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(ClientStack, "launch", without_waiting)
    ask = an_ask_of("resnet-mini")
    modes: tuple[Literal["auto", "never"], ...] = ("auto", "never")
    for graphs in modes:
        trainer = StackedTrainer(CUDA, graphs=graphs)
        trainer.train([ask])
        [updates] = trainer.train([ask])
        assert bool(torch.isfinite(updates.vectors).all())


@pytest.fixture
def _little_memory() -> Iterator[None]:
    """About 700 MiB more than is in use."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(CUDA).total_memory
    allowed = torch.cuda.memory_reserved(CUDA) + 700 * 2**20
    torch.cuda.set_per_process_memory_fraction(allowed / total, CUDA)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0, CUDA)
    torch.cuda.empty_cache()


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize("graphs", ["auto", "never"])
def test_clients_that_do_not_fit_at_once_are_trained_in_smaller_chunks(
    graphs: Literal["auto", "never"], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = an_ask(a_workload([64] * 60, "lenet5", side=28, settings=TRAINING.model_copy(update={"batch_size": 64})))
    shortages, release = list[None](), StackedTrainer._release

    def counted(self: StackedTrainer) -> None:
        shortages.append(None)
        release(self)

    monkeypatch.setattr(StackedTrainer, "_release", counted)
    # as if everything fitted
    monkeypatch.setattr(_Prepared, "clients_at_once", lambda *_: 10**6)
    trainer = StackedTrainer(CUDA, graphs=graphs)
    [updates] = trainer.train([ask])
    assert shortages
    assert agrees_but_for_kinks(updates.vectors, reference(ask).vectors)


def test_as_many_clients_are_stacked_as_fit() -> None:
    trainer, ask = StackedTrainer(CUDA), an_ask_of("lenet5")
    trainer.train([ask])
    [prepared] = trainer._networks.values()
    [at_most] = prepared.at_most.values()
    # 32 images through LeNet5, forward and backward: megabytes, not gigabytes
    assert 32 < at_most < torch.cuda.mem_get_info(CUDA)[0] / 2**20


def test_federations_of_one_network_and_data_set_share_a_stack() -> None:
    ask = an_ask_of("lenet5")
    other = Ask(replace(ask.workload, seed=5), ask.model, ask.clients, 3)
    trainer = StackedTrainer(CUDA)
    for each, updates in zip((ask, other), trainer.train([ask, other]), strict=True):
        assert agrees_but_for_kinks(updates.vectors, reference(each).vectors)
    [prepared] = trainer._networks.values()
    assert prepared.stack is not None
    assert prepared.stack.clients == 2 * len(SIZES)


def test_models_are_evaluated_as_on_a_cpu() -> None:
    ask = an_ask_of("resnet-mini")
    [there] = StackedTrainer(CUDA).evaluate(ask.workload, [ask.model])
    many = StackedTrainer(CUDA).evaluate(ask.workload, [ask.model] * 3)
    [here] = StackedTrainer(torch.device("cpu")).evaluate(ask.workload, [ask.model])
    for evaluation in (there, *many):
        assert evaluation.loss == pytest.approx(here.loss, abs=1e-5)
        assert evaluation.accuracy == here.accuracy


@pytest.mark.parametrize(("precision", "allowed"), [("tf32", 0.05), ("bf16", 0.3)])
def test_less_precision_is_less_exact_and_not_wrong(precision: Literal["tf32", "bf16"], allowed: float) -> None:
    ask = an_ask_of("lenet5")
    [updates] = StackedTrainer(CUDA, precision=precision).train([ask])
    assert AGREEMENT < float(deviations(updates.vectors, reference(ask).vectors).median()) < allowed
