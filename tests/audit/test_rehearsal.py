"""The rehearsal erases for real, in a copy; the run never notices."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from disavow import runs
from disavow.audit.rehearsal import Rehearsal, rehearse
from disavow.audit.subject import subject_of
from disavow.domain import RequestState, VerdictKind
from disavow.erasure.dry_run import Forecast, foresee
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.errors import ConfigError, KeyringMissing, RunInUse
from disavow.ledger import Ledger, fsck
from disavow.ledger.copying import run_id_of
from disavow.ledger.keyring import FOLDER
from disavow.ledger.models import digest_of, to_safetensors
from tests.audit.making import CLIENT, DENIABLE, Interrupted, hashes_of, keys_of, leave, make_run, subject_in

PATIENCE = 120


def digest(rehearsal: Rehearsal, which: str) -> str:
    """What the ledger would call a model."""
    model = getattr(rehearsal, which)
    return digest_of(to_safetensors(model.layout, model.vector.numpy()))


def forecast(directory: Path) -> Forecast:
    with Ledger.open(directory) as ledger:
        return foresee(ledger, [CLIENT], runs.round_options(runs.settings_of(directory)), Retrain())


def test_a_rollback_is_rehearsed_as_foreseen(broken: Path, tmp_path: Path) -> None:
    subject, foreseen = subject_in(broken), forecast(broken)
    assert str(foreseen.verdict) == "rollback to round 1"
    with rehearse(subject, tmp_path, keys=keys_of(broken), mechanism=Retrain()) as rehearsal:
        answer = rehearsal.answer
        assert answer.cost is not None
        assert (answer.verdict, answer.cost.rounds) == (foreseen.verdict, foreseen.cost.rounds)
        assert (answer.state, answer.client, answer.remark) == (RequestState.ANSWERED, None, "")
        assert rehearsal.rounds == subject.rounds
        assert CLIENT not in rehearsal.ledger.clients()
        assert rehearsal.ledger.next_round() == (subject.rounds + 1, 1)
        assert np.array_equal(rehearsal.served.vector.numpy(), rehearsal.ledger.model_before(subject.rounds + 1))
        copy = rehearsal.ledger.directory
        assert digest(rehearsal, "before") != digest(rehearsal, "served")
        with Ledger.open(broken) as ledger:
            assert digest(rehearsal, "before") == ledger.digest_before(subject.rounds + 1)
        assert [finding for finding in fsck(copy, keys=copy.with_name("keys")) if finding.fault] == []
    assert list(tmp_path.iterdir()) == []


def test_a_deniable_erasure_is_rehearsed_as_foreseen(deniable: Path, tmp_path: Path) -> None:
    subject, foreseen = subject_in(deniable), forecast(deniable)
    with rehearse(subject, tmp_path, keys=keys_of(deniable), mechanism=Retrain()) as rehearsal:
        assert rehearsal.answer.verdict == foreseen.verdict
        assert foreseen.verdict.kind is VerdictKind.DENIABLE
        assert digest(rehearsal, "before") == digest(rehearsal, "served")
        assert all(CLIENT not in group for t in (1, 2, 3) for group in rehearsal.ledger.membership(t))


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run, from which somebody has left already."""
    directory = make_run(tmp_path_factory.mktemp("eventful") / "run", DENIABLE, signed=True)
    leave(directory, "client-05")
    return directory


def test_the_run_is_left_as_it_is(eventful: Path, tmp_path: Path) -> None:
    """Every byte of it: ledger, models, proofs; and the openings and the keys beside it."""
    before = hashes_of(eventful.parent)
    table = f"keys/keyring/{run_id_of(eventful)}/clients.sqlite3"
    assert {"run/proofs/request-1.json", "keys/signing.pem", table} < before.keys()
    subject = subject_in(eventful)
    with rehearse(subject, tmp_path / "work", keys=keys_of(eventful), mechanism=Retrain()) as rehearsal:
        assert hashes_of(eventful.parent) == before
        assert len(rehearsal.ledger.requests()) == 2
    assert hashes_of(eventful.parent) == before
    assert list((tmp_path / "work").iterdir()) == []


def test_an_unsigned_run_is_left_as_it_is_too(broken: Path, tmp_path: Path) -> None:
    before = hashes_of(broken.parent), hashes_of(keys_of(broken))
    with rehearse(subject_in(broken), tmp_path, keys=keys_of(broken), mechanism=Retrain()):
        pass
    assert (hashes_of(broken.parent), hashes_of(keys_of(broken))) == before


def test_a_signed_run_needs_no_signing_key_to_be_rehearsed(eventful: Path, tmp_path: Path) -> None:
    shutil.copytree(keys_of(eventful) / FOLDER, tmp_path / "keys" / FOLDER)
    subject = subject_in(eventful)
    with rehearse(subject, tmp_path / "work", keys=tmp_path / "keys", mechanism=Retrain()) as rehearsal:
        assert rehearsal.ledger.signer is not None
        assert rehearsal.ledger.signer.public.name == "rehearsal"
        assert rehearsal.answer.state is RequestState.ANSWERED
    assert [path.name for path in (tmp_path / "keys").iterdir()] == [FOLDER]


