"""The pool of worker processes: the bits of the reference engine, whichever process dies.

The networks here report which process trains them (`ReportsProcess`), or misbehave in workers only. They are at the
top of the module, so that workers can import them.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from disavow.engines.pool import PoolTrainer
from disavow.engines.pool.trainer import JobQueue, training_jobs
from disavow.engines.pool.worker import Train
from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import model_of
from disavow.engines.trainer import Ask
from disavow.engines.vectorised import VectorisedEngine
from disavow.engines.workload import Workload
from disavow.errors import ConfigError, DisavowError
from disavow.ledger.lock import Lock
from disavow.models import build
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model, Updates
from tests.engines.contract import CLASSES, PARTS, SHAPE, AttributesContract, Case, EngineContract, a_case

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

TIMEOUT = 120.0
"""Seconds after which something that must happen counts as not happening; nothing else depends on the time."""

ROOT = Path(__file__).parents[2]


# -- networks that report, or misbehave, in workers ----------------------------------------------------------------


class ReportsProcess(nn.Module):
    """Its update holds the number of the process that trained it."""

    def __init__(self) -> None:
        super().__init__()
        self.home = os.getpid()
        self.layer = nn.Linear(math.prod(SHAPE), CLASSES)
        self.register_buffer("process", torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.process = torch.full((1,), float(os.getpid()))
        if os.getpid() != self.home:
            self.in_worker()
        scores: Tensor = self.layer(images.flatten(1))
        return scores

    def in_worker(self) -> None:
        """What happens in workers only."""


PRECISIONS = ["highest", "high", "medium"]


class ReportsPrecision(ReportsProcess):
    """Its update holds how exact products of matrices are where it is trained."""

    def in_worker(self) -> None:
        self.process = torch.full((1,), float(PRECISIONS.index(torch.get_float32_matmul_precision())))


class KillsWorker(ReportsProcess):
    """Kills its worker as often as there are files to remove."""

    def __init__(self, lives: Path, number: int = signal.SIGKILL) -> None:
        super().__init__()
        self.lives, self.number = lives, number

    def in_worker(self) -> None:
        for life in self.lives.iterdir():
            try:
                life.unlink()
            except FileNotFoundError:
                continue  # another worker was quicker
            os.kill(os.getpid(), self.number)


class ExitsWorker(ReportsProcess):
    def in_worker(self) -> None:
        sys.exit(3)


class RaisesError(ReportsProcess):
    def in_worker(self) -> None:
        raise ArithmeticError("the network does not like these samples")


class Unpicklable(Exception):
    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


class RaisesUnpicklable(ReportsProcess):
    def in_worker(self) -> None:
        raise Unpicklable("this", "that")


class OverwritesInput(ReportsProcess):
    """Writes into the samples that it is shown."""

    def forward(self, images: Tensor) -> Tensor:
        scores = super().forward(images)
        images.zero_()
        return scores


class PrintsInWorker(ReportsProcess):
    def in_worker(self) -> None:
        print("said in a worker")


class NeverEnds(ReportsProcess):
    """Writes its process id into a folder and trains for ever."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def in_worker(self) -> None:
        (self.folder / str(os.getpid())).touch()
        square = torch.rand(50, 50)
        while True:
            square = torch.tanh(square @ square)


# -- helpers -------------------------------------------------------------------------------------------------------


def a_workload(network: nn.Module, clients: int = 12, samples: Sequence[int] = (3,)) -> Workload:
    """So many clients, whose sizes go round in `samples`."""
    case = a_case()
    sizes = [samples[i % len(samples)] for i in range(clients)]
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    generator = torch.Generator().manual_seed(8)
    return Workload(
        network=network,
        images=torch.rand(sum(sizes), *SHAPE, generator=generator),
        labels=torch.randint(CLASSES, (sum(sizes),), generator=generator),
        parts={f"client-{i:02}": part for i, part in enumerate(parts)},
        test_images=torch.rand(2500, *SHAPE, generator=generator),
        test_labels=torch.randint(CLASSES, (2500,), generator=generator),
        settings=case.settings,
        seed=5,
    )


def an_ask(workload: Workload, round_number: int = 1, scale: float = 1.0) -> Ask:
    model = model_of(workload.network)
    model = Model(model.layout, model.vector * scale)
    return Ask(workload, model, tuple(workload.parts), round_number)


def expected(ask: Ask) -> Tensor:
    return SequentialEngine(ask.workload).train(ask.model, ask.clients, ask.round_number).vectors


def processes(updates: Updates, ask: Ask) -> set[int]:
    """The processes that trained, from the updates of a `ReportsProcess` network."""
    spans = {spec.name: start for spec, start, _ in ask.model.layout.spans()}
    return {int(number) for number in updates.vectors[:, spans["process"]]}


def trained_by(trainer: PoolTrainer, network: ReportsProcess | None = None) -> set[int]:
    ask = an_ask(a_workload(network or ReportsProcess()))
    return processes(trainer.train([ask])[0], ask)


