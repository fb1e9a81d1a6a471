"""An erasure is killed at any instant, and goes on as if nothing had happened."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from disavow import config
from disavow.domain import RequestState
from disavow.erasure.proof_files import default_openings
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from disavow.ledger.id_search import files_with
from disavow.ledger.updates import named as kept_updates
from tests.erasure.mechanisms.contract import start_toy, toy_settings
from tests.kill.erasure_driver import ALL, ALONE, TOGETHER, Child, Driver
from tests.selection import some_of

pytestmark = pytest.mark.kill

SIGKILLED = -9
POINTS = 6
KEYRING_POINTS = 4
MANY_KEYRING_POINTS = 12
REBUILDING_POINTS = 4
MANY_REBUILDING_POINTS = 24
ROUNDS = 4
REAL: dict[str, Any] = {
    "seed": 21,
    "rounds": ROUNDS,
    "data": {"clients": 10},
    "model": {"name": "resnet-mini"},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3},
    "deniability": {"x": 2},
}


def keys_of(run: Path) -> Path:
    return run.with_name("keys")


def faults_in_a_copy(run: Path, folder: Path) -> list[str]:
    """Looking at a ledger settles its log; the run itself must meet `resume` as the kill left it."""
    copied = Path(shutil.copytree(run.parent, folder / "looked at")) / run.name
    found = [str(finding) for finding in fsck(copied, keys=keys_of(copied)) if finding.fault]
    shutil.rmtree(folder / "looked at")
    return found


def files_naming(run: Path, client: str) -> list[Path]:
    """Files of the run or of its keyring that name a client."""
    return files_with(run, client) + files_with(keys_of(run), client)


@dataclass(frozen=True)
class State:
    """All that must not depend on a kill."""

    rounds: tuple[tuple[int, int, bool, int, str], ...]
    requests: tuple[tuple[int, str, str, int, int, str], ...]
    clients: tuple[str, ...]
    models: frozenset[str]


def state_of(run: Path, *, seeded: bool = True) -> State:
    """With fresh draws models differ, and slots with them; everything else is the same."""
    with Ledger.open(run, keys=keys_of(run)) as ledger:
        assert ledger.unevaluated() == ()
        summaries = ledger.summaries()
        present = {ledger.initial_model, *(summary.after for summary in summaries if summary.standing)}
        assert set(ledger.store.digests()) == present
        with ledger._connect() as connection:
            assert ledger.updates.leftovers(kept_updates(connection)) == []
        return State(
            rounds=tuple(
                (s.number, s.attempt, s.standing, s.participants, s.after if seeded else "") for s in summaries
            ),
            requests=tuple(
                (
                    request.number,
                    request.state.value,
                    str(request.verdict),
                    request.cost.rounds if request.cost else -1,
                    request.cost.client_epochs if request.cost else -1,
                    request.remark,
                )
                for request in ledger.requests()
            ),
            clients=ledger.clients(),
            models=frozenset(present if seeded else ()),
        )


# -- at every event ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rehearsal:
    """A prepared run, what happens when nobody is killed, and where that ends."""

    prepared: Path
    events: tuple[str, ...]
    end: State


@pytest.fixture(scope="session")
def rehearsal(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    return rehearsed(driver, tmp_path_factory.mktemp("rehearsal"), rounds=3)


@pytest.fixture(scope="session")
def rebuilding(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """The same story where rounds are rebuilt from kept updates."""
    kept = {"name": "federaser", "interval": 1}
    return rehearsed(driver, tmp_path_factory.mktemp("rebuilding"), rounds=3, mechanism=kept)


def rehearsed(driver: Driver, folder: Path, **changed: Any) -> Rehearsal:
    """A run of which two of each cluster are drawn; the kills of `REAL` are of one that draws one."""
    drawn = {"sticky": False, "representatives": 2}
    settings = toy_settings(clients=12, clustering=drawn, deniability={"x": 1}, **changed)
    with start_toy(folder / "prepared" / "run", settings, keys=folder / "prepared" / "keys") as run:
        run.train()
    shutil.copytree(folder / "prepared", folder / "undisturbed")
    ended = driver.run(folder / "undisturbed" / "run", task="crash")
    assert ended.status == 0, ended.stderr
    assert fsck(folder / "undisturbed" / "run", keys=folder / "undisturbed" / "keys") == []
    return Rehearsal(folder / "prepared", tuple(json.loads(ended.stdout)), state_of(folder / "undisturbed" / "run"))


def test_the_story_has_a_deniable_request_and_a_rollback_of_several_at_once(rehearsal: Rehearsal) -> None:
    verdicts = [verdict for _, _, verdict, *_ in rehearsal.end.requests]
    assert verdicts[0] == "deniable"
    assert len(set(verdicts[1:])) == 1
    assert verdicts[1].startswith("rollback to round")
    assert len(verdicts) == 1 + len(TOGETHER)
    assert rehearsal.end.clients == tuple(f"client-{i:02d}" for i in range(1, 13) if f"client-{i:02d}" not in ALL)
    # all kinds of events are met, so that each can be died at
    kinds = " ".join(rehearsal.events)
    for kind in ("commit", "INSERT INTO", "UPDATE", "DELETE FROM", "fsync", "replace", "unlink", "forget"):
        assert kind in kinds


def test_the_same_story_with_rebuilt_rounds(rehearsal: Rehearsal, rebuilding: Rehearsal) -> None:
    verdicts = [[verdict for _, _, verdict, *_ in each.end.requests] for each in (rehearsal, rebuilding)]
    assert verdicts[0] == verdicts[1]
    assert rehearsal.end.clients == rebuilding.end.clients
    assert all("rebuilt approximately" in remark for *_, remark in rebuilding.end.requests[1:])
    assert any("INSERT INTO rebuilt" in event for event in rebuilding.events)


def die_and_resume(driver: Driver, rehearsal: Rehearsal, folder: Path, at: int) -> None:
    shutil.copytree(rehearsal.prepared, folder / "home")
    run = folder / "home" / "run"
    killed = driver.run(run, task="crash", die_at=at)
    assert killed.status == SIGKILLED, (at, killed.stderr)
    assert faults_in_a_copy(run, folder) == [], (at, rehearsal.events[at - 1])
    resumed = driver.run(run, task="resume")
    assert resumed.status == 0, (at, rehearsal.events[at - 1], resumed.stderr)
    assert state_of(run) == rehearsal.end, (at, rehearsal.events[at - 1])
    assert fsck(run, keys=keys_of(run)) == []
    for client in ALL:
        assert files_naming(run, client) == [], (at, rehearsal.events[at - 1])
    # nor is half an opening left, which names a leaver, beside those for them
    assert all(path.name.startswith("request-") for path in default_openings(run).iterdir()), at
    shutil.rmtree(folder / "home")


@pytest.mark.parametrize("part", some_of(range(POINTS), [1, 3, 5]))
def test_killed_at_an_event_it_ends_as_one_that_never_was(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path, part: int
) -> None:
    """One event from each stretch of the story, so that every phase is met."""
    total = len(rehearsal.events)
    low, high = part * total // POINTS, (part + 1) * total // POINTS
    die_and_resume(driver, rehearsal, tmp_path, random.Random(part).randrange(low, high) + 1)


@pytest.mark.parametrize(
    ("part", "parts"),
    [
        *some_of([(part, KEYRING_POINTS) for part in range(KEYRING_POINTS)], lambda point: point[0] % 2),
        *(
            pytest.param(part, MANY_KEYRING_POINTS, marks=pytest.mark.torture)
            for part in range(MANY_KEYRING_POINTS)
        ),
    ],
)
def test_killed_where_the_keyring_is_written_it_ends_as_one_that_never_was(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path, part: int, parts: int
) -> None:
    """One instant from each stretch of those at which run and keyring may disagree."""
    steps = (
        "keyring BEGIN",
        "keyring COMMIT",
        "keyring UPDATE",
        "keyring DELETE",
        "keyring INSERT",
        "keyring VACUUM",
    )
    named = ("advance", "settle", "forget", "_write_keys")
    met = [
        i
        for i, event in enumerate(rehearsal.events, start=1)
        if event.startswith(steps) or event.split()[-1] in named or event == "commit"
    ]
    low, high = (each * len(met) // parts for each in (part, part + 1))
    die_and_resume(driver, rehearsal, tmp_path, met[random.Random(part).randrange(low, high)])


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(300))
def test_three_hundred_kills_of_run_and_keyring(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path, seed: int
) -> None:
    """At random instants: a key destroyed is never back, a request never lost or doubled."""
    die_and_resume(driver, rehearsal, tmp_path, random.Random(1000 + seed).randrange(len(rehearsal.events)) + 1)


@pytest.mark.parametrize(
    ("part", "parts"),
    [
        *some_of([(part, REBUILDING_POINTS) for part in range(REBUILDING_POINTS)], lambda point: point[0] % 2),
        *(
            pytest.param(part, MANY_REBUILDING_POINTS, marks=pytest.mark.torture)
            for part in range(MANY_REBUILDING_POINTS)
        ),
    ],
)
def test_killed_at_an_event_with_rebuilt_rounds_it_ends_as_one_that_never_was(
    driver: Driver, rebuilding: Rehearsal, tmp_path: Path, part: int, parts: int
) -> None:
    """The last two thirds of the story, where the rollback is."""
    total = len(rebuilding.events)
    start = total // 3
    low, high = (start + each * (total - start) // parts for each in (part, part + 1))
    die_and_resume(driver, rebuilding, tmp_path, random.Random(part).randrange(low, high) + 1)


@pytest.mark.parametrize("what", ["INSERT INTO rebuilt", "INSERT INTO updates", "DELETE FROM updates"])
def test_killed_where_rebuilt_rounds_are_written_it_ends_as_one_that_never_was(
    driver: Driver, rebuilding: Rehearsal, tmp_path: Path, what: str
) -> None:
    last = max(i for i, event in enumerate(rebuilding.events, start=1) if event.startswith(what))
    die_and_resume(driver, rebuilding, tmp_path, last)


@pytest.mark.parametrize(
    "what",
    some_of(
        ["before forget", "after forget", "before remove_leftovers", "after _write_keys", "before _write_keys"],
        ["after forget", "before remove_leftovers", "before _write_keys"],
    ),
)
def test_killed_around_the_deletion_it_ends_as_one_that_never_was(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path, what: str
) -> None:
    """Where keys are destroyed: the last time that this happens."""
    last = max(i for i, event in enumerate(rehearsal.events, start=1) if event == what)
    die_and_resume(driver, rehearsal, tmp_path, last)


def test_killed_again_in_every_resumption_it_still_ends_there(
    driver: Driver, rehearsal: Rehearsal, tmp_path: Path
) -> None:
    """Each attempt dies a little later than the one before, until one gets through."""
    shutil.copytree(rehearsal.prepared, tmp_path / "home")
    run = tmp_path / "home" / "run"
    deaths = 0
    for at in range(12, 10 * len(rehearsal.events), 29):
        ended = driver.run(run, task="crash", die_at=at)
        if ended.status == 0:
            break
        assert ended.status == SIGKILLED, ended.stderr
        deaths += 1
        assert faults_in_a_copy(run, tmp_path) == []
    assert deaths > 2
    assert driver.run(run, task="resume").status == 0
    assert state_of(run) == rehearsal.end
    assert fsck(run, keys=keys_of(run)) == []
    for client in ALL:
        assert files_naming(run, client) == []


@pytest.mark.torture
@pytest.mark.parametrize("part", range(200))
def test_killed_at_two_hundred_events(driver: Driver, rehearsal: Rehearsal, tmp_path: Path, part: int) -> None:
    total = len(rehearsal.events)
    low, high = part * total // 200, max(part * total // 200 + 1, (part + 1) * total // 200)
    for at in range(low + 1, high + 1):
        die_and_resume(driver, rehearsal, tmp_path, at)


# -- at any instant ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Undisturbed:
    """A trained run with the pair that takes a rollback, what its erasure ends in, and how long it takes."""

    prepared: Path
    leavers: tuple[str, ...]
    end: State
    seconds: float


def _undisturbed(driver: Driver, folder: Path, draws: str) -> Undisturbed:
    settings = config.from_values({**REAL, "draws": draws}, source="tests")
    with Federation.create(folder / "prepared" / "run", settings, keys=folder / "prepared" / "keys") as run:
        run.train()
        smallest = min((sorted(group) for group in run.ledger.membership(1)), key=len)
        leavers = tuple(smallest[: len(smallest) - 1])
    home = Path(shutil.copytree(folder / "prepared", folder / "undisturbed"))
    started = time.monotonic()
    ended = driver.run("erase", home / "run", *leavers, "--yes", keys=home / "keys")
    seconds = time.monotonic() - started
    assert ended.status == 0, ended.stderr
    assert fsck(home / "run", keys=home / "keys") == []
    return Undisturbed(folder / "prepared", leavers, state_of(home / "run", seeded=draws == "seeded"), seconds)


@pytest.fixture(scope="session")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Undisturbed]:
    return {draws: _undisturbed(driver, tmp_path_factory.mktemp(draws), draws) for draws in ("seeded", "fresh")}


def test_the_real_erasure_is_a_rollback_of_all_rounds(undisturbed: dict[str, Undisturbed]) -> None:
    for one in undisturbed.values():
        assert [request[2] for request in one.end.requests] == ["rollback to round 1"] * len(one.leavers)
        assert [request[3] for request in one.end.requests] == [ROUNDS] * len(one.leavers)


ROW = re.compile(r"^ +(\d+) ", re.MULTILINE)


def kill_after(child: Child, row: int, pause: float) -> bool:
    """Wait for the row of a rebuilt round (0: for nothing), pause, kill -9. Whether it was still alive."""
    while row and child.running() and not any(int(n) >= row for n in ROW.findall(child.output())):
        time.sleep(0.002)
    time.sleep(pause)
    child.kill()
    return child.wait().status == SIGKILLED


def kill_again_and_again(driver: Driver, one: Undisturbed, folder: Path, seed: int, draws: str, kills: int) -> None:
    home = folder / "home"
    run, hurry = home / "run", 1.0
    # on a busy machine every kill may come too late: then once more, with less patience
    while not _killed(driver, one, folder, random.Random(seed), kills, hurry):
        shutil.rmtree(home)
        hurry /= 4
    if not _has_requests(run):
        assert driver.run("erase", run, *one.leavers, "--yes", keys=home / "keys").status == 0
    ended = driver.run("resume", run, keys=home / "keys")
    assert ended.status == 0, ended.stderr
    assert state_of(run, seeded=draws == "seeded") == one.end
    assert fsck(run, keys=keys_of(run)) == []
    for client in one.leavers:
        assert files_naming(run, client) == []
    with Ledger.open(run, keys=keys_of(run)) as ledger:
        assert {request.state for request in ledger.requests()} == {RequestState.ANSWERED}


def _killed(driver: Driver, one: Undisturbed, folder: Path, chance: random.Random, kills: int, hurry: float) -> int:
    """Kill an erasure and its resumptions; how many of the kills met a process alive."""
    home = Path(shutil.copytree(one.prepared, folder / "home"))
    run, killed = home / "run", 0
    # spread over the erasure: the first before anything is rebuilt, the others each in a stretch of its own
    rows = [0, *(chance.randrange(i * ROUNDS // kills, (i + 1) * ROUNDS // kills) for i in range(1, kills))]
    for row in rows:
        command: list[str | Path] = ["resume", run] if _has_requests(run) else ["erase", run, *one.leavers, "--yes"]
        pause = hurry * chance.uniform(0, one.seconds / (2 if row == 0 else ROUNDS))
        killed += kill_after(driver.start(*command, keys=home / "keys"), row, pause)
        assert faults_in_a_copy(run, folder) == []
    return killed


def _has_requests(run: Path) -> bool:
    with Ledger.open(run, keys=keys_of(run)) as ledger:
        return bool(ledger.requests())


@pytest.mark.parametrize(("seed", "draws"), [(1, "seeded"), (4, "fresh")])
def test_killed_at_random_instants_an_erasure_ends_as_one_that_never_was(
    driver: Driver, undisturbed: dict[str, Undisturbed], tmp_path: Path, seed: int, draws: str
) -> None:
    kill_again_and_again(driver, undisturbed[draws], tmp_path, seed, draws, 3)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 120))
def test_a_hundred_kills(driver: Driver, undisturbed: dict[str, Undisturbed], tmp_path: Path, seed: int) -> None:
    draws = "fresh" if seed % 4 == 0 else "seeded"
    kill_again_and_again(driver, undisturbed[draws], tmp_path, seed, draws, 5)


def test_the_story_asks_for_the_clients_it_names(rehearsal: Rehearsal) -> None:
    with Ledger.open(rehearsal.prepared / "run", keys=rehearsal.prepared / "keys") as ledger:
        assert {ALONE, *TOGETHER} < set(ledger.clients())
