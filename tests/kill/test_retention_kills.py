"""Killed while models are thinned, a run ends with the models of one that never was."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import zstandard

from disavow.ledger import Ledger, fsck
from disavow.ledger.models import to_safetensors
from disavow.ledger.retention import round_models
from tests.erasure.mechanisms.contract import LAYOUT, start_toy, toy_settings
from tests.kill.erasure_driver import Driver
from tests.kill.test_erasure_kills import faults_in_a_copy, keys_of
from tests.selection import some_of

pytestmark = pytest.mark.kill

SIGKILLED = -9
POINTS = 6
ROUNDS = 6
MODEL = 4 + len(zstandard.compress(to_safetensors(LAYOUT, np.linspace(-1, 1, LAYOUT.size, dtype=np.float32))))


@dataclass(frozen=True)
class State:
    """All that must not depend on a kill: rounds, answers, and which models are left."""

    rounds: tuple[tuple[int, int, bool, str], ...]
    verdicts: tuple[str, ...]
    kept: tuple[int, ...]
    files: frozenset[str]


@dataclass(frozen=True)
class Rehearsal:
    """A prepared run, what happens when nobody is killed, and where that ends."""

    prepared: Path
    events: tuple[str, ...]
    end: State


def state_of(run: Path) -> State:
    with Ledger.open(run, keys=keys_of(run)) as ledger, ledger._connect() as connection:
        assert ledger.unevaluated() == ()
        return State(
            rounds=tuple((s.number, s.attempt, s.standing, s.after) for s in ledger.summaries()),
            verdicts=tuple(request.verdict.in_full if request.verdict else "" for request in ledger.requests()),
            kept=tuple(each.round for each in round_models(connection) if each.kept),
            files=frozenset(ledger.store.digests()),
        )


@pytest.fixture(scope="module")
def rehearsal(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    folder = tmp_path_factory.mktemp("rehearsal")
    settings = toy_settings(
        clients=12, rounds=ROUNDS, clustering={"sticky": False}, ledger={"retention": 3 * MODEL}
    )
    with start_toy(folder / "prepared" / "run", settings, keys=folder / "prepared" / "keys") as run:
        run.train()
    shutil.copytree(folder / "prepared", folder / "undisturbed")
    ended = driver.run(folder / "undisturbed" / "run", task="crash")
    assert ended.status == 0, ended.stderr
    assert fsck(folder / "undisturbed" / "run", keys=folder / "undisturbed" / "keys") == []
    return Rehearsal(folder / "prepared", tuple(json.loads(ended.stdout)), state_of(folder / "undisturbed" / "run"))


def test_the_story_rebuilds_rounds_and_thins_them(rehearsal: Rehearsal) -> None:
    assert len(rehearsal.end.kept) == 3 < ROUNDS
    assert any(attempt > 1 for _, attempt, *_ in rehearsal.end.rounds)
    assert thinnings(rehearsal) > 1


def thinnings(rehearsal: Rehearsal) -> int:
    return sum(event == "UPDATE models SET" for event in rehearsal.events)


def die_and_resume(driver: Driver, rehearsal: Rehearsal, folder: Path, at: int) -> None:
    shutil.copytree(rehearsal.prepared, folder / "home")
    run = folder / "home" / "run"
    killed = driver.run(run, task="crash", die_at=at)
    assert killed.status == SIGKILLED, (at, killed.stderr)
    assert faults_in_a_copy(run, folder) == [], rehearsal.events[at - 1]
    resumed = driver.run(run, task="resume")
    assert resumed.status == 0, (at, rehearsal.events[at - 1], resumed.stderr)
    assert state_of(run) == rehearsal.end, (at, rehearsal.events[at - 1])
    assert fsck(run, keys=keys_of(run)) == []


@pytest.mark.parametrize("what", ["UPDATE models SET", "before unlink", "after unlink"])
@pytest.mark.parametrize("which", some_of(["first", "middle"], ["middle"]))
def test_killed_around_a_thinning(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path, what: str, which: str
) -> None:
    instants = [i for i, event in enumerate(rehearsal.events, start=1) if event == what]
    die_and_resume(driver, rehearsal, tmp_path, instants[0 if which == "first" else len(instants) // 2])


@pytest.mark.parametrize("part", some_of(range(POINTS), [1, 4]))
def test_killed_at_any_event(driver: Driver, rehearsal: Rehearsal, tmp_path: Path, part: int) -> None:
    total = len(rehearsal.events)
    low, high = part * total // POINTS, (part + 1) * total // POINTS
    die_and_resume(driver, rehearsal, tmp_path, random.Random(part).randrange(low, high) + 1)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(100))
def test_killed_at_every_event(driver: Driver, rehearsal: Rehearsal, tmp_path: Path, part: int) -> None:
    total = len(rehearsal.events)
    for at in range(part * total // 100 + 1, (part + 1) * total // 100 + 1):
        die_and_resume(driver, rehearsal, tmp_path / str(at), at)
