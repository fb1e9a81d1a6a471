"""Record requests: a client is withdrawn, judged as one that leaves, and goes on without the records."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow import config
from disavow.domain import RequestState, Verdict, VerdictKind
from disavow.erasure.erase import judge_waiting
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.errors import (
    AlreadyForgotten,
    ConfigError,
    RecordErased,
    RecordsUnchecked,
    RunError,
    UnknownClient,
    UnknownRecord,
    VerificationError,
)
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from disavow.ledger.copying import copy_run
from disavow.ledger.id_search import files_with
from disavow.ledger.journal import Waiting
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate, trusted_keys
from disavow.proof.opening import Opening
from disavow.proof.verify import Report, VerificationInputs, verify
from disavow.proof.word import SignedWord
from disavow.rounds.options import RoundOptions, now
from disavow.rounds.randomness import Secrets, Stream
from disavow.tasks.task import Task
from tests.erasure.random_task import RandomTask, settings_of
from tests.refusals import refuses
from tests.selection import some_of


@dataclass(frozen=True)
class LaterAttempt(Secrets):
    """The secret draws of a run whose rounds have each been recorded once before."""

    def stream(self, round_number: int, attempt: int, purpose: str) -> Stream:
        return super().stream(round_number, attempt + 1, purpose)


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    return tmp_path / "keys"


def trained(directory: Path, task: Task, settings: config.Settings) -> Path:
    with Federation.create(directory, task, settings=settings) as federation:
        federation.train()
    return directory


def signed(keys: Path) -> None:
    """Make a key, so that logs and proofs are signed."""
    generate(keys, name="tests", passphrase=None, at=time_to_text(now()))


def verified(keys: Path, proof: bytes, opening: bytes, word: bytes | None = None) -> Report:
    return verify(VerificationInputs(proof, trusted_keys(keys / "signing.pub"), opening=opening, word=word))


def models(run: Path) -> list[str]:
    with Ledger.open(run) as ledger:
        return [summary.after for summary in ledger.summaries() if summary.standing]


# -- exact -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sticky", [True, False])
@pytest.mark.parametrize("representatives", [1, 2])
@pytest.mark.parametrize("seed", some_of([1, 2], [1]))
def test_from_round_1_it_is_the_run_in_which_the_clients_never_held_the_records(
    tmp_path: Path, seed: int, representatives: int, sticky: bool
) -> None:
    settings = settings_of(seed, sticky=sticky, representatives=representatives, delta=1e-9)  # always round 1
    task = RandomTask(seed)
    run = trained(tmp_path / "run", task, settings)
    before = models(run)
    draw = random.Random(seed)
    erased = {client: [draw.choice(task.record_keys(client))] for client in draw.sample(sorted(task.clients()), 2)}
    with Federation.open(run, task) as federation:
        answer = federation.erase(erased)
    for request in answer.requests.values():
        assert (request.state, request.records) == (RequestState.ANSWERED, 1)
        assert request.verdict is not None
        assert request.verdict.undoes == 1
    assert not fsck(run)

    never = RandomTask(seed, [(client, key) for client, keys in erased.items() for key in keys])
    with Federation.create(tmp_path / "never", never, settings=settings) as federation:
        federation.own_options = replace(federation.options, secrets=LaterAttempt(settings.seed))
        federation.train()
    assert models(run) == models(tmp_path / "never")
    assert models(run) != before


def test_rounds_after_a_deniable_answer_are_trained_without_the_records(tmp_path: Path) -> None:
    """Also in the process that answers between its rounds, with an engine that it built before."""
    settings, task = settings_of(3), RandomTask(3)
    run = trained(tmp_path / "run", task, settings)
    record = task.record_keys("site-2")[0]
    held = sum(key != record for key in task.record_keys("site-2"))
    with Federation.open(run, task, write=True) as federation:
        federation.load()
        with Ledger.open(run, shared=True) as other:
            other.place_record_requests({"site-2": [record]}, at=now())
        federation.train(rounds=4)
        [request] = federation.requests()
        assert (request.state, request.client, request.records) == (RequestState.ANSWERED, None, 1)
        assert request.verdict is not None
        assert request.verdict.kind is VerdictKind.DENIABLE
        assert federation.ledger.latest_samples()["site-2"] == held
        assert len(federation.clients()) == 7
    assert not fsck(run)


# -- the new key -------------------------------------------------------------------------------------------------


def test_nothing_links_a_client_to_what_it_filled_before_and_its_proof_holds(tmp_path: Path) -> None:
    settings, task = settings_of(4), RandomTask(4)
    signed(tmp_path / "keys")
    run = trained(tmp_path / "run", task, settings)
    record = task.record_keys("site-1")[2]
    with Federation.open(run, task) as federation:
        slots = federation.ledger.rounds_with("site-1")
        assert slots == (1, 2, 3)
        [request] = federation.erase("site-1", records=[record]).requests.values()
        assert federation.ledger.rounds_with("site-1") == ()
        assert federation.ledger.keyring.tombstones() == 0
        assert federation.ledger.keyring.predecessors() == set()
        opening = Opening.decode(federation.opening_of(request.number).read_bytes())
        assert opening.client == "site-1"
        assert opening.records is not None
        assert opening.records.keys == (record,)
        sealed = federation.proof(request).data
        report = verified(tmp_path / "keys", sealed, federation.opening_of(request.number).read_bytes())
        assert report.opening is not None
        assert report.opening.records == opening.records
        assert federation.clients() == tuple(sorted(task.clients()))
    assert not fsck(run)
    for place, text in ((run, "site-1"), (run, record), (tmp_path / "keys", record)):
        assert not files_with(place, text)


def test_requests_of_one_client_that_wait_are_answered_together_under_one_key(tmp_path: Path) -> None:
    settings, task = settings_of(5), RandomTask(5)
    run = trained(tmp_path / "run", task, settings)
    one, two, *_ = dict.fromkeys(task.record_keys("site-3"))
    with Ledger.open(run, shared=True) as ledger:
        first = ledger.place_record_requests({"site-3": [one]}, at=now())
        second = ledger.place_record_requests({"site-3": [two]}, at=now())
        assert first != second
        assert ledger.place_record_requests({"site-3": [one]}, at=now()) == first
    with Federation.open(run, task) as federation:
        answered = federation.answer()
        assert [request.number for request in answered] == [first["site-3"], second["site-3"]]
        assert len(federation.ledger.exclusions()["site-3"].hashes) == 2
        assert len(federation.ledger.keyring.present()) == 7
    assert not fsck(run)


def test_a_request_of_the_whole_client_beside_them_wins(tmp_path: Path) -> None:
    settings, task = settings_of(6), RandomTask(6)
    run = trained(tmp_path / "run", task, settings)
    record = task.record_keys("site-3")[0]
    with Ledger.open(run, shared=True) as ledger:
        ledger.place_record_requests({"site-3": [record]}, at=now())
        ledger.place_requests(["site-3"], at=now())
    with Federation.open(run, task) as federation:
        assert len(federation.answer()) == 2
        assert "site-3" not in federation.clients()
        assert federation.ledger.has_left("site-3")
        assert federation.ledger.exclusions(["site-3"])["site-3"].excludes(record)
    assert not fsck(run)


def test_what_else_a_client_asks_for_goes_on_waiting_and_is_answered_under_its_new_key(tmp_path: Path) -> None:
    """As if only one of two requests were approved."""
    settings, task = settings_of(7), RandomTask(7)
    run = trained(tmp_path / "run", task, settings)
    one, two, *_ = dict.fromkeys(task.record_keys("site-3"))
    (tmp_path / "own").mkdir()
    with Ledger.open(run, write=True) as ledger:
        [first] = ledger.place_record_requests({"site-3": [one]}, at=now()).values()
        [second] = ledger.place_record_requests({"site-3": [two]}, at=now(), openings=tmp_path / "own").values()
        with ledger.transaction() as transaction:
            client = transaction.waiting().clients[first]
            only = Waiting({first: client}, frozenset([first]), first)
            erasure = transaction.open_erasure(only, Verdict(VerdictKind.DENIABLE), mechanism="retrain", at=now())
            transaction.log_erasure(erasure)
    # killed here, before the keyring knows of it: whoever opens the run completes it
    with Ledger.open(run, shared=True) as ledger:
        assert ledger.exclusions()["site-3"].excludes(one)
        assert ledger.records_waiting("site-3") == {two}
        assert ledger.place_record_requests({"site-3": [one]}, at=now()) == {"site-3": first}  # not answered yet
        assert ledger.place_record_requests({"site-3": [two]}, at=now()) == {"site-3": second}
    with Federation.open(run, task) as federation:
        assert {request.number for request in federation.answer()} == {first, second}
        assert len(federation.ledger.exclusions()["site-3"].hashes) == 2
    assert len(list((tmp_path / "own").iterdir())) >= 1
    assert not fsck(run)


@pytest.mark.parametrize("curve", [ec.SECP384R1(), ec.SECP256R1(), None])
def test_a_proof_carries_the_clients_word_once_it_is_given(tmp_path: Path, curve: ec.EllipticCurve | None) -> None:
    settings, task = settings_of(4), RandomTask(4)
    signed(tmp_path / "keys")
    run = trained(tmp_path / "run", task, settings)
    key = Ed25519PrivateKey.generate() if curve is None else ec.generate_private_key(curve)
    one = task.record_keys("site-1")[0]
    with Federation.open(run, task) as federation:
        with Ledger.open(run, shared=True) as ledger:
            [number] = ledger.place_record_requests({"site-1": [one]}, at=now()).values()
        [(wanted, records)] = federation.ledger.words_wanted("site-1").items()
        assert wanted == number
        federation.answer()
        assert federation.ledger.records_commitment(number) == records
        assert federation.ledger.words_wanted("site-1") == {}
        [request] = federation.requests()
        opening = federation.opening_of(number).read_bytes()
        before = federation.proof(request).data
        word = SignedWord.sign(key, run=federation.ledger.run_id, records=records, at=time_to_text(now()))
        with pytest.raises(VerificationError):  # the proof is older than the word
            verified(tmp_path / "keys", before, opening, word.encode())
        path = federation.note_word(number, word.encode())
        after = federation.proof(request).data
        verified(tmp_path / "keys", after, opening, path.read_bytes())
        other = SignedWord.sign(key, run=federation.ledger.run_id, records=bytes(32), at=time_to_text(now()))
        forged = replace(word, signature=other.signature)
        for wrong in (other, forged):
            with pytest.raises(VerificationError):
                federation.note_word(number, wrong.encode())
            with pytest.raises(VerificationError):
                verified(tmp_path / "keys", after, opening, wrong.encode())
        with pytest.raises(RunError):
            federation.note_word(number + 1, word.encode())
        assert federation.erase("site-2").requests["site-2"].state is RequestState.ANSWERED
        with pytest.raises(RunError):
            federation.note_word(number + 1, word.encode())  # it is of a whole client
    assert not fsck(run)


# -- runs that were restored from a backup -----------------------------------------------------------------------


@pytest.mark.sqlite
def test_a_run_from_before_a_record_request_is_withdrawn_from_again_and_the_records_stay_out(
    tmp_path: Path,
) -> None:
    settings, task = settings_of(13), RandomTask(13)
    run = trained(tmp_path / "run", task, settings)
    shutil.copytree(run, tmp_path / "backup")
    record = task.record_keys("site-4")[0]
    held = sum(key != record for key in task.record_keys("site-4"))
    with Federation.open(run, task) as federation:
        federation.erase("site-4", records=[record])
    shutil.rmtree(run)
    shutil.copytree(tmp_path / "backup", run)
    assert Ledger.accept(run).slots == 3
    with Federation.open(run, task, write=True) as federation:
        federation.train(rounds=4)
        assert federation.ledger.latest_samples()["site-4"] == held
        assert federation.ledger.rounds_with("site-4")[-1] == 4
        with refuses(RecordErased):
            federation.erase("site-4", records=[record])
    assert not fsck(run)


@pytest.mark.sqlite
def test_a_run_from_before_a_record_request_that_is_not_answered_yet(tmp_path: Path) -> None:
    """The keyring has put the new key in place, and still has the old one."""
    settings, task = settings_of(13), RandomTask(13)
    run = trained(tmp_path / "run", task, settings)
    shutil.copytree(run, tmp_path / "backup")
    record = task.record_keys("site-4")[0]
    with Ledger.open(run, write=True) as ledger:
        ledger.place_record_requests({"site-4": [record]}, at=now())
        judge_waiting(ledger, RoundOptions(seed=1), Retrain(), lambda verdict, requests: None)
        assert len(ledger.keyring.predecessors()) == 1
    shutil.rmtree(run)
    shutil.copytree(tmp_path / "backup", run)
    assert Ledger.accept(run).slots == 3
    with Federation.open(run, task) as federation:
        [request] = federation.answer()
        assert request.records is None  # that of everybody who was forgotten
        assert federation.ledger.keyring.predecessors() == set()
        assert federation.ledger.exclusions()["site-4"].excludes(record)
    assert not fsck(run)


def test_a_copy_of_a_run_goes_on_by_itself(tmp_path: Path) -> None:
    settings, task = settings_of(14), RandomTask(14)
    run = trained(tmp_path / "run", task, settings)
    record, other, *_ = dict.fromkeys(task.record_keys("site-4"))
    with Federation.open(run, task) as federation:
        federation.erase("site-4", records=[record])
    with Ledger.open(run, shared=True) as ledger:
        ledger.place_record_requests({"site-4": [other]}, at=now())
    copy_run(run, tmp_path / "copy", keys=tmp_path / "keys", target_keys=tmp_path / "other keys")
    with Federation.open(tmp_path / "copy", task, keys=tmp_path / "other keys") as federation:
        federation.answer()
        assert len(federation.ledger.exclusions()["site-4"].hashes) == 2
    assert not any(finding.fault for finding in fsck(tmp_path / "copy", keys=tmp_path / "other keys"))
    with Ledger.open(run) as ledger:
        assert len(ledger.exclusions()["site-4"].hashes) == 1
        assert ledger.records_waiting("site-4") == {other}


# -- what is refused ---------------------------------------------------------------------------------------------


def test_what_cannot_be_asked_for_is_refused_and_nothing_is_placed(tmp_path: Path) -> None:
    settings, task = settings_of(8), RandomTask(8)
    run = trained(tmp_path / "run", task, settings)
    mine = task.record_keys("site-0")
    with Federation.open(run, task) as federation:
        with refuses(UnknownRecord, "patient-99"):
            federation.erase("site-0", records=["patient-99"])
        with refuses(UnknownRecord, "patient-99"):
            federation.erase(everywhere=["patient-99"])
        with refuses(UnknownClient, "site-9"):
            federation.erase("site-9", records=mine[:1])
        with refuses(RecordsUnchecked, "site-0"):
            federation.erase("site-0", records=mine)
        empty: list[str] = []
        for arguments in ({"records": empty}, {"everywhere": empty}, {"records": mine[:1], "everywhere": mine[:1]}):
            with refuses(ConfigError):
                federation.erase("site-0" if "records" in arguments else None, **arguments)  # type: ignore[arg-type]
        with refuses(ConfigError):
            federation.erase({})
        with refuses(ConfigError):
            federation.erase(records=mine[:1])
        assert federation.requests() == ()
        federation.erase("site-0", records=mine[:1])
        with refuses(RecordErased, mine[0]):
            federation.erase("site-0", records=mine[:1])
        with refuses(RecordErased, mine[0]):
            federation.forecast("site-0", records=mine[:1])
        with refuses(RecordErased, mine[0]):
            federation.erase("site-0", records=mine[:1], unchecked=True)
        federation.erase("site-1")
        with refuses(AlreadyForgotten, "site-1"):
            federation.erase("site-1", records=task.record_keys("site-1")[:1])
        assert len(federation.requests()) == 2
    assert not fsck(run)


def test_records_that_cannot_be_looked_up_are_asked_for_unchecked(tmp_path: Path) -> None:
    settings, task = settings_of(9), RandomTask(9)
    run = trained(tmp_path / "run", task, settings)
    record = task.record_keys("site-0")[0]
    with Federation.open(run) as federation:  # nobody has named its task
        with refuses(RecordsUnchecked, "--unchecked"):
            federation.erase("site-0", records=[record])
        assert federation.requests() == ()
        [request] = federation.erase("site-0", records=[record], unchecked=True).requests.values()
        assert request.state is RequestState.ANSWERED  # it is deniable: nothing has to be trained
    with Federation.open(run, RandomTask(9, [("site-0", record)]), write=True) as federation:
        federation.train(rounds=4)  # its data is without the record by now


def test_a_task_without_record_keys_is_refused(tmp_path: Path) -> None:
    class Unnamed(RandomTask):
        def record_keys(self, client: str) -> Any:
            del client

    run = trained(tmp_path / "run", Unnamed(10), settings_of(10))
    with Federation.open(run, Unnamed(10)) as federation:
        with refuses(RecordsUnchecked, "site-0"):
            federation.erase("site-0", records=["patient-0"])
        with refuses(RecordsUnchecked):
            federation.erase(everywhere=["patient-0"])
        assert federation.requests() == ()


def test_a_record_is_erased_wherever_it_is(tmp_path: Path) -> None:
    settings, task = settings_of(11), RandomTask(11)
    run = trained(tmp_path / "run", task, settings)
    holders = [client for client in task.clients() if "patient-1" in task.record_keys(client)]
    assert len(holders) > 1
    with Federation.open(run, task) as federation:
        prospect = federation.forecast(everywhere="patient-1")
        assert dict(prospect.records) == dict.fromkeys(holders, ("patient-1",))
        assert prospect.forecast is not None
        answer = federation.erase(everywhere=["patient-1"])
        assert list(answer.requests) == holders
        assert sorted(federation.ledger.exclusions()) == sorted(holders)
        for request in answer.requests.values():
            assert request.verdict is not None
            assert request.verdict.kind is prospect.forecast.verdict.kind
    assert not fsck(run)


def test_one_of_several_requests_is_cancelled_by_its_number(tmp_path: Path) -> None:
    settings, task = settings_of(12), RandomTask(12)
    run = trained(tmp_path / "run", task, settings)
    one, two, *_ = dict.fromkeys(task.record_keys("site-3"))
    with Ledger.open(run, shared=True) as ledger:
        [first] = ledger.place_record_requests({"site-3": [one]}, at=now()).values()
        [second] = ledger.place_record_requests({"site-3": [two]}, at=now()).values()
    with Federation.open(run, task) as federation:
        with refuses(ConfigError, first, second):
            federation.cancel("site-3")
        assert federation.cancel(first).state is RequestState.CANCELLED
        assert federation.cancel("site-3").number == second
        assert federation.answer() == ()
        assert federation.ledger.exclusions() == {}
    assert not fsck(run)


def test_updates_that_were_kept_of_a_client_that_stays_are_neither_forecast_nor_used(tmp_path: Path) -> None:
    settings = settings_of(11, rounds=4, mechanism={"name": "federaser", "interval": 1})
    x = settings.policy.k  # nobody can be spared: whoever is withdrawn takes the run back to round 1
    settings = settings.model_copy(update={"deniability": settings.deniability.model_copy(update={"x": x})})
    task = RandomTask(11, clients=9)
    run = trained(tmp_path / "run", task, settings)
    scope = {"site-1": [task.record_keys("site-1")[0]]}
    with Federation.open(run, task) as federation:
        foretold = federation.forecast(scope).forecast
        [answered] = federation.erase(scope).requests.values()
    assert foretold is not None
    assert answered.cost is not None
    assert (foretold.verdict.undoes, answered.cost.rounds) == (1, 4)
    assert foretold.cost.client_epochs == answered.cost.client_epochs == 3 * 8  # nine clients, and one of them new
    assert foretold.cost.exchanged_bytes == answered.cost.exchanged_bytes
