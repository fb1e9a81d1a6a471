"""Rounds that FedEraser rebuilt, what stops it, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from disavow import config
from disavow.erasure.dry_run import foresee
from disavow.erasure.mechanisms.federaser import NO_ACCOUNT
from disavow.erasure.proof_files import proof_path
from disavow.errors import ConfigError, LedgerError
from disavow.federation import Callbacks
from disavow.ledger import RoundSummary, fsck
from disavow.ledger.models import ModelStore
from disavow.ledger.schema import rebuilt, rounds
from disavow.privacy.accountants import account
from disavow.privacy.budget import Budget
from disavow.rounds.vectors import Model, Updates
from tests.erasure.mechanisms.contract import (
    SIGNER,
    ToyEngine,
    ahead,
    ask,
    brought,
    digests,
    faults,
    leave,
    mates,
    participants,
    rolled_back,
    standing,
    start_toy,
    toy_settings,
)
from tests.erasure.mechanisms.federaser_runs import shown, toy
from tests.ledger.making import files_of
from tests.refusals import refuses

# -- rebuilt rounds ----------------------------------------------------------------------------------------------


def test_fewer_rounds_stand_and_training_goes_on_to_those_that_were_asked_for(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        pair = mates(run)
        foreseen = foresee(run.ledger, pair, run.options, run.mechanism)
        assert (foreseen.served, foreseen.approximate) == (4, True)
        [request, _] = leave(run, *pair)
        assert request.remark == "rebuilt approximately by federaser; 4 rounds stand"
        assert [(s.number, s.attempt, s.rebuilt, s.spread) for s in standing(run.ledger)] == [
            (number, 2, True, None) for number in range(1, 5)
        ]
        assert request.cost is not None
        assert (request.cost.rounds, request.cost.client_epochs) == (4, 3 * 7 * 1)
        run.train()
        assert [s.rebuilt for s in standing(run.ledger)] == [True] * 4 + [False] * 4
        assert [kept.number for kept in run.ledger.kept_rounds(1)] == [1, 2, 3, 4, 5, 7]
    assert faults(tmp_path / "run") == []


def test_whoever_contributed_to_a_rebuilt_round_rolls_back_there(tmp_path: Path) -> None:
    with toy(tmp_path / "run", clients=12, clustering={"sticky": False}) as run:
        rolled_back(run, ["client-04"], 3)
        run.answer()
        assert [s.rebuilt for s in standing(run.ledger)] == [False, False, True, True, True]
        # alone it would be deniable in rounds 1 and 2, which have clusters
        [request] = leave(run, "client-11")
        assert str(request.verdict) == "rollback to round 3"
        assert [s.rebuilt for s in standing(run.ledger)] == [False, False, True, True, True]
        assert "client-11" not in participants(run.ledger, 4)
    assert faults(tmp_path / "run") == []


def test_a_rollback_in_the_middle_of_a_rebuild_goes_through_what_is_left(tmp_path: Path) -> None:
    """Kept are 1, 3, 5, 7. Two rounds are rebuilt from 1 and 3, then somebody else leaves: those two, 5 and 7."""
    sources = []
    with toy(tmp_path / "run") as run:
        ask(run, *mates(run))

        def asks(summary: RoundSummary) -> None:
            if summary.number == 2 and len(run.ledger.requests()) == 2:
                ask(run, run.ledger.clients()[0])

        run.answer(Callbacks(on_round=asks))
        with run.ledger._connect() as connection:
            for row in connection.execute(sa.select(rebuilt).order_by(rebuilt.c.round_id)):
                sources.append((row.round_id, row.source, row.epochs))
        assert sources == [(9, 1, 0), (10, 3, 1), (11, 9, 0), (12, 10, 1), (13, 5, 1), (14, 7, 1)]
        assert [s.number for s in standing(run.ledger)] == [1, 2, 3, 4]
    assert faults(tmp_path / "run") == []


def test_clusters_after_a_rebuild_are_those_of_before_it_where_they_stood(tmp_path: Path) -> None:
    """Sticky clusters look back to the newest standing round that has any."""
    with toy(tmp_path / "run", clients=12) as run:
        before = {frozenset(group) for group in run.ledger.membership(2)}
        rolled_back(run, ["client-04"], 3)
        run.answer()
        assert run.ledger.membership(4) == ()
        run.train()
        after = [set(group) for group in run.ledger.membership(8)]
        whole = [group for group in before if "client-04" not in group]
        assert len(whole) == 3
        assert all(any(group <= later for later in after) for group in whole)


def test_a_rebuilt_round_has_no_clusters_to_be_asked_for(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        leave(run, *mates(run))
        with refuses(LedgerError, "round 1", "rebuilt"):
            run.ledger.round(1)


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("UPDATE rebuilt SET epochs = 9", "another digest"),
        ("DELETE FROM rebuilt", "nothing says from what it was rebuilt"),
        ("DELETE FROM updates WHERE slot = 0", "not all contributions to it are kept"),
        ("UPDATE memberships SET sealed = zeroblob(length(sealed))", "is not the one that was recorded"),
        ("UPDATE events SET weight = 0.5 WHERE mode = 'rebuilt'", "its event has weight 0.5"),
    ],
)
def test_fsck_names_what_is_wrong_with_a_rebuilt_round(tmp_path: Path, sql: str, fault: str) -> None:
    with toy(tmp_path / "run") as run:
        leave(run, *mates(run))
        with run.ledger._begin() as connection:
            connection.execute(sa.text(sql))
    assert any("round 1, attempt 2" in text and fault in text for text in faults(tmp_path / "run"))


def test_fsck_notices_a_model_that_its_contributions_do_not_make(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        leave(run, *mates(run))
        layout, model = run.ledger.layout, run.ledger.model_after(1) + np.float32(1)
        old = digests(run.ledger)[0]
    store = ModelStore(tmp_path / "run" / "models")
    digest, _ = store.write(layout, model)
    store.path(digest).rename(store.path(old))
    found = faults(tmp_path / "run")
    assert any(f"model {old[:12]}" in text for text in found)


# -- obstacles ---------------------------------------------------------------------------------------------------


def test_where_no_updates_are_kept_the_rollback_still_happens(tmp_path: Path) -> None:
    with toy(tmp_path / "run", interval=8) as run:
        foreseen = ahead(run, first=3, last=8)
        assert foreseen.obstacle == "no updates are kept of rounds 3 to 8"
        rolled_back(run, ["client-04"], 3)
        run.answer()
        [request] = run.ledger.requests()
        assert request.remark == f"not rebuilt: {foreseen.obstacle}; the model of round 2 is served"
        assert not request.approximate
        assert [s.number for s in standing(run.ledger)] == [1, 2]
    assert faults(tmp_path / "run") == []


def test_a_kept_round_with_too_few_survivors_ends_the_rebuild(tmp_path: Path) -> None:
    """Only some take part in each round: of one kept round nearly everybody has left, of the one before not."""
    with toy(tmp_path / "run", clients=12, training={"fraction": 0.34}) as run:
        taking_part = {kept.number: {m.client for m in kept.members} for kept in run.ledger.kept_rounds(1)}
        few = min(number for number in taking_part if number > 1)
        leavers = sorted(taking_part[few] - taking_part[1])[:2] or sorted(taking_part[few])[:2]
        foreseen = ahead(run, first=1, last=8, leavers=leavers)
        assert len(foreseen.steps) == 1
        assert foreseen.obstacle == f"updates of 2 survivors are kept of round {few}, fewer than k = 3"
        rolled_back(run, leavers, 1)
        run.answer()
        [*_, request] = run.ledger.requests()
        assert request.remark == f"rebuilt only up to round 1: {foreseen.obstacle}; the model of round 1 is served"
        assert [s.number for s in standing(run.ledger)] == [1]
    assert faults(tmp_path / "run") == []


def test_no_privacy_budget_allows_a_rebuilt_round(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        strict = replace(run, own_options=replace(run.options, budget=Budget(1.0, 1e-5)))
        assert ahead(strict, first=1, last=8).obstacle == NO_ACCOUNT


@dataclass(frozen=True)
class Diverging(ToyEngine):
    """Somebody's calibration cannot be aggregated."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        updates = super().train(model, clients, round_number, epochs=epochs)
        if round_number == 3:
            updates.vectors[0, 0] = float("nan")
        return updates


