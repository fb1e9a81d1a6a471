"""The pool gives the bits of the reference engine, whichever process trains."""

from __future__ import annotations

import gc
import math
import os
import warnings
from dataclasses import replace

import pytest
import torch

from disavow.engines.pool import PoolTrainer
from disavow.engines.pool.trainer import JobQueue, training_jobs
from disavow.engines.pool.worker import Train
from disavow.engines.sequential import SequentialEngine
from disavow.engines.trainer import Ask, VectorisedEngine
from disavow.errors import ConfigError
from disavow.models import build
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model
from tests.engines.contract import CLASSES, NETWORKS, PARTS, AttributesContract, Case, EngineContract, a_case
from tests.engines.pool.builders import (
    PRECISIONS,
    OverwritesInput,
    ReportsPrecision,
    ReportsProcess,
    a_workload,
    an_ask,
    children,
    descriptors,
    expected,
    on_linux,
    processes,
    shared_memory,
    trained_by,
)
from tests.selection import some_of


class TestPool(EngineContract, AttributesContract):
    """The same bits as the reference, so the same tolerance: none."""

    # workers train with the code of the reference, which takes part with more networks
    @pytest.fixture(params=some_of(NETWORKS, ["resnet-mini"]))
    def case(self, request: pytest.FixtureRequest) -> Case:
        return a_case(request.param)

    @pytest.fixture(autouse=True)
    def _pool(self, trainer: PoolTrainer) -> None:
        self.trainer = trainer

    def make(self, case: Case) -> Engine:
        return VectorisedEngine(case, self.trainer)


# -- the reference's bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", some_of(["convnet", "lenet5", "resnet-mini"], ["resnet-mini"]))
def test_updates_are_bit_for_bit_those_of_the_reference(trainer: PoolTrainer, network: str) -> None:
    case = a_case(network)
    ask = Ask(case, case.model, ("dee", "bo", "ada", "cy"), 3)
    (updates,) = trainer.train([ask])
    assert updates.clients == ask.clients
    assert updates.samples == tuple(PARTS[client] for client in ask.clients)
    assert torch.equal(updates.vectors, expected(ask))


def test_several_federations_train_in_one_call(trainer: PoolTrainer) -> None:
    cases = [a_case("convnet"), a_case("lenet5"), a_case("resnet-mini")]
    cases.append(replace(cases[1], seed=99))
    asks = [Ask(case, case.model, tuple(PARTS), number) for number, case in enumerate(cases, start=1)]
    asks.append(Ask(cases[0], Model(asks[0].model.layout, asks[0].model.vector * 0.5), ("bo",), 1))
    asks.append(Ask(cases[0], asks[0].model, (), 1))
    answers = trainer.train(asks)
    assert [answer.clients for answer in answers] == [ask.clients for ask in asks]
    for ask, answer in zip(asks, answers, strict=True):
        assert torch.equal(answer.vectors, expected(ask))
    assert trainer.train([]) == []


def test_unequal_clients_keep_their_rows(trainer: PoolTrainer) -> None:
    ask = an_ask(a_workload(a_case().network, clients=30, samples=(1, 40, 7, 2, 100)))
    (updates,) = trainer.train([ask])
    assert updates.samples == (1, 40, 7, 2, 100) * 6
    assert torch.equal(updates.vectors, expected(ask))


def test_samples_keep_their_memory_format(trainer: PoolTrainer) -> None:
    plain = a_workload(a_case("resnet-mini").network)
    images = plain.images.repeat(1, 3, 1, 1).to(memory_format=torch.channels_last)
    ask = an_ask(replace(plain, images=images, network=build("resnet-mini", (3, 6, 6), CLASSES, seed=1)))
    assert torch.equal(trainer.train([ask])[0].vectors, expected(ask))


def test_how_exact_products_are_is_set_in_workers_too(trainer: PoolTrainer) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        assert trained_by(trainer, ReportsPrecision()) == {PRECISIONS.index("medium")}
    finally:
        torch.set_float32_matmul_precision("highest")
    assert trained_by(trainer, ReportsPrecision()) == {PRECISIONS.index("highest")}


def test_samples_changed_in_place_are_new_to_a_new_workload(trainer: PoolTrainer) -> None:
    before = a_workload(a_case().network)
    first = trainer.train([an_ask(before)])[0].vectors
    before.images.mul_(0.5)
    ask = an_ask(replace(before, seed=before.seed))
    second = trainer.train([ask])[0].vectors
    assert torch.equal(second, expected(ask))
    assert not torch.equal(first, second)


# -- evaluation ----------------------------------------------------------------------------------------------------


def test_evaluations_are_those_of_the_reference(trainer: PoolTrainer) -> None:
    workload = a_workload(a_case("resnet-mini").network)
    models = [an_ask(workload, scale=scale).model for scale in (1.0, 0.5, math.nan)]
    engine = SequentialEngine(workload)
    for found, model in zip(trainer.evaluate(workload, models), models, strict=True):
        wanted = engine.evaluate(model)
        assert found.accuracy == wanted.accuracy
        assert found.loss == pytest.approx(wanted.loss, abs=1e-9, nan_ok=True)


def test_an_evaluation_does_not_depend_on_the_process(trainer: PoolTrainer) -> None:
    workload = a_workload(a_case().network)
    model = an_ask(workload).model
    assert trainer.evaluate(workload, [model]) == PoolTrainer(1).evaluate(workload, [model])


