"""Training is killed at any instant, and goes on as if nothing had happened."""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from disavow import config
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from tests.cli import forked
from tests.cli.forked import disavow
from tests.cli.process import COMMAND, environment, write_config
from tests.conftest import SMALL
from tests.kill.erasure_driver import Ended
from tests.selection import some_of

pytestmark = pytest.mark.kill

ROUNDS = 24
TINY: dict[str, Any] = {**SMALL, "rounds": ROUNDS}
ROW = re.compile(r"^ +(\d+) ", re.MULTILINE)
SIGKILLED = -9


class Victim(Protocol):
    """A command under way: a fork, as in most tests here, or started as a shell starts it."""

    def output(self) -> str: ...

    def running(self) -> bool: ...

    def kill(self) -> None: ...

    def wait(self) -> Ended: ...


Launch = Callable[..., Victim]


def fork(*arguments: str | Path) -> Victim:
    return forked.driver().start(*arguments, keys=Path(os.environ["DISAVOW_KEYS"]))


class Started:
    """A process of the shell's kind, which imports everything itself."""

    def __init__(self, *arguments: str | Path) -> None:
        self._stderr = tempfile.TemporaryFile("r+b")  # noqa: SIM115, closed by `wait`
        command = [*COMMAND, *map(str, arguments)]
        self._process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=self._stderr)

    def output(self) -> str:
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode()

    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> Ended:
        status, output = self._process.wait(), self.output()
        self._stderr.close()
        return Ended(status, "", output)


def kill_in_round(process: Victim, number: int, pause: float) -> bool:
    """Wait for the row of a round (0: the head of the table), pause, kill -9. Whether it was still alive."""

    def reached() -> bool:
        output = process.output()
        return "\n" in output if number == 0 else any(int(row) >= number for row in ROW.findall(output))

    while process.running() and not reached():
        time.sleep(0.001)
    time.sleep(pause)
    process.kill()
    return process.wait().status == SIGKILLED


def kill_once(process: Victim, seen: Callable[[], bool]) -> bool:
    """Kill -9 as soon as something is seen on disk. Whether it was still alive."""
    while process.running() and not seen():
        time.sleep(0.0005)
    process.kill()
    return process.wait().status == SIGKILLED


def faults(run: Path) -> list[str]:
    return [str(finding) for finding in fsck(run) if finding.fault]


def go_on(file: Path, run: Path) -> list[str | Path]:
    """The command that goes on: one killed before the run came into being has to be started again."""
    return ["resume", run] if run.exists() else ["train", file, "--run", run]


def finish(file: Path, run: Path) -> None:
    result = disavow(*go_on(file, run))
    assert result.returncode == 0, result.stderr
    assert fsck(run) == []


def models_of(run: Path) -> list[str]:
    with Ledger.open(run) as ledger:
        summaries = ledger.summaries()
        assert [(s.number, s.attempt, s.standing) for s in summaries] == [
            (number, 1, True) for number in range(1, len(summaries) + 1)
        ]
        assert ledger.unevaluated() == ()
        return [ledger.initial_model, *(summary.after for summary in summaries)]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], float]:
    """The models of a run that nobody killed, and the seconds that one of its rounds takes."""
    directory = tmp_path_factory.mktemp("undisturbed") / "run"
    with Federation.create(directory, config.from_values(TINY, source="tests")) as run:
        started = time.monotonic()
        run.train()
        seconds = (time.monotonic() - started) / ROUNDS
    return models_of(directory), seconds


def kill_again_and_again(
    folder: Path, seed: int, kills: int, draws: str, undisturbed: tuple[list[str], float], launch: Launch = fork
) -> None:
    models, seconds = undisturbed
    chance = random.Random(seed)
    file, run = write_config(folder / "config.toml", {**TINY, "draws": draws}), folder / "run"
    # spread over the run: each kill waits for a row from its own stretch, then for a random part of a round
    stretch = (ROUNDS - 4) // kills
    killed = 0
    for number in (chance.randrange(i * stretch, (i + 1) * stretch) for i in range(kills)):
        killed += kill_in_round(launch(*go_on(file, run)), number, chance.uniform(0, 2 * seconds))
        assert faults(run) == []
    assert killed > 0
    finish(file, run)
    if draws == "seeded":
        assert models_of(run) == models
    else:
        assert len(models_of(run)) == ROUNDS + 1
        assert models_of(run)[0] == models[0]


@pytest.mark.parametrize(
    ("seed", "draws", "launch", "kills"),
    [
        (1, "seeded", Started, 2),
        pytest.param(1, "seeded", Started, 3, marks=pytest.mark.torture),
        pytest.param(2, "seeded", fork, 3, marks=pytest.mark.torture),
        (3, "fresh", fork, 3),
    ],
)
def test_killed_some_times_a_run_ends_as_one_that_never_was(
    tmp_path: Path, undisturbed: tuple[list[str], float], seed: int, draws: str, launch: Launch, kills: int
) -> None:
    kill_again_and_again(tmp_path, seed, kills, draws, undisturbed, launch)


@pytest.mark.parametrize(
    "instant",
    some_of(
        ["first sign of it", "models folder", "database", "run directory", "lock"],
        ["first sign of it", "database", "run directory"],
    ),
)
def test_killed_while_it_comes_into_being_a_run_is_whole_or_not_there(
    tmp_path: Path, trained: Path, instant: str
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    file, run = write_config(tmp_path / "config.toml", SMALL), folder / "run"
    seen = {
        "first sign of it": lambda: any(folder.iterdir()),
        "models folder": lambda: any(folder.glob("*/models/*")),
        "database": lambda: any(folder.glob("*/ledger.sqlite3")) or any(folder.glob("*/database.json")),
        "run directory": run.exists,
        "lock": (run / "lock").exists,
    }
    assert kill_once(fork("train", file, "--run", run), seen[instant])
    if run.exists():
        assert faults(run) == []
    finish(file, run)
    assert models_of(run) == models_of(trained)
    # nothing half-made stays beside it
    assert list(folder.iterdir()) == [run]


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 110))
def test_fifty_kills(tmp_path: Path, undisturbed: tuple[list[str], float], seed: int) -> None:
    kill_again_and_again(tmp_path, seed, 5, "fresh" if seed % 5 == 0 else "seeded", undisturbed)
