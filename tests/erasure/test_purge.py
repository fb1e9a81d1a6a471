"""A purge: exact, complete, resumable; and what it does beside other requests."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from disavow.config import Settings
from disavow.domain import EventKind, RequestState, VerdictKind
from disavow.erasure.proof_files import opening_path, proof_path, second_proof_path
from disavow.errors import ConfigError, PurgeRefused
from disavow.federation import Callbacks, Federation
from disavow.ledger import fsck
from disavow.ledger.proofs import ProofStore
from disavow.proof.envelope import Envelope, seal
from disavow.proof.leaves import PurgeLeaf
from disavow.proof.statement import Statement, decode_statement
from disavow.proof.verify import TrustedKey, VerificationInputs, examine
from disavow.rounds.vectors import Model
from tests.erasure.erased_runs import toy
from tests.erasure.mechanisms.contract import (
    SIGNER,
    Failing,
    ToyEngine,
    ask,
    digests,
    faults,
    leave,
    mates,
    reopen_toy,
    standing,
    start_toy,
    toy_settings,
    trained_toy,
)
from tests.erasure.oracle import Oracle, same_bits
from tests.erasure.test_exactness import Remembering, checkpoints_kept, run_that_never_had, settings_of
from tests.proof import second_verifier as second
from tests.rounds.builders import MOMENT


def one_of_each(run: Federation, count: int = 2) -> list[str]:
    """Clients of as many clusters of round 1: each of them is deniable."""
    return [sorted(group)[0] for group in run.ledger.membership(1)][:count]


def purge_leaves(run: Federation) -> list[int]:
    """The rounds to which the log says that purges went back."""
    return [leaf.to for leaf in run.ledger.closed_leaves(()) if isinstance(leaf, PurgeLeaf)]


# -- exact -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("representatives", "sticky"), [(1, True), (2, False)])
def test_on_the_reference_engine_it_is_the_run_in_which_no_leaver_took_part(
    tmp_path: Path, representatives: int, sticky: bool
) -> None:
    settings = settings_of(
        13,
        rounds=3,
        clustering={"k": 4, "sticky": sticky, "representatives": representatives},
        deniability={"x": 2},
        engine={"name": "sequential", "device": "cpu"},
    )
    with Federation.create(tmp_path / "run", settings) as run:
        run.train()
        leavers = set(one_of_each(run))
        answered = leave(run, *sorted(leavers))
        assert {request.verdict and request.verdict.kind for request in answered} == {VerdictKind.DENIABLE}
        before = digests(run.ledger)
        done = run.purge()
        assert {request.number for request in done.requests} == {request.number for request in answered}
        retrained = digests(run.ledger)
    assert not set(retrained) & set(before)
    assert faults(tmp_path / "run") == []
    with run_that_never_had(leavers, settings, tmp_path / "never", None) as never:
        assert retrained == digests(never)


CHOICES: dict[str, list[Any]] = {
    "sticky": [True, False],
    "representatives": [1, 2],
    "fraction": [1.0, 0.6],
    "mechanism": ["retrain", "retrain", "retrain-from-scratch"],
    "retention": ["all", 1],
    "method": ["mdav", "constrained-kmeans"],
}


def drawn_settings(chance: random.Random) -> Settings:
    """A small federation of any kind."""
    pick = {name: chance.choice(values) for name, values in CHOICES.items()}
    return toy_settings(
        clients=chance.randrange(14, 20),
        seed=chance.randrange(1000),
        rounds=8,
        training={"epochs": 2, "fraction": pick["fraction"]},
        clustering={name: pick[name] for name in ("sticky", "representatives", "method")} | {"k": 4},
        deniability={"x": chance.choice([1, 2])},
        mechanism={"name": pick["mechanism"]},
        ledger={"retention": pick["retention"]},
    )


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(3, 120))]
)
def test_after_any_history_it_ends_in_the_bits_of_the_naive_federation(tmp_path: Path, seed: int) -> None:
    """Leavers, deniable or not, and purges in between, against the oracle, which remembers names."""
    chance = random.Random(seed)
    settings = drawn_settings(chance)
    scratch = settings.mechanism.name == "retrain-from-scratch"
    with start_toy(tmp_path / "run", settings) as created:
        engine = Remembering(ToyEngine(settings.seed))
        run = replace(created, own_engine=engine)
        oracle = Oracle(
            policy=run.ledger.policy,
            options=run.options,
            engine=engine,
            clients=set(run.ledger.clients()),
            models=[Model(run.ledger.layout, torch.from_numpy(run.ledger.model_before(1)))],
        )
        for until in (2, 5, 8, 8):
            run.train(rounds=until)
            oracle.train(until)
            leavers = set(chance.sample(sorted(oracle.clients), chance.choice([1, 2])))
            kept = checkpoints_kept(run.ledger)
            leave(run, *sorted(leavers))
            oracle.erase(leavers, from_scratch=scratch, kept=kept)
            if until != 2:
                kept, unpurged = checkpoints_kept(run.ledger), run.ledger.unpurged()
                touched = oracle.purge(from_scratch=scratch, kept=kept)
                assert unpurged.first == touched
                run.purge()
                assert not run.ledger.unpurged()
                assert purge_leaves(run) == [purge.first for purge in run.ledger.purges()]
        kept = checkpoints_kept(run.ledger)
        for number, vector in enumerate(oracle.vectors(), start=1):
            if number in kept:
                assert same_bits(torch.from_numpy(run.ledger.model_before(number)), vector), number
        # nobody who has left is in a slot of a standing round
        assert all(request.purged_at for request in run.requests() if _was_present(run, request.number))
    assert faults(tmp_path / "run") == []


def _was_present(run: Federation, number: int) -> bool:
    [request] = run.requests([number])
    return request.verdict is not None and request.verdict.kind is not VerdictKind.NEVER_PRESENT


def test_it_begins_with_the_first_round_that_a_leaver_was_in(tmp_path: Path) -> None:
    """A client who joined later leaves: the rounds before it stand."""
    with start_toy(tmp_path / "run", toy_settings(rounds=2)) as run:
        run.train()
        run.ledger.register(["newcomer-1"])
        run.train(rounds=5)
        [request] = leave(run, "newcomer-1")
        assert run.ledger.unpurged().rounds == {request.number: 3}
        before = digests(run.ledger)
        assert run.purge().purge is not None
        assert digests(run.ledger)[:2] == before[:2]
        assert not set(digests(run.ledger)[2:]) & set(before)
        assert [each.attempt for each in standing(run.ledger)] == [1, 1, 2, 2, 2]
    assert faults(tmp_path / "run") == []


# -- second proofs -----------------------------------------------------------------------------------------------


def check_second(run: Federation, number: int, *, client: str) -> Statement:
    """The second proof of a request holds by both verifiers, with the opening of the first; what it says."""
    data = second_proof_path(run.directory, number).read_bytes()
    opening = opening_path(run.directory.with_name("run.openings"), run.ledger.run_id, number).read_bytes()
    report = examine(VerificationInputs(data, [TrustedKey(SIGNER.public)], opening=opening, client=client))
    assert report.failure is None, report.failure
    assert report.named
    assert second.verify(data, f"{SIGNER.public}\n".encode(), opening=opening, client=client) == (0, None)
    statement = decode_statement(Envelope.decode(data).statement)
    assert isinstance(statement, Statement)
    return statement


def test_each_leaver_gets_a_second_proof_that_no_slot_of_it_stands(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings(), signer=SIGNER) as run:
        run.train()
        leavers = one_of_each(run)
        numbers = [request.number for request in leave(run, *leavers)]
        first = {number: proof_path(run.directory, number).read_bytes() for number in numbers}
        length = run.ledger.log_length()
        run.purge()
        for number, client in zip(numbers, leavers, strict=True):
            said = check_second(run, number, client=client).predicate
            assert (said.purge, said.clusters) == (length, ())
            assert proof_path(run.directory, number).read_bytes() == first[number]
            [request] = run.requests([number])
            assert request.purged_at is not None
            assert request.history[-1].kind is EventKind.PURGED
    assert fsck(tmp_path / "run") == []


def test_a_rollback_of_others_that_undoes_the_last_round_of_a_leaver_purges_it(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings(), signer=SIGNER) as run:
        run.train()
        alone, *pair = sorted(run.ledger.membership(1)[0])
        [request] = leave(run, alone)
        assert request.purged_at is None
        leave(run, *pair)
        [request] = run.requests([request.number])
        assert request.purged_at is not None
        assert check_second(run, request.number, client=alone).predicate.purge is not None
        # those who made it necessary have no rounds either, and their first proofs say so
        assert not run.ledger.unpurged()
        for number in (2, 3):
            said = decode_statement(Envelope.decode(proof_path(run.directory, number).read_bytes()).statement)
            assert isinstance(said, Statement)
            assert said.predicate.purge is not None
            assert not second_proof_path(run.directory, number).exists()
            assert run.requests([number])[0].purged_at is not None
    assert fsck(tmp_path / "run") == []


def test_what_is_rebuilt_approximately_purges_nobody(tmp_path: Path) -> None:
    """It is made from updates to models that the leavers were in."""
    settings = toy_settings(mechanism={"name": "federaser"})
    with start_toy(tmp_path / "run", settings, signer=SIGNER) as run:
        run.train()
        alone, *pair = sorted(run.ledger.membership(1)[0])
        leave(run, alone)
        assert all(request.approximate for request in leave(run, *pair))
        assert [request.purged_at for request in run.requests()] == [None, None, None]
        assert not second_proof_path(run.directory, 1).exists()
        said = decode_statement(Envelope.decode(proof_path(run.directory, 2).read_bytes()).statement)
        assert isinstance(said, Statement)
        assert said.predicate.rounds is not None
        assert said.predicate.purge is None
        back = run.ledger.undone_at(said.predicate.rounds.superseded)
        claimed = replace(said, predicate=replace(said.predicate, purge=back))
        report = examine(VerificationInputs(seal(claimed.encode(), SIGNER), [TrustedKey(SIGNER.public)]))
        assert report.failed is not None
        assert report.failed.name == "verdict"
    assert fsck(tmp_path / "run") == []


def test_without_a_key_the_second_proof_is_signed_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with toy(tmp_path / "run") as run:
        [request] = leave(run, one_of_each(run)[0])
        run.purge()
        store = ProofStore(run.directory)
        assert store.read(request.number, purged=True) is None
        assert store.read(request.number, signed=False, purged=True) is not None
        monkeypatch.setattr("disavow.federation.proofs.load_signer", lambda folder, ask: SIGNER)
        proof = run.proof(run.requests([request.number])[0])
        assert examine(VerificationInputs(proof.data, [TrustedKey(SIGNER.public)])).valid
        said = decode_statement(Envelope.decode(proof.data).statement)
        assert isinstance(said, Statement)
        assert said.predicate.purge is not None
        assert store.read(request.number, purged=True) is not None
    assert fsck(tmp_path / "run") == []


def test_a_leaver_whose_first_proof_is_gone_is_purged_all_the_same(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings(), signer=SIGNER) as run:
        run.train()
        [request] = leave(run, one_of_each(run)[0])
        proof_path(run.directory, request.number).write_bytes(b"{}")
        [done] = run.purge().requests
        assert done.number == request.number
        assert not second_proof_path(run.directory, request.number).exists()
    assert [finding.fault for finding in fsck(tmp_path / "run")] == [True]


# -- beside other requests ---------------------------------------------------------------------------------------


def test_nothing_to_purge_changes_nothing(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        length = run.ledger.log_length()
        assert not run.forecast_purge()
        done = run.purge()
        assert (done.requests, done.purge, run.ledger.log_length()) == ((), None, length)


def test_purged_twice_is_purged_once(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        leave(run, *one_of_each(run))
        run.purge()
        models, length = digests(run.ledger), run.ledger.log_length()
        assert run.purge().purge is None
        assert (digests(run.ledger), run.ledger.log_length()) == (models, length)


def test_whoever_waits_is_judged_first_and_purged_with_the_others(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        alone, other = one_of_each(run)
        leave(run, alone)
        ask(run, other)
        forecast = run.forecast_purge()
        assert forecast.requests == (1, 2)
        done = run.purge()
        assert [request.number for request in done.requests] == [1, 2]
        assert done.purge is not None
        assert done.purge.cost.rounds == forecast.cost.rounds == 4
        assert done.purge.cost.client_epochs == forecast.cost.client_epochs
    assert faults(tmp_path / "run") == []


def test_a_forecast_stays_the_same_while_a_run_trains_on_until_its_work_doubles(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        leave(run, one_of_each(run)[0])
        seen = run.forecast_purge()
        assert seen.cost.rounds == 4
        run.train(rounds=7)
        assert run.forecast_purge().digest == seen.digest
        run.train(rounds=8)
        assert run.forecast_purge().digest != seen.digest


def test_a_request_after_a_purge_is_deniable_again_and_purged_by_the_next(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        first, second_one = one_of_each(run)
        leave(run, first)
        run.purge()
        [request] = leave(run, second_one)
        assert request.verdict is not None
        assert run.ledger.unpurged().rounds == {request.number: 1}
        assert [each.number for each in run.purge().requests] == [request.number]
        assert purge_leaves(run) == [1, 1]
    assert faults(tmp_path / "run") == []


def test_a_request_during_a_purge_is_judged_as_during_any_rebuild(tmp_path: Path) -> None:
    with toy(tmp_path / "run", rounds=5) as run:
        first, late = one_of_each(run)
        leave(run, first)
        placed: list[int] = []

        def meanwhile(_: Any) -> None:
            if not placed and run.ledger.last_round == 2:
                placed.extend(ask(run, late))

        done = run.purge(callbacks=Callbacks(on_round=meanwhile))
        [request] = run.requests(placed)
        assert request.state is RequestState.ANSWERED
        assert 1 in [each.number for each in done.requests]
        assert done.left == len(run.ledger.unpurged().rounds) == 1
        assert run.ledger.last_round == 5
        run.purge()
        assert not run.ledger.unpurged()
    assert faults(tmp_path / "run") == []


def test_a_purge_joins_a_rebuild_that_is_unfinished(tmp_path: Path) -> None:
    with toy(tmp_path / "run", clients=12, rounds=5) as run:
        alone = one_of_each(run)[1]
        pair = mates(run)
        leave(run, alone)
        failing = replace(run, own_engine=Failing(run.settings.seed, most=3))
        ask(run, *pair)
        with pytest.raises(KeyboardInterrupt):
            failing.answer()
        assert run.ledger.rebuilding() is not None
        run.purge()
        assert not run.ledger.unpurged()
        assert run.ledger.rebuilding() is None
        assert run.ledger.last_round == 5
        assert all(request.purged_at for request in run.requests())
    assert faults(tmp_path / "run") == []


def test_an_interrupted_purge_is_completed_by_whoever_opens_the_run(tmp_path: Path) -> None:
    with toy(tmp_path / "other") as run:
        leave(run, *one_of_each(run))
        run.purge()
        due = digests(run.ledger)
    with start_toy(tmp_path / "run", toy_settings()) as run:
        run.train()
        leave(run, *one_of_each(run))
        with pytest.raises(KeyboardInterrupt):
            replace(run, own_engine=Failing(run.settings.seed, most=4)).purge()
        assert run.ledger.rebuilding() is not None
        assert all(request.purged_at is None for request in run.requests())
        # no model is served meanwhile that a proof could be of
        assert not list((run.directory / "proofs").glob("*.purged*"))
    with reopen_toy(tmp_path / "run") as run:
        run.answer()
        assert digests(run.ledger) == due
        assert all(request.purged_at for request in run.requests())
        assert len(run.ledger.purges()) == 1
        assert run.ledger.purges()[0].finished_at is not None
    assert faults(tmp_path / "run") == []


# -- what stands in the way --------------------------------------------------------------------------------------


def test_with_fewer_than_k_survivors_nothing_is_undone(tmp_path: Path) -> None:
    with toy(tmp_path / "run", clients=5, clustering={"k": 5}, deniability={"x": 2}) as run:
        leave(run, "client-01")
        models, length = digests(run.ledger), run.ledger.log_length()
        forecast = run.forecast_purge()
        assert forecast.obstacle is not None
        assert "fewer than k = 5" in forecast.obstacle
        with pytest.raises(PurgeRefused):
            run.purge()
        assert (digests(run.ledger), run.ledger.log_length()) == (models, length)
        assert len(run.ledger.unpurged().rounds) == 1
    assert faults(tmp_path / "run") == []


def test_an_approximate_mechanism_is_refused_in_settings_and_by_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"deniability\.purge"):
        toy_settings(mechanism={"name": "federaser"}, deniability={"purge": "deadline"})
    with toy(tmp_path / "run", mechanism={"name": "federaser"}) as run:
        leave(run, one_of_each(run)[0])
        with pytest.raises(ConfigError, match="does not retrain exactly"):
            run.purge()
        assert run.purge_outlook().unpurged == 1


def test_who_waits_to_have_records_erased_takes_part_in_what_is_foreseen(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings(5, clustering={"k": 5}, deniability={"x": 2})) as run:
        run.ledger.place_record_requests({"client-01": ["a"]}, at=MOMENT)
        foreseen = run.forecast_purge()
        assert (foreseen.requests, foreseen.obstacle) == ((1,), None)  # with k clients left, all of which stay
        assert foreseen.cost.rounds == run.ledger.last_round
        run.ledger.place_requests(["client-01"], at=MOMENT)
        assert "fewer than k" in str(run.forecast_purge().obstacle)


def test_a_spent_budget_is_an_obstacle(tmp_path: Path) -> None:
    calibrated = {"mode": "calibrated", "clip": 1.0, "tau": 2.0}
    with start_toy(tmp_path / "run", toy_settings(rounds=3, noise=calibrated, privacy={"epsilon": 100.0})) as run:
        run.train()
        spent = run.status().budget
        assert spent is not None
        leave(run, one_of_each(run)[0])
        tight = run.settings.privacy.model_copy(update={"epsilon": spent.spent * 1.01})
        poor = replace(run, settings=run.settings.model_copy(update={"privacy": tight}))
        with pytest.raises(PurgeRefused, match="budget"):
            poor.purge()
        assert run.ledger.last_round == 3


# -- by itself, before the deadline ------------------------------------------------------------------------------


def dated(run: Federation, days: int) -> Federation:
    """The run, so many days after its requests were placed."""
    return replace(run, clock=lambda: MOMENT + timedelta(days=days))


@pytest.fixture
def deadline_run(tmp_path: Path) -> Any:
    with trained_toy(tmp_path / "run", toy_settings(deniability={"purge": "deadline"})) as run:
        yield run


def test_it_begins_by_itself_before_the_first_request_is_due(deadline_run: Federation) -> None:
    leave(dated(deadline_run, 0), *one_of_each(deadline_run))
    outlook = dated(deadline_run, 0).purge_outlook()
    assert outlook.due == deadline_run.requests([1])[0].due
    assert not outlook.begins
    # a deniable answer is an interim one: both are due until they are purged
    assert [(each.request.number, each.to_purge, each.at_risk) for each in dated(deadline_run, 20).due()] == [
        (1, True, None),
        (2, True, None),
    ]
    assert all(each.overdue for each in dated(deadline_run, 40).due())
    dated(deadline_run, 20).answer()
    assert len(deadline_run.ledger.unpurged().rounds) == 2
    dated(deadline_run, 32).answer()
    assert not deadline_run.ledger.unpurged()
    assert dated(deadline_run, 32).purge_outlook().due is None
    assert dated(deadline_run, 32).due() == ()


def test_whoever_looks_once_a_day_purges_in_time(deadline_run: Federation) -> None:
    leave(dated(deadline_run, 0), one_of_each(deadline_run)[0])
    due = deadline_run.requests([1])[0].due
    for day in range((due - MOMENT).days + 1):
        dated(deadline_run, day).answer()
        assert not dated(deadline_run, day).due() or MOMENT + timedelta(days=day + 1) < due
    [request] = deadline_run.requests([1])
    assert request.purged_at is not None
    assert due - timedelta(days=3) < request.purged_at < due


def test_it_begins_between_rounds(deadline_run: Federation) -> None:
    leave(dated(deadline_run, 0), *one_of_each(deadline_run))
    dated(deadline_run, 32).train(rounds=5)
    assert not deadline_run.ledger.unpurged()
    assert deadline_run.ledger.last_round == 5
    assert [each.attempt for each in standing(deadline_run.ledger)] == [2, 2, 2, 2, 1]


def test_a_purge_that_cannot_be_done_is_noted_once_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    settings = toy_settings(5, clustering={"k": 5}, deniability={"x": 2, "purge": "deadline"})
    with trained_toy(tmp_path / "run", settings) as run:
        leave(dated(run, 0), "client-01")
        late = dated(run, 40)
        outlook = late.purge_outlook()
        assert outlook.begins
        assert "fewer than k" in str(outlook.at_risk(1))
        notes: list[str] = []
        late.answer(Callbacks(on_note=notes.append))
        late.answer(Callbacks(on_note=notes.append))
        assert len(notes) == 1
        assert "a purge is due by" in notes[0]
        assert run.ledger.last_round == 4
        purge_status = late.status().to_json()["purge"]
        assert purge_status["unpurged"] == 1
        assert list(purge_status["at_risk"]) == ["1"]


def test_what_takes_longer_than_there_is_time_is_at_risk(deadline_run: Federation) -> None:
    leave(dated(deadline_run, 0), one_of_each(deadline_run)[0])
    outlook = dated(deadline_run, 40).purge_outlook()
    assert "less time left" in str(outlook.at_risk(1))
    assert dated(deadline_run, 1).purge_outlook().at_risk(1) is None


def test_without_the_setting_nothing_begins_by_itself(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        leave(dated(run, 0), one_of_each(run)[0])
        dated(run, 400).answer()
        assert len(run.ledger.unpurged().rounds) == 1
        assert run.purge_outlook().due is None
        assert json.loads(json.dumps(run.status().to_json()))["purge"]["unpurged"] == 1


def test_the_setting_may_be_changed_in_a_run(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        path = run.directory / "config.toml"
    path.write_text(path.read_text().replace('purge = "never"', 'purge = "deadline"'))
    with reopen_toy(tmp_path / "run") as run:
        assert run.settings.deniability.purge == "deadline"
        run.erase(["client-01"])
    assert faults(tmp_path / "run") == []


def test_the_account_counts_the_rounds_of_a_purge(tmp_path: Path) -> None:
    calibrated = {"mode": "calibrated", "clip": 1.0, "tau": 2.0}
    with start_toy(tmp_path / "run", toy_settings(rounds=3, noise=calibrated)) as run:
        run.train()
        leave(run, one_of_each(run)[0])
        assert len(run.ledger.events()) == 3
        run.purge()
        assert len(run.ledger.events()) == 6