def with_workers_ready(trainer: PoolTrainer) -> PoolTrainer:
    """The trainer once its workers are ready, and this process trains no more."""
    deadline = time.monotonic() + TIMEOUT
    while os.getpid() in trained_by(trainer):
        assert time.monotonic() < deadline
        time.sleep(0.05)  # leave the cores to the workers that start
    return trainer


def without_process(ask: Ask, vectors: Tensor) -> Tensor:
    (start,) = [start for spec, start, _ in ask.model.layout.spans() if spec.name == "process"]
    return torch.cat([vectors[:, :start], vectors[:, start + 1 :]], dim=1)


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(parent: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z" and int(fields[1]) == parent:
            found.add(int(stat.parent.name))
    return found


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def descriptors(process: int | str = "self") -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def shared_memory() -> int:
    """Blocks of shared memory that this process holds."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(link.readlink()))
        except FileNotFoundError:
            continue  # the descriptor that listed the folder
    return sum("memfd:disavow" in link for link in links)


@pytest.fixture(scope="module")
def shared_trainer() -> Iterator[PoolTrainer]:
    trainer = PoolTrainer(2, start_after=0.0)
    yield trainer
    trainer.close()


@pytest.fixture
def trainer(shared_trainer: PoolTrainer) -> PoolTrainer:
    """Two workers, up and running, also after a test that killed them."""
    return with_workers_ready(shared_trainer)


class TestPool(EngineContract, AttributesContract):
    """The same bits as the reference, so the same tolerance: none."""

    @pytest.fixture(autouse=True)
    def _pool(self, trainer: PoolTrainer) -> None:
        self.trainer = trainer

    def make(self, case: Case) -> Engine:
        return VectorisedEngine(case, self.trainer)


# -- the reference's bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["convnet", "lenet5", "resnet-mini"])
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


def test_there_is_at_least_one_worker() -> None:
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        PoolTrainer(0)


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


# -- when a worker dies or fails -----------------------------------------------------------------------------------


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
    with pytest.raises(DisavowError, match=r"died at the same work; the last one was killed by SIGKILL"):
        trainer.train([an_ask(workload)])
    assert os.getpid() not in trained_by(with_workers_ready(trainer))


@pytest.mark.kill
def test_a_worker_that_ends_itself_ends_the_call_with_its_exit_code(trainer: PoolTrainer) -> None:
    with pytest.raises(DisavowError, match="the last one ended with exit code 3"):
        trainer.train([an_ask(a_workload(ExitsWorker()))])


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
    (tmp_path / "torch.py").write_text("raise SystemExit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    told = "died while they started; the last one ended with exit code 7"
    with closing(PoolTrainer(2, start_after=0.0)) as fresh, pytest.raises(DisavowError, match=told):
        with_workers_ready(fresh)


def test_an_error_in_a_worker_is_raised_here(trainer: PoolTrainer) -> None:
    with pytest.raises(ArithmeticError, match="the network does not like these samples") as caught:
        trainer.train([an_ask(a_workload(RaisesError()))])
    assert "in_worker" in "".join(caught.value.__notes__)
    assert os.getpid() not in trained_by(with_workers_ready(trainer))


def test_an_error_that_cannot_be_pickled_is_raised_as_its_text(trainer: PoolTrainer) -> None:
    with pytest.raises(RuntimeError, match="Unpicklable: this and that"):
        trainer.train([an_ask(a_workload(RaisesUnpicklable()))])


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


# -- the end -------------------------------------------------------------------------------------------------------


@on_linux
def test_from_the_first_client_trained_in_this_process_to_the_end_of_the_workers() -> None:
    before = children(os.getpid())
    fresh = PoolTrainer(2, start_after=0.0)
    # while workers start, this process trains
    assert os.getpid() in trained_by(fresh)
    workers = children(os.getpid()) - before
    assert len(workers) == 2
    assert trained_by(with_workers_ready(fresh)) <= workers
    fresh.close()
    assert not any(running(worker) for worker in workers)
    # closing twice is harmless, and so is closing what never began
    fresh.close()
    PoolTrainer(2).close()


@on_linux
def test_a_trainer_that_is_garbage_collected_ends_its_workers() -> None:
    before = children(os.getpid())
    fresh = with_workers_ready(PoolTrainer(2, start_after=0.0))
    workers = children(os.getpid()) - before
    del fresh
    gc.collect()
    assert not any(running(worker) for worker in workers)


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
    asks = [an_ask(a_workload(a_case().network, clients=2)) for _ in range(70)]
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
    later = rounds(30)
    assert all(now <= then + 2 for now, then in zip(later, first, strict=True))


# -- scripts -------------------------------------------------------------------------------------------------------


def script(folder: Path, text: str) -> list[str]:
    """A program of a user's own, without a guard."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return [sys.executable, str(path)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


@on_linux
def test_a_script_needs_no_guard_and_need_not_close_and_its_output_is_its_own(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        print("once")
        from tests.engines.test_pool import *

        trainer = with_workers_ready(PoolTrainer(2, start_after=0.0))
        ask = an_ask(a_workload(PrintsInWorker()))
        (updates,) = trainer.train([ask])
        print(os.getpid() in processes(updates, ask))
        print(*children(os.getpid()))
        """,
    )
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert ended.returncode == 0, ended.stderr
    once, here, workers = ended.stdout.splitlines()
    assert (once, here) == ("once", "False")
    assert len(workers.split()) == 2
    assert not any(running(int(worker)) for worker in workers.split())
    assert "said in a worker" in ended.stderr
    assert not ended.stderr.replace("said in a worker", "").strip()


@on_linux
def test_a_fork_has_workers_of_its_own(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        from tests.engines.test_pool import *

        trainer = with_workers_ready(PoolTrainer(2, start_after=0.0))
        workers = children(os.getpid())
        ask = an_ask(a_workload(a_case().network))
        if os.fork() == 0:
            right = torch.equal(trainer.train([ask])[0].vectors, expected(ask))
            sys.exit(0 if right and trained_by(with_workers_ready(trainer)) <= children(os.getpid()) else 1)
        print(os.wait()[1], torch.equal(trainer.train([ask])[0].vectors, expected(ask)))
        print(trained_by(trainer) <= workers == children(os.getpid()))
        """,
    )
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert (ended.returncode, ended.stdout) == (0, "0 True\nTrue\n"), ended.stderr


@on_linux
def test_a_network_defined_in_the_script_trains_in_its_process_with_a_warning(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        from tests.engines.test_pool import *

        class Mine(ReportsProcess):
            pass

        trainer = PoolTrainer(2, start_after=0.0)
        ask = an_ask(a_workload(Mine()))
        for number in range(3):
            (updates,) = trainer.train([ask])
            assert torch.equal(updates.vectors, expected(ask))
        print(processes(updates, ask) == {os.getpid()}, children(os.getpid()))
        """,
    )
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "True set()\n"
    assert ended.stderr.count("Mine is defined in the script itself") == 1


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


ENDLESS_SCRIPT = """
from tests.engines.test_pool import *

folder = Path(sys.argv[1])
lock = Lock(folder)
trainer = with_workers_ready(PoolTrainer(2, start_after=0.0))
(folder / "workers").mkdir()
try:
    trainer.train([an_ask(a_workload(NeverEnds(folder / "workers")))])
except KeyboardInterrupt:
    print("interrupted", children(os.getpid()))
"""


def started_endless_training(folder: Path) -> tuple[subprocess.Popen[str], set[int]]:
    """A program whose two workers are in the middle of training, and those workers."""
    process = subprocess.Popen(
        [*script(folder, ENDLESS_SCRIPT), str(folder)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signs = folder / "workers"
    wait_until(lambda: process.poll() is not None or (signs.exists() and len(list(signs.iterdir())) == 2))
    if process.poll() is not None:
        pytest.fail(process.communicate()[1])
    workers = {int(sign.name) for sign in signs.iterdir()}
    assert workers == children(process.pid)
    return process, workers


@pytest.mark.kill
@on_linux
def test_when_the_parent_is_killed_workers_end_and_nothing_stays_behind(tmp_path: Path) -> None:
    process, workers = started_endless_training(tmp_path)
    for each in (process.pid, *workers):
        # what never had a name in /dev/shm cannot stay there
        assert "/dev/shm/" not in Path(f"/proc/{each}/maps").read_text()
    for worker in workers:
        links = [str(link.readlink()) for link in Path(f"/proc/{worker}/fd").iterdir()]
        assert not [link for link in links if link.startswith(str(tmp_path))]
    process.kill()
    assert process.wait() == -signal.SIGKILL
    # workers hold nothing of the run: it can be taken at once, before they are gone
    Lock(tmp_path).release()
    wait_until(lambda: not any(running(worker) for worker in workers))
    numbers = [str(each) for each in (process.pid, *workers)]
    assert not [file for file in Path("/dev/shm").iterdir() if any(number in file.name for number in numbers)]
    assert process.communicate() == ("", "")


@pytest.mark.kill
@on_linux
def test_when_the_parent_is_killed_workers_end_even_while_they_start(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "torch.py").write_text("import time\nwhile True:\n    time.sleep(1)\n")
    command = script(
        tmp_path,
        """
        from tests.engines.test_pool import *

        sys.path.insert(0, sys.argv[1])
        trainer = PoolTrainer(2, start_after=0.0)
        trained_by(trainer)
        print(*children(os.getpid()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    ended = subprocess.run(
        [*command, str(slow)], env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")
    workers = [int(worker) for worker in ended.stdout.split()]
    assert len(workers) == 2
    wait_until(lambda: not any(running(worker) for worker in workers))


@pytest.mark.kill
@on_linux
def test_an_interruption_from_the_keyboard_ends_the_workers_without_output(tmp_path: Path) -> None:
    process, workers = started_endless_training(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=TIMEOUT) == ("interrupted set()\n", "")
    assert process.returncode == 0
    assert not any(running(worker) for worker in workers)
