"""The flow of an erasure: keys, then the request, then the answer; data and an engine only to train."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from disavow.domain import RequestState, VerdictKind
from disavow.engines.state import model_of
from disavow.errors import CannotRetrain, ConfigError, IntegrityError, RunInUse, UnknownClient
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, database, fsck
from disavow.ledger.id_search import files_with
from disavow.results import Prospect
from tests.cli.process import environment
from tests.cli.process import run as process_run
from tests.federation.making import (
    PASSPHRASE,
    clusters,
    erase,
    foreseen,
    models,
    pair,
    states,
)
from tests.refusals import refuses

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

    seen: list[Prospect] = []

    def confirm(prospect: Prospect) -> None:
        seen.append(prospect)
        assert states(run) == []
        raise No

    with pytest.raises(No):
        erase(run, *pair(run), confirm=confirm)
    assert states(run) == []
    [prospect] = seen
    assert prospect.forecast is not None
    assert prospect.forecast.verdict.kind is VerdictKind.ROLLBACK
    assert prospect.forecast == foreseen(run, *pair(run)).forecast


def test_who_has_been_answered_before_is_not_foreseen_again(run: Path) -> None:
    erase(run, "client-01")
    prospect = foreseen(run, "client-01")
    assert prospect.forecast is None
    assert prospect.before["client-01"].state is RequestState.ANSWERED


# -- data and engine only where something is trained --------------------------------------------------------------


@pytest.mark.usefixtures("moved")
def test_to_answer_what_is_deniable_loads_neither_data_nor_engine(run: Path) -> None:
    keys, written = run.with_name("keys"), []
    with Federation.open(run, keys=keys, ask=lambda path: PASSPHRASE, write=True) as federation:
        federation.ledger.place_requests(["client-01"], at=federation.clock())
        callbacks = Callbacks(on_opening=lambda request, path: written.append((request, path.exists())))
        [request] = federation.answer(callbacks)
    assert request.state is RequestState.ANSWERED
    assert written == [(request.number, True)]
    assert fsck(run) == []


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
    state_of_client = {client: request.state for client, request in outcome.requests.items()}
    # in the order in which they asked: whoever leaves enough behind is deniable
    assert [state_of_client[client] for client in leavers] == [RequestState.ANSWERED] * (len(leavers) - 1) + [
        RequestState.WAITING
    ]
    assert state_of_client[bystander] is RequestState.ANSWERED
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


# -- readers -----------------------------------------------------------------------------------------------------


def test_a_reader_does_not_keep_an_erasure(run: Path) -> None:
    """Such as an fsck of a large run."""
    leaver = clusters(run)[1][0]
    with closing(sqlite3.connect(run / database.NAME, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM rounds").fetchone()
        assert erase(run, leaver, wait=0).refusal is None
        assert states(run) == [RequestState.ANSWERED]
    assert files_with(run, leaver) == []


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


# -- openings ------------------------------------------------------------------------------------------------------


def test_a_folder_for_openings_that_cannot_be_made_places_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(ConfigError):
        erase(run, "client-01", openings=tmp_path / "a file" / "openings")
    assert states(run) == []


def test_openings_go_to_the_folder_asked_for(run: Path, tmp_path: Path) -> None:
    erase(run, "client-01", openings=tmp_path / "openings")
    assert len(list((tmp_path / "openings").iterdir())) == 1


# -- without data and without torch -----------------------------------------------------------------------------


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # any import of it fails
from disavow.cli import main
sys.argv = ["disavow", *sys.argv[1:]]
main()
"""


def without_torch(run: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = environment(DISAVOW_KEYS=str(run.with_name("keys")), DISAVOW_PASSPHRASE=PASSPHRASE)
    return process_run([sys.executable, "-c", WITHOUT_TORCH, *map(str, arguments)], cwd=run.parent, env=env)


@pytest.mark.usefixtures("moved")
def test_what_needs_no_training_needs_neither_data_nor_torch(run: Path, tmp_path: Path) -> None:
    commands: list[list[str | Path]] = [
        ["status", run],
        ["clients", run],
        ["requests", run],
        ["erase", run, "client-01", "--dry-run"],
        ["erase", run, "client-01"],
        ["prove", run, "client-01", "-o", tmp_path / "proof.json"],
        ["receipt", run, "client-02", "-o", tmp_path / "receipts"],
        ["checkpoint", run],
        ["export", run, "-o", tmp_path / "model.safetensors"],
        ["fsck", run, "--absent", "client-01"],
    ]
    for arguments in commands:
        done = without_torch(run, *arguments)
        assert done.returncode == 0, (arguments[0], done.stderr)
    assert states(run) == [RequestState.ANSWERED]


def test_an_id_that_nobody_has_is_refused_with_those_that_may_be_meant(run: Path) -> None:
    for ask in (erase, foreseen):
        with refuses(UnknownClient, "client-1", "client-01"):
            ask(run, "client-1")
        with refuses(UnknownClient, "hospital") as refused:
            ask(run, "hospital")
        assert "client-" not in str(refused.value)
    assert states(run) == []


def test_clients_are_listed_until_they_leave(run: Path) -> None:
    with Federation.open(run, keys=run.with_name("keys"), ask=lambda path: PASSPHRASE) as federation:
        before = federation.clients()
        federation.erase(["client-01"])
        assert federation.clients() == tuple(client for client in before if client != "client-01")


def test_the_model_is_the_one_that_is_served(run: Path) -> None:
    with Federation.open(run) as federation:
        assert np.array_equal(model_of(federation.model()).vector.numpy(), federation.ledger.model_after(2))


def test_a_federation_checks_its_run_unless_it_is_training_it(run: Path) -> None:
    keys, ask = run.with_name("keys"), lambda path: PASSPHRASE
    with Federation.open(run, keys=keys, ask=ask) as federation:
        federation.erase(["client-01"])
        assert not any(finding.fault for finding in federation.check(absent=["client-01"]))
        assert "client-01" not in federation.clients()
    with Federation.open(run, keys=keys, ask=ask, write=True) as federation, pytest.raises(RunInUse):
        federation.check()
