"""The flow of an erasure: keys, then the request, then the answer; data and an engine only to train."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from disavow import config, requests, runs
from disavow.domain import RequestState, VerdictKind
from disavow.errors import CannotRetrain, ConfigError, IntegrityError
from disavow.federation.round import now
from disavow.ledger import Ledger, fsck
from disavow.ledger.absent import files_with
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from tests.data.making import write

SETTINGS: dict[str, Any] = {
    "seed": 5,
    "rounds": 2,
    "draws": "seeded",
    "data": {"name": "mnist", "clients": 8},
    "model": {"name": "convnet"},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3},
    "deniability": {"x": 2},
}
"""Two sticky clusters: anybody is deniable, and two of the smaller one go back to round 1."""

PASSPHRASE = "correct horse"


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run on images in a folder; the key is locked."""
    folder = tmp_path_factory.mktemp("requests")
    write(folder / "data")
    generate(folder / "keys", name="tests", passphrase=PASSPHRASE, at=time_to_text(now()))
    settings = config.from_values(
        {**SETTINGS, "data": {**SETTINGS["data"], "dir": str(folder / "data")}}, source="tests"
    )
    with runs.start(settings, folder / "run", keys=folder / "keys", ask=lambda path: PASSPHRASE) as run:
        run.train()
    return folder


@pytest.fixture
def run(trained_once: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained_once / "keys", tmp_path / "keys")
    return Path(shutil.copytree(trained_once / "run", tmp_path / "run"))


@pytest.fixture
def data(trained_once: Path) -> Path:
    """The folder with the images, which the run names by its full path."""
    return trained_once / "data"


@pytest.fixture
def moved(data: Path, tmp_path: Path) -> Iterator[None]:
    """The images are elsewhere while the test runs."""
    data.rename(tmp_path / "elsewhere")
    yield
    (tmp_path / "elsewhere").rename(data)


def erase(run: Path, *clients: str, passphrase: str = PASSPHRASE, **more: Any) -> requests.Outcome:
    more.setdefault("keys", run.with_name("keys"))
    return requests.erase(run, clients, ask=lambda path: passphrase, **more)


def states(run: Path) -> list[RequestState]:
    with Ledger.open(run) as ledger:
        return [request.state for request in ledger.requests()]


def models(run: Path) -> list[tuple[int, int, str]]:
    with Ledger.open(run) as ledger:
        return [(s.number, s.attempt, s.after) for s in ledger.summaries() if s.standing]


def clusters(run: Path) -> list[list[str]]:
    """Who is with whom, the smaller cluster first."""
    with Ledger.open(run) as ledger:
        return sorted((sorted(group) for group in ledger.membership(1)), key=len)


def pair(run: Path) -> list[str]:
    """As many of one cluster as it takes to leave too few of it."""
    smallest = clusters(run)[0]
    return smallest[: len(smallest) - 1]


# -- nothing is placed before whatever can refuse -----------------------------------------------------------------


def test_a_wrong_passphrase_places_nothing(run: Path) -> None:
    with pytest.raises(ConfigError):
        erase(run, "client-01", passphrase="wrong")
    assert states(run) == []