def test_a_calibration_that_is_refused_serves_what_was_rebuilt_before_it(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        ask(run, *mates(run))
        [request, _] = replace(run, own_engine=Diverging(run.options.seed)).answer()
        assert "rebuilt only up to round 2: round 3 refused" in request.remark
        assert [s.number for s in standing(run.ledger)] == [1, 2]
    assert faults(tmp_path / "run") == []


# -- settings and account ----------------------------------------------------------------------------------------


def test_with_calibrated_noise_it_is_refused_by_name() -> None:
    values = {"noise": {"mode": "calibrated", "clip": 1.0, "tau": 0.1}, "mechanism": {"name": "federaser"}}
    with refuses(ConfigError, "federaser", "noise"):
        config.from_values(values, source="tests")


def test_the_mechanism_is_kept_with_the_run() -> None:
    mechanisms: tuple[dict[str, Any], ...] = ({}, {"name": "federaser"}, {"name": "federaser", "compress": False})
    found = {config.settings_digest(config.from_values({"mechanism": each}, source="tests")) for each in mechanisms}
    assert len(found) == 3
    named = config.from_values({"mechanism": {"name": "retrain", "interval": 2}}, source="tests")
    assert config.settings_digest(named) in found


def test_the_account_of_a_run_with_rebuilt_rounds_claims_no_figure(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        leave(run, *mates(run))
        events = run.ledger.events()
    assert [event.mode for event in events].count("rebuilt") == 4
    for claim in account(events, 1e-5):
        assert claim.epsilon is None
        assert "no figure for rebuilt rounds" in claim.why_not


def test_digests_of_kept_updates_are_in_no_file_and_nobody_opens_a_leavers(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        known = brought(run.ledger, "client-03")
        assert len(known) == 8
        leave(run, "client-03")
        assert brought(run.ledger, "client-03") == []
        assert not any(run.ledger.updates.path(filled).exists() for filled in known)
        names = files_of(tmp_path / "run")
    for digest in (filled.update_digest for filled in known):
        assert not any(digest in data or digest.hex() in name for name, data in names.items())


# -- what a reviewer found -----------------------------------------------------------------------------------------


def test_who_asks_before_an_approximate_rebuild_is_done_gets_a_proof_that_tells_of_it(tmp_path: Path) -> None:
    """The rounds being rebuilt have traces of all who were in the undone ones, whatever their verdict."""
    with toy(tmp_path / "run", signer=SIGNER) as run:
        first, late = mates(run), run.ledger.clients()[-1]
        rolled_back(run, first, 1)
        ask(run, late)
        run.answer()
        verdicts = [str(request.verdict) for request in run.ledger.requests()]
        assert verdicts[-1] == "deniable"
        document = shown(proof_path(tmp_path / "run", 3))
        assert (document["rebuilt_rounds"], document["standing_rounds"]) == (4, 4)
        assert document["model"] == run.ledger.summary(4).after
    assert faults(tmp_path / "run") == []


def test_a_rollback_that_another_one_overtook_is_never_said_to_be_retrained(tmp_path: Path) -> None:
    """Undone from round 8, then from round 1: four rebuilt rounds stand, and none from round 8 on."""
    with toy(tmp_path / "run", signer=SIGNER) as run:
        rolled_back(run, [run.ledger.clients()[-1]], 8)
        rolled_back(run, mates(run), 1)
        run.answer()
        document = shown(proof_path(tmp_path / "run", 1))
        assert (document["rolled_back_to"], document["standing_rounds"]) == (8, 4)
        assert (document["retrained_from"], document["approximate"]) == (None, True)


def test_where_nothing_could_be_rebuilt_nothing_is_said_to_be_retrained(tmp_path: Path) -> None:
    with toy(tmp_path / "run", interval=8, signer=SIGNER) as run:
        rolled_back(run, ["client-04"], 3)
        run.answer()
        document = shown(proof_path(tmp_path / "run", 1))
        assert (document["rolled_back_to"], document["retrained_from"], document["approximate"]) == (3, None, False)


def test_a_lost_update_of_a_survivor_does_not_keep_a_request_from_being_honoured(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        leavers = mates(run)
        survivor = run.ledger.kept_rounds(3)[0].filled[-1]
        assert survivor.client.id not in leavers
        run.ledger.updates.path(survivor).unlink()
        assert all(finding.spare for finding in fsck(tmp_path / "run") if finding.fault)
        requests = leave(run, *leavers)
        assert all("cannot be rebuilt: update file" in request.remark for request in requests)
        assert [s.number for s in standing(run.ledger)] == [1]
        assert not set(leavers) & set(run.ledger.clients())
    assert faults(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("DELETE FROM updates WHERE round_id = 3", "round 3: should keep its updates, and keeps none"),
        ("DELETE FROM updates WHERE round_id = 5 AND slot < 2", "round 5: keeps 7 of 9 updates"),
        (
            "INSERT INTO rebuilt (round_id, mechanism, source, epochs) VALUES (1, 'federaser', 7, 0)",
            "round 1: has clusters, and yet is said to have been rebuilt",
        ),
    ],
)
def test_fsck_names_rows_that_would_steer_a_rebuild_wrong(tmp_path: Path, sql: str, fault: str) -> None:
    with toy(tmp_path / "run") as run, run.ledger._begin() as connection:
        connection.exec_driver_sql(sql)
    assert fault in faults(tmp_path / "run")


def test_a_round_that_repeats_the_clusters_from_before_rebuilt_ones_is_no_fault(tmp_path: Path) -> None:
    settings = toy_settings(
        5,
        seed=378736,
        rounds=8,
        clustering={"k": 4},
        # wide enough for rounds 1 and 5, not for round 2
        deniability={"x": 2, "delta": 1.1319253692981963},
        training={"epochs": 1},
        mechanism={"name": "federaser", "interval": 1},
    )
    with start_toy(tmp_path / "run", settings) as run:
        replace(run, settings=settings.model_copy(update={"rounds": 4})).train()
        leave(run, "client-03")
        run.train()
        with run.ledger._connect() as connection:
            of = sa.select(rounds.c.number, rounds.c.clusters, rounds.c.repeats).where(rounds.c.standing)
            stand = {number: (clusters, repeats) for number, clusters, repeats in connection.execute(of)}
    assert any(repeats and stand[number - 1][0] == 0 for number, (_, repeats) in stand.items())
    assert not faults(tmp_path / "run")


def test_with_a_budget_of_bytes_it_is_refused_by_name() -> None:
    values = {"mechanism": {"name": "federaser"}, "ledger": {"retention": 1_000_000}}
    with refuses(ConfigError, "ledger.retention", 1000000, "mechanism.name", "federaser"):
        config.from_values(values, source="test")
