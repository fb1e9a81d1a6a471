"""Workers that die or raise."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from disavow.engines.pool import PoolTrainer
from disavow.engines.pool import trainer as pool_trainer
from disavow.errors import DisavowError, TaskError
from tests.engines.contract import a_case
from tests.engines.pool.builders import (
    ExitsWorker,
    KillsWorker,
    RaisesError,
    RaisesUnpicklable,
    ReportsProcess,
    a_workload,
    an_ask,
    expected,
    on_linux,
    trained_by,
    with_workers_ready,
    without_process,
)
from tests.engines.pool.forked_workers import forked_pool
from tests.refusals import refuses

LAUNCH = pool_trainer._launch


@pytest.fixture(scope="module")
def shared_trainer() -> Iterator[PoolTrainer]:
    """Most tests here cost both workers, so they are forked."""
    with forked_pool() as trainer:
        yield trainer


@pytest.mark.kill
def test_the_clients_of_a_worker_that_is_killed_train_again(trainer: PoolTrainer, tmp_path: Path) -> None:
    ask = an_ask(a_workload(KillsWorker(tmp_path)))
    wanted = without_process(ask, expected(ask))
    # one life to lose: a worker dies in the middle of its clients, and its successor does not
    (tmp_path / "one").touch()
    (updates,) = trainer.train([ask])
    assert list(tmp_path.iterdir()) == []
    assert torch.equal(without_process(ask, updates.vectors), wanted)
    assert os.getpid() not in trained_by(with_workers_ready(trainer))


@pytest.mark.kill
def test_a_worker_that_is_killed_twice_over_ends_the_call_with_its_signal(
    trainer: PoolTrainer, tmp_path: Path
) -> None:
    for life in range(100):
        (tmp_path / str(life)).touch()
    workload = a_workload(KillsWorker(tmp_path))
    with refuses(DisavowError, "SIGKILL") as caught:
        trainer.train([an_ask(workload)])
    assert caught.value.code == "DSV-100"
    assert os.getpid() not in trained_by(with_workers_ready(trainer))


@pytest.mark.kill
def test_a_worker_that_ends_itself_ends_the_call_with_its_exit_code(trainer: PoolTrainer) -> None:
    with refuses(DisavowError, "exit code 3") as caught:
        trainer.train([an_ask(a_workload(ExitsWorker()))])
    assert caught.value.code == "DSV-100"


@pytest.mark.kill
@on_linux
def test_workers_killed_between_two_calls_are_replaced(trainer: PoolTrainer) -> None:
    workers = {process for _ in range(5) for process in trained_by(trainer)}
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    ask = an_ask(a_workload(a_case().network))
    assert torch.equal(trainer.train([ask])[0].vectors, expected(ask))
    assert not workers & trained_by(with_workers_ready(trainer))


@pytest.mark.kill
def test_workers_that_cannot_start_end_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("disavow.engines.pool.trainer._launch", LAUNCH)
    (tmp_path / "torch.py").write_text("raise SystemExit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with closing(PoolTrainer(2, start_after=0.0)) as fresh, refuses(DisavowError, "started", "exit code 7"):
        with_workers_ready(fresh)


def test_an_error_in_a_worker_is_raised_here(trainer: PoolTrainer) -> None:
    with refuses(TaskError, "client-", "round", "ArithmeticError", "the network does not like") as caught:
        trainer.train([an_ask(a_workload(RaisesError()))])
    assert "in_worker" in "".join(caught.value.__notes__)
    assert os.getpid() not in trained_by(with_workers_ready(trainer))


def test_an_error_that_cannot_be_pickled_is_raised_as_its_text(trainer: PoolTrainer) -> None:
    with pytest.raises(RuntimeError, match="Unpicklable: this and that"):
        trainer.evaluate(workload := a_workload(RaisesUnpicklable()), [an_ask(workload).model])


def test_an_unknown_client_is_a_key_error_before_anybody_trains(trainer: PoolTrainer) -> None:
    workers = {process for _ in range(5) for process in trained_by(trainer)}
    ask = an_ask(a_workload(ReportsProcess()))
    with pytest.raises(KeyError, match="nobody"):
        trainer.train([ask, replace(ask, clients=("client-01", "nobody"))])
    assert trained_by(trainer) <= workers


def test_a_client_that_diverges_changes_no_other(trainer: PoolTrainer) -> None:
    workload = a_workload(a_case().network)
    images = workload.images.clone()
    images[workload.parts["client-03"]] = math.inf
    ask = an_ask(replace(workload, images=images))
    rows = trainer.train([ask])[0].vectors
    finite = [bool(torch.isfinite(row).all()) for row in rows]
    assert finite == [client != "client-03" for client in ask.clients]
    torch.testing.assert_close(rows, expected(ask), rtol=0, atol=0, equal_nan=True)