def test_a_signed_run_without_its_key_places_nothing(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        erase(run, "client-01", keys=tmp_path / "other keys")
    assert states(run) == []


def test_changed_settings_place_nothing(run: Path) -> None:
    path = run / "config.toml"
    path.write_text(path.read_text().replace("seed = 5", "seed = 6"))
    with pytest.raises(ConfigError):
        erase(run, "client-01")
    assert states(run) == []


def test_openings_inside_the_run_place_nothing(run: Path) -> None:
    with pytest.raises(ConfigError):
        erase(run, "client-01", openings=run / "openings")
    assert states(run) == []


def test_who_confirms_sees_the_forecast_before_anything_is_placed(run: Path) -> None:
    class No(Exception):
        pass

    seen: list[requests.Asked] = []

    def confirm(asked: requests.Asked) -> None:
        seen.append(asked)
        assert states(run) == []
        raise No

    with pytest.raises(No):
        erase(run, *pair(run), confirm=confirm)
    assert states(run) == []
    [asked] = seen
    assert asked.forecast is not None
    assert asked.forecast.verdict.kind is VerdictKind.ROLLBACK
    assert asked.forecast == requests.forecast(run, pair(run), keys=run.with_name("keys")).forecast


def test_who_has_been_answered_before_is_not_foreseen_again(run: Path) -> None:
    erase(run, "client-01")
    asked = requests.forecast(run, ["client-01"], keys=run.with_name("keys"))
    assert asked.forecast is None
    assert asked.before["client-01"].state is RequestState.ANSWERED


# -- data and engine only where something is trained --------------------------------------------------------------


@pytest.mark.usefixtures("moved")
def test_a_deniable_request_needs_no_data(run: Path) -> None:
    before = models(run)
    outcome = erase(run, "client-01")
    assert outcome.refusal is None
    request = outcome.requests["client-01"]
    assert request.verdict is not None
    assert (request.state, request.verdict.kind) == (RequestState.ANSWERED, VerdictKind.DENIABLE)
    assert models(run) == before
    assert fsck(run) == []
    assert files_with(run, "client-01") == []


def test_a_rollback_whose_data_is_gone_waits_and_undoes_nothing_until_it_is_back(
    run: Path, data: Path, tmp_path: Path
) -> None:
    before, leavers, bystander = models(run), pair(run), clusters(run)[1][0]
    data.rename(tmp_path / "elsewhere")
    try:
        outcome = erase(run, *leavers, bystander)
    finally:
        (tmp_path / "elsewhere").rename(data)
    assert isinstance(outcome.refusal, CannotRetrain)
    assert str(data) in str(outcome.refusal)
    told = {client: request.state for client, request in outcome.requests.items()}
    # in the order in which they asked: whoever leaves enough behind is deniable
    assert [told[client] for client in leavers] == [RequestState.ANSWERED] * (len(leavers) - 1) + [
        RequestState.WAITING
    ]
    assert told[bystander] is RequestState.ANSWERED
    assert models(run) == before
    assert fsck(run) == []
    again = erase(run, leavers[-1])
    assert again.refusal is None
    verdict = again.requests[leavers[-1]].verdict
    assert verdict is not None
    assert (verdict.kind, verdict.round) == (VerdictKind.ROLLBACK, 1)
    assert [(number, attempt) for number, attempt, _ in models(run)] == [(1, 2), (2, 2)]
    assert fsck(run) == []


def test_who_leave_together_are_judged_together_where_the_data_is_there(run: Path) -> None:
    outcome = erase(run, *pair(run))
    assert {str(request.verdict) for request in outcome.requests.values()} == {"rollback to round 1"}


@pytest.mark.usefixtures("moved")
def test_a_rollback_after_which_nothing_can_be_trained_needs_no_data(run: Path) -> None:
    """Two clients are left, fewer than k: the rollback still happens."""
    outcome = erase(run, *[client for group in clusters(run) for client in group][:6])
    assert outcome.refusal is None
    assert {request.state for request in outcome.requests.values()} == {RequestState.ANSWERED}
    assert models(run) == []
    assert fsck(run) == []


@pytest.mark.usefixtures("moved")
def test_what_cannot_be_completed_of_an_earlier_erasure_does_not_fail_a_deniable_one(run: Path) -> None:
    assert erase(run, *pair(run)).refusal is not None
    assert erase(run, clusters(run)[1][0]).refusal is None
    assert RequestState.WAITING in states(run)


# -- damage ------------------------------------------------------------------------------------------------------


def test_a_rollback_to_a_damaged_model_undoes_nothing(run: Path) -> None:
    with Ledger.open(run) as ledger:
        [victim] = (run / "models").glob(f"{ledger.initial_model}*")
    damaged = bytearray(victim.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    victim.write_bytes(bytes(damaged))
    before = models(run)
    with pytest.raises(IntegrityError):
        erase(run, *pair(run))
    assert models(run) == before
