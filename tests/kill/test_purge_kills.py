"""A purge is killed at any instant, and ends as if nothing had happened."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from disavow.ledger import Ledger, fsck
from tests.erasure.mechanisms.contract import start_toy, toy_settings
from tests.kill.erasure_driver import ALONE, TOGETHER, Driver
from tests.kill.test_erasure_kills import SIGKILLED, Rehearsal, faults_in_a_copy, files_naming, keys_of, state_of
from tests.selection import some_of

pytestmark = pytest.mark.kill

POINTS, MANY_POINTS = 6, 100
LEAVERS = (ALONE, *TOGETHER[:2])


@pytest.fixture(scope="module")
def rehearsal(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    folder = tmp_path_factory.mktemp("purge")
    settings = toy_settings(clients=14, rounds=3, clustering={"k": 4}, deniability={"x": 1})
    with start_toy(folder / "prepared" / "run", settings, keys=folder / "prepared" / "keys") as run:
        run.train()
    shutil.copytree(folder / "prepared", folder / "undisturbed")
    ended = driver.run(folder / "undisturbed" / "run", task="crash", purge=1)
    assert ended.status == 0, ended.stderr
    run_folder = folder / "undisturbed" / "run"
    assert fsck(run_folder, keys=keys_of(run_folder)) == []
    return Rehearsal(folder / "prepared", tuple(json.loads(ended.stdout)), state_of(run_folder))


def test_the_story_has_a_purge(rehearsal: Rehearsal) -> None:
    assert [verdict for _, _, verdict, *_ in rehearsal.end.requests] == ["deniable"] * 3
    assert [(number, attempt) for number, attempt, stands, *_ in rehearsal.end.rounds if stands] == [
        (number, 2) for number in (1, 2, 3)
    ]


def die_and_resume(driver: Driver, rehearsal: Rehearsal, folder: Path, at: int) -> None:
    shutil.copytree(rehearsal.prepared, folder / "home")
    run, where = folder / "home" / "run", (at, rehearsal.events[at - 1])
    assert driver.run(run, task="crash", purge=1, die_at=at).status == SIGKILLED, where
    assert faults_in_a_copy(run, folder) == [], where
    resumed = driver.run(run, task="resume", purge=1)
    assert resumed.status == 0, (where, resumed.stderr)
    assert state_of(run) == rehearsal.end, where
    assert fsck(run, keys=keys_of(run)) == [], where
    for client in LEAVERS:
        assert files_naming(run, client) == [], where
    with Ledger.open(run, keys=keys_of(run)) as ledger:
        assert len(ledger.purges()) == 1, where
        assert [request.purged_at is not None for request in ledger.requests()] == [True, True, False], where
        assert list(ledger.unpurged().rounds) == [3], where
    assert sorted(path.name for path in (run / "proofs").glob("*.purged*")) == [
        f"request-{number}.purged.unsigned.json" for number in (1, 2)
    ], where
    shutil.rmtree(folder / "home")


@pytest.mark.parametrize(
    ("part", "parts"),
    [
        *some_of([(part, POINTS) for part in range(POINTS)], lambda point: point[0] % 2),
        *(pytest.param(part, MANY_POINTS, marks=pytest.mark.torture) for part in range(MANY_POINTS)),
    ],
)
def test_killed_at_an_event_of_a_purge_it_ends_as_one_that_never_was(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path, part: int, parts: int
) -> None:
    """One event from each stretch of the purge, from the answers before it to its last proof."""
    total = len(rehearsal.events)
    start = total // 4
    low, high = (start + each * (total - start) // parts for each in (part, part + 1))
    die_and_resume(driver, rehearsal, tmp_path, random.Random(part).randrange(low, high) + 1)


@pytest.mark.parametrize("which", some_of(range(3), [0, 2]))
def test_killed_where_second_proofs_are_written_it_ends_as_one_that_never_was(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path, which: int
) -> None:
    """The first files that are put in their places after the last round was recorded are those of the purged."""
    events = list(enumerate(rehearsal.events, start=1))
    recorded = max(at for at, event in events if event.startswith("INSERT INTO rounds"))
    written = [at for at, event in events if event == "after replace" and at > recorded]
    die_and_resume(driver, rehearsal, tmp_path, written[which])