def test_without_test_samples_the_loss_is_not_a_number(trainer: PoolTrainer) -> None:
    workload = a_workload(a_case().network)
    workload = replace(workload, test_images=workload.test_images[:0], test_labels=workload.test_labels[:0])
    evaluations = trainer.evaluate(workload, [an_ask(workload).model] * 2)
    assert [math.isnan(evaluation.loss) for evaluation in evaluations] == [True, True]
    assert trainer.evaluate(workload, []) == []


def test_a_network_that_writes_into_its_input_changes_no_samples(trainer: PoolTrainer) -> None:
    spoiled = a_workload(OverwritesInput())
    clean = replace(spoiled, network=a_case().network)
    model, samples = an_ask(clean).model, spoiled.test_images.clone()
    wanted = PoolTrainer(1).evaluate(clean, [model])
    for one in (trainer, PoolTrainer(1)):
        one.evaluate(spoiled, [an_ask(spoiled).model])
        assert one.evaluate(clean, [model]) == wanted
    assert torch.equal(spoiled.test_images, samples)


# -- which process trains ------------------------------------------------------------------------------------------


@on_linux
def test_workers_train_and_are_kept(trainer: PoolTrainer) -> None:
    workers = {process for _ in range(5) for process in trained_by(trainer)}
    assert workers <= children(os.getpid())
    assert 1 <= len(workers) <= 2


@on_linux
@pytest.mark.parametrize(("workers", "start_after"), [(1, 0.0), (2, 1e9)])
def test_where_workers_do_not_pay_there_are_none(workers: int, start_after: float) -> None:
    before = children(os.getpid())
    ask = an_ask(a_workload(ReportsProcess()))
    (updates,) = PoolTrainer(workers, start_after=start_after).train([ask])
    assert processes(updates, ask) == {os.getpid()}
    assert torch.equal(updates.vectors, expected(ask))
    assert children(os.getpid()) == before


def test_one_client_trains_in_this_process(trainer: PoolTrainer) -> None:
    ask = an_ask(a_workload(ReportsProcess(), clients=1))
    assert processes(trainer.train([ask])[0], ask) == {os.getpid()}


def test_a_network_that_cannot_be_pickled_trains_in_this_process_with_a_warning(trainer: PoolTrainer) -> None:
    class Local(ReportsProcess):
        pass

    ask = an_ask(a_workload(Local()))
    with pytest.warns(UserWarning, match="Local trains in this process alone, not in worker processes: .*Local"):
        (updates,) = trainer.train([ask])
    assert processes(updates, ask) == {os.getpid()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.train([ask])


def test_there_is_at_least_one_worker() -> None:
    with pytest.raises(ConfigError) as caught:
        PoolTrainer(0)
    assert caught.value.code == "DSV-101"


def test_work_is_handed_out_from_large_to_small_and_each_client_once() -> None:
    ask = an_ask(a_workload(a_case().network, clients=40, samples=(1, 40, 7, 2, 100)))
    queue = JobQueue(list(training_jobs(ask, 0)))
    whole = sum(2 * len(part) for part in ask.workload.parts.values())
    batches = []
    while queue:
        batches.append(queue.take_batch(2))
    assert sum(job.cost for job in batches) == whole
    assert sorted(row for job in batches for row in job.rows) == list(range(40))
    assert batches[0].cost == 200  # the largest client is already more than an eighth of the whole
    assert all(job.cost <= max(200, whole // 8) for job in batches)
    assert len(batches[-1].rows) == 1
    for job in batches:
        assert isinstance(job.work, Train)
        assert job.work.clients == tuple(ask.clients[row] for row in job.rows)


# -- memory --------------------------------------------------------------------------------------------------------


@on_linux
def test_federations_over_the_same_samples_share_them_once(trainer: PoolTrainer) -> None:
    gc.collect()
    before = shared_memory()
    first = a_workload(a_case().network)
    trainer.train([an_ask(first)])
    assert shared_memory() == before + 4
    others = [replace(first, seed=seed) for seed in range(5)]
    trainer.train([an_ask(other) for other in others])
    assert shared_memory() == before + 4
    del first, others
    gc.collect()
    assert shared_memory() == before


@on_linux
def test_only_the_64_workloads_used_of_late_are_kept_in_memory(trainer: PoolTrainer) -> None:
    gc.collect()
    before = shared_memory()
    asks = [an_ask(a_workload(a_case().network, clients=2)) for _ in range(66)]
    wanted = [expected(ask) for ask in asks]
    for _ in range(2):
        for answer, vectors in zip(trainer.train(asks), wanted, strict=True):
            assert torch.equal(answer.vectors, vectors)
        assert shared_memory() <= before + 64 * 4


@on_linux
def test_descriptors_do_not_pile_up_over_rounds(trainer: PoolTrainer) -> None:
    workers = {process for _ in range(5) for process in trained_by(trainer)}
    kept = a_workload(a_case().network)

    def rounds(count: int) -> list[int]:
        for number in range(1, count + 1):
            trainer.train([an_ask(kept, number), an_ask(a_workload(a_case("convnet").network, number))])
            trainer.evaluate(kept, [an_ask(kept).model])
        # a worker forgets what is no longer used when it is given something else to do
        gc.collect()
        for _ in range(5):
            trained_by(trainer)
        gc.collect()
        return [descriptors(), *(descriptors(worker) for worker in sorted(workers))]

    first = rounds(5)
    later = rounds(12)
    assert all(now <= then + 2 for now, then in zip(later, first, strict=True))
