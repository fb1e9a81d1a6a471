"""When worker processes begin and end: scripts, forks, interruptions, and a parent that is killed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from disavow.engines.pool import PoolTrainer
from disavow.ledger.lock import Lock
from tests.engines.pool.builders import (
    ROOT,
    TIMEOUT,
    children,
    on_linux,
    running,
    trained_by,
    wait_until,
    with_workers_ready,
)
from tests.engines.pool.forked_workers import ForkedWorker

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
def test_a_trainer_that_is_garbage_collected_ends_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disavow.engines.pool.trainer._launch", ForkedWorker)
    fresh = with_workers_ready(PoolTrainer(2, start_after=0.0))
    workers = {process for _ in range(5) for process in trained_by(fresh)}
    assert all(running(worker) for worker in workers)
    del fresh
    gc.collect()
    assert not any(running(worker) for worker in workers)


# -- scripts -------------------------------------------------------------------------------------------------------


IMPORTS = """
import os
import signal
import sys
from pathlib import Path

import torch

from disavow.engines.pool import PoolTrainer
from disavow.ledger.lock import Lock
from tests.engines.contract import a_case
from tests.engines.pool.builders import *
"""


def script(folder: Path, text: str) -> list[str]:
    """A program of a user's own, without a guard."""
    path = folder / "script.py"
    path.write_text(IMPORTS + textwrap.dedent(text))
    return [sys.executable, str(path)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


@on_linux
def test_a_script_needs_no_guard_and_need_not_close_and_its_output_is_its_own(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
        print("once")
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


@pytest.mark.torture  # it starts five processes
@on_linux
def test_a_fork_has_workers_of_its_own(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        """
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


ENDLESS_SCRIPT = """
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


@pytest.mark.torture
@pytest.mark.kill
@on_linux
def test_when_the_parent_is_killed_workers_end_even_while_they_start(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "torch.py").write_text("import time\nwhile True:\n    time.sleep(1)\n")
    command = script(
        tmp_path,
        """
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


@pytest.mark.torture
@pytest.mark.kill
@on_linux
def test_an_interruption_from_the_keyboard_ends_the_workers_without_output(tmp_path: Path) -> None:
    process, workers = started_endless_training(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=TIMEOUT) == ("interrupted set()\n", "")
    assert process.returncode == 0
    assert not any(running(worker) for worker in workers)
