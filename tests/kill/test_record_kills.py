"""Record requests are killed at any instant, and go on as if nothing had happened: nothing is half excluded."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from tests.erasure.random_task import RandomTask, settings_of
from tests.kill.erasure_driver import ASKING, RECORDED, Driver
from tests.kill.test_erasure_kills import SIGKILLED, State, faults_in_a_copy, files_naming, keys_of, state_of
from tests.selection import some_of

pytestmark = pytest.mark.kill

POINTS = 6
KEYRING_POINTS = 4

LAST = 60
"""So many events may be fewer another time: some look-ups in a keyring depend on where random numbers lie."""


@dataclass(frozen=True)
class Rehearsal:
    """A prepared run, what happens when nobody is killed, where that ends, and what is excluded then."""

    prepared: Path
    events: tuple[str, ...]
    end: State
    excluded: dict[str, frozenset[bytes]]


@pytest.fixture(scope="session")
def rehearsal(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    folder = tmp_path_factory.mktemp("records")
    settings = settings_of(RECORDED, sticky=False)
    home = folder / "prepared"
    with Federation.create(home / "run", RandomTask(RECORDED), settings=settings, keys=home / "keys") as federation:
        federation.train()
    shutil.copytree(home, folder / "undisturbed")
    run = folder / "undisturbed" / "run"
    ended = driver.run(run, task="crash records")
    assert ended.status == 0, ended.stderr
    assert fsck(run, keys=keys_of(run)) == []
    return Rehearsal(home, tuple(json.loads(ended.stdout)), state_of(run), excluded_in(run))


def excluded_in(run: Path) -> dict[str, frozenset[bytes]]:
    """What is excluded of clients, also of those who have left; no old key may be left."""
    with Ledger.open(run, keys=keys_of(run)) as ledger:
        assert ledger.keyring.not_in_use() == {}
        assert ledger.keyring.tombstones() == 1
        return {client: found.hashes for client, found in ledger.exclusions(ASKING).items()}


def test_the_story_has_a_deniable_request_a_rollback_and_somebody_who_leaves(rehearsal: Rehearsal) -> None:
    verdicts = [verdict for _, _, verdict, *_ in rehearsal.end.requests]
    assert verdicts[0] == "deniable"
    assert any(verdict.startswith("rollback to round") for verdict in verdicts)
    assert [len(rehearsal.excluded[client]) for client in ASKING] == [2, 2, 1, 1, 1]
    assert rehearsal.end.clients == tuple(f"site-{i}" for i in range(7) if i != 1)
    kinds = " ".join(rehearsal.events)
    for kind in ("keyring INSERT", "keyring UPDATE", "keyring DELETE", "forget", "_write_keys"):
        assert kind in kinds


def answered_apart(end: State) -> State:
    """The same where the last two requests, of one client, were not placed together: the kill came between them.

    The records were erased then before the client asked to be forgotten, and its new key was in no round.
    """
    *others, records, (number, state, _, *_) = end.requests
    return replace(end, requests=(*others, records, (number, state, "never present", 0, 0, "")))


def die_and_resume(driver: Driver, rehearsal: Rehearsal, folder: Path, at: int) -> None:
    shutil.copytree(rehearsal.prepared, folder / "home")
    run = folder / "home" / "run"
    killed = driver.run(run, task="crash records", die_at=at)
    assert killed.status == SIGKILLED, (at, killed.stderr)
    assert faults_in_a_copy(run, folder) == [], (at, rehearsal.events[at - 1])
    resumed = driver.run(run, task="resume records")
    assert resumed.status == 0, (at, rehearsal.events[at - 1], resumed.stderr)
    assert state_of(run) in (rehearsal.end, answered_apart(rehearsal.end)), (at, rehearsal.events[at - 1])
    assert excluded_in(run) == rehearsal.excluded, (at, rehearsal.events[at - 1])
    assert fsck(run, keys=keys_of(run)) == []
    assert files_naming(run, "site-1") == []
    assert files_naming(run, "patient-") == []
    shutil.rmtree(folder / "home")


@pytest.mark.parametrize("part", some_of(range(POINTS), [1, 3, 5]))
def test_killed_at_an_event_it_ends_as_one_that_never_was(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path, part: int
) -> None:
    total = len(rehearsal.events)
    low, high = part * total // POINTS, (part + 1) * total // POINTS
    die_and_resume(driver, rehearsal, tmp_path, random.Random(part).randrange(low, high) + 1)


@pytest.mark.parametrize("part", some_of(range(KEYRING_POINTS), [1, 3]))
def test_killed_where_the_keyring_is_written_it_ends_as_one_that_never_was(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path, part: int
) -> None:
    steps = ("keyring COMMIT", "keyring INSERT", "keyring UPDATE", "keyring DELETE")
    met = [i for i, event in enumerate(rehearsal.events, start=1) if event.startswith(steps) or event == "commit"]
    low, high = (each * len(met) // KEYRING_POINTS for each in (part, part + 1))
    die_and_resume(driver, rehearsal, tmp_path, met[random.Random(part).randrange(low, high)])


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(200))
def test_two_hundred_kills_across_record_requests(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path, seed: int
) -> None:
    die_and_resume(driver, rehearsal, tmp_path, random.Random(seed).randrange(len(rehearsal.events) - LAST) + 1)