def test_nothing_is_rehearsed_without_the_keyring(eventful: Path, tmp_path: Path) -> None:
    subject = subject_in(eventful)
    with (
        pytest.raises(KeyringMissing),
        rehearse(subject, tmp_path / "work", keys=tmp_path / "keys", mechanism=Retrain()),
    ):
        raise AssertionError
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("kind", [Interrupted, KeyboardInterrupt, SystemExit])
def test_the_copy_is_gone_when_something_is_raised_inside(
    broken: Path, tmp_path: Path, kind: type[BaseException]
) -> None:
    def interrupted() -> None:
        with rehearse(subject_in(broken), tmp_path, keys=keys_of(broken), mechanism=Retrain()) as rehearsal:
            assert rehearsal.ledger.directory.exists()
            assert list(tmp_path.rglob("request-*.json"))  # the opening, which names the client
            raise kind

    before = hashes_of(broken.parent)
    with pytest.raises(kind):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    assert hashes_of(broken.parent) == before


def test_what_a_killed_rehearsal_left_is_in_nobodys_way(broken: Path, tmp_path: Path) -> None:
    (tmp_path / "rehearsal" / "run").mkdir(parents=True)
    (tmp_path / "rehearsal" / "run" / "ledger.sqlite3").write_text("half a copy")
    with rehearse(subject_in(broken), tmp_path, keys=keys_of(broken), mechanism=Retrain()) as rehearsal:
        assert rehearsal.answer.state is RequestState.ANSWERED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ["sequential", "auto"])
def test_with_seeded_draws_the_real_erasure_then_gives_the_very_model(tmp_path: Path, engine: str) -> None:
    directory = make_run(tmp_path / "run", {"engine": {"name": engine}})
    subject = subject_in(directory)
    with rehearse(subject, tmp_path / "work", keys=keys_of(directory), mechanism=Retrain()) as rehearsal:
        rehearsed = digest(rehearsal, "served")
    leave(directory, CLIENT)
    with Ledger.open(directory) as ledger:
        assert ledger.digest_before(subject.rounds + 1) == rehearsed
        assert [str(request.verdict) for request in ledger.requests()] == ["rollback to round 1"]


# -- beside a process that trains ----------------------------------------------------------------------------------

TRAINER = """
import sys
from pathlib import Path
from disavow import Callbacks, Federation
with Federation.open(Path(sys.argv[1]), keys=Path(sys.argv[2]), write=True) as run:
    run.train(Callbacks(on_round=lambda summary: print(summary.number, flush=True)))
"""


def test_a_run_that_is_being_trained_can_be_rehearsed(tmp_path: Path) -> None:
    """By another process, which holds the lock; the rehearsal tells how far the run had come."""
    directory = make_run(tmp_path / "run", {"draws": "fresh"})
    settings = (directory / "config.toml").read_text()
    (directory / "config.toml").write_text(settings.replace("\nrounds = 3\n", "\nrounds = 100000\n"))
    command = [sys.executable, "-c", TRAINER, str(directory), str(keys_of(directory))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as training:
        try:
            assert training.stdout is not None
            assert training.stdout.readline() == "4\n"
            with pytest.raises(RunInUse):
                Ledger.open(directory, write=True)
            subject = subject_in(directory)
            deadline = time.monotonic() + PATIENCE
            while int(training.stdout.readline()) < subject.rounds + 3 and time.monotonic() < deadline:
                pass
            with rehearse(subject, tmp_path / "work", keys=keys_of(directory), mechanism=Retrain()) as rehearsal:
                assert rehearsal.rounds >= subject.rounds + 3
                assert rehearsal.ledger.last_round == rehearsal.rounds
                assert rehearsal.answer.cost is not None
                assert rehearsal.answer.cost.rounds == rehearsal.rounds
                copy = rehearsal.ledger.directory
                assert [finding for finding in fsck(copy, keys=copy.with_name("keys")) if finding.fault] == []
            assert training.poll() is None
            assert int(training.stdout.readline()) > 0
        finally:
            training.terminate()
    with Ledger.open(directory) as ledger:
        assert CLIENT in ledger.clients()
        assert ledger.requests() == ()


@pytest.mark.parametrize("answered", [False, True])
def test_a_run_that_somebody_asks_to_leave_meanwhile_is_refused(own_run: Path, answered: bool) -> None:
    """Otherwise the rehearsal would answer that request along with the client's, and blame the client for both."""
    subject = subject_of(own_run, CLIENT)
    if answered:
        leave(own_run, "client-05")
    else:
        with Ledger.open(own_run, shared=True) as ledger:
            ledger.place_requests(["client-05"], at=ledger.created_at)
    work = own_run.with_name("work")
    with (
        pytest.raises(ConfigError),
        rehearse(subject, work, keys=keys_of(own_run), mechanism=Retrain()),
    ):
        raise AssertionError
    assert list(work.iterdir()) == []
