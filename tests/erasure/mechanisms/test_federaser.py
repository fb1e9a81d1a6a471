"""FedEraser: against the formula, on real files, one erasure after another."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import sqlalchemy as sa
import torch

from disavow import config
from disavow.domain import Layout, RequestState, TensorSpec
from disavow.erasure.dry_run import foresee
from disavow.erasure.erase import answer_without_training, erase
from disavow.erasure.mechanisms import Mechanism, Step
from disavow.erasure.mechanisms.federaser import NO_ACCOUNT, FedEraser, calibrate
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.erasure.prove import proof_path
from disavow.errors import ConfigError, IntegrityError, LedgerError
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, RoundSummary, fsck
from disavow.ledger.copying import copy_run
from disavow.ledger.models import ModelStore
from disavow.ledger.schema import memberships, rebuilt, rounds
from disavow.privacy.accountants import account
from disavow.privacy.budget import Budget
from disavow.proof.notes import Signer
from disavow.rounds.vectors import Model, Updates
from tests.cli.process import disavow
from tests.erasure.mechanisms import contract
from tests.erasure.mechanisms.contract import (
    SIGNER,
    MechanismContract,
    ToyEngine,
    ahead,
    ask,
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
from tests.refusals import refuses

Vector = npt.NDArray[np.float64]


def toy(
    directory: Path,
    *,
    interval: int = 2,
    calibration: float = 0.5,
    compress: bool = True,
    signer: Signer | None = None,
    **changed: Any,
) -> Federation:
    """A trained toy run of eight rounds that keeps updates."""
    told = {"name": "federaser", "interval": interval, "calibration": calibration, "compress": compress}
    run = start_toy(directory, toy_settings(**{"rounds": 8, "mechanism": told, **changed}), signer=signer)
    run.train()
    return run


def update_files(directory: Path) -> list[Path]:
    folder = directory / "updates"
    return sorted(folder.iterdir()) if folder.exists() else []


class TestFedEraser(MechanismContract):
    """Approximate, and needs updates."""

    def make(self) -> Mechanism:
        return FedEraser()


def test_it_says_that_it_is_approximate() -> None:
    assert (FedEraser().name, FedEraser().exact) == ("federaser", False)


@pytest.mark.parametrize(
    ("share", "epochs", "due"), [(0.5, 3, 2), (0.5, 2, 1), (0.5, 1, 1), (0.1, 3, 1), (1.0, 3, 3), (0.34, 3, 2)]
)
def test_a_calibration_takes_a_share_of_the_epochs_rounded_up(
    tmp_path: Path, share: float, epochs: int, due: int
) -> None:
    with toy(tmp_path / "run", calibration=share, rounds=3, training={"epochs": epochs}) as run:
        assert ahead(run, first=1, last=3).steps == (Step(9, 0), Step(9, due))


# -- the formula -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What an engine was asked, and what it answered."""

    number: int
    epochs: int | None
    start: torch.Tensor
    updates: Updates


@dataclass(frozen=True)
class Remembering(ToyEngine):
    """Remembers every update it ever gave."""

    asked: list[Asked] = field(default_factory=list)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        updates = super().train(model, clients, round_number, epochs=epochs)
        self.asked.append(Asked(round_number, epochs, model.vector.clone(), updates))
        return updates


def average(samples: Sequence[int], rows: Sequence[Vector]) -> Vector:
    total = np.zeros_like(rows[0])
    for count, row in zip(samples, rows, strict=True):
        total = total + count * row
    return total / sum(samples)


def length(row: Vector) -> float:
    return math.sqrt(math.fsum(float(number) ** 2 for number in row))


def test_it_computes_what_the_paper_says(tmp_path: Path) -> None:
    """Written out again in float64, from nothing but what the engine returned."""
    settings = toy_settings(rounds=7, mechanism={"name": "federaser", "interval": 3})
    engine = Remembering(settings.seed)
    with start_toy(tmp_path / "run", settings) as started:
        run = replace(started, own_engine=engine)
        run.train()
        then = {asked.number: asked.updates for asked in engine.asked}
        engine.asked.clear()
        model = run.ledger.model_before(1).astype(np.float64)
        pair = mates(run)
        leave(run, *pair)
        trial, *calibrations = engine.asked
        assert len(trial.updates) == 1  # whether the engine can train this run, before anything is undone
        assert [(each.number, each.epochs) for each in calibrations] == [(2, 1), (3, 1)]
        for number, kept in enumerate((1, 4, 7), start=1):
            told = then[kept]
            samples = dict(zip(told.clients, told.samples, strict=True))
            rows = dict(zip(told.clients, told.vectors.double().numpy(), strict=True))
            survivors = sorted(set(rows) - set(pair))
            if number > 1:
                now = calibrations[number - 2]
                assert set(now.updates.clients) == set(survivors)
                np.testing.assert_allclose(now.start.numpy(), model, rtol=0, atol=2e-6)
                for client, row in zip(now.updates.clients, now.updates.vectors.double().numpy(), strict=True):
                    rows[client] = length(rows[client]) * row / length(row)
            model = model + average([samples[c] for c in survivors], [rows[c] for c in survivors])
            np.testing.assert_allclose(run.ledger.model_after(number), model, rtol=0, atol=2e-6)
        assert run.ledger.last_round == 3


def test_a_client_that_would_not_move_contributes_nothing() -> None:
    then = np.array([3.0, 4.0], dtype=np.float32)
    assert calibrate(then, np.zeros(2, dtype=np.float32)).tolist() == [0.0, 0.0]
    assert calibrate(then, np.array([0.0, -1e-30], dtype=np.float32)).tolist() == [0.0, -5.0]
    assert calibrate(np.zeros(2, dtype=np.float32), then).tolist() == [0.0, 0.0]


# -- what is kept ------------------------------------------------------------------------------------------------


def test_updates_are_kept_at_every_so_many_rounds_and_under_no_other_mechanism(tmp_path: Path) -> None:
    counts = {}
    for interval in (1, 2, 3, 8):
        with toy(tmp_path / str(interval), interval=interval) as run:
            counts[interval] = len(update_files(tmp_path / str(interval)))
            assert [kept.number for kept in run.ledger.kept_rounds(1)] == list(range(1, 9, interval))
    assert counts == {1: 72, 2: 36, 3: 27, 8: 9}
    sizes = [sum(path.stat().st_size for path in update_files(tmp_path / str(interval))) for interval in (1, 2)]
    assert sizes[0] == 2 * sizes[1]  # they are random numbers, all of one size
    for name in ("retrain", "retrain-from-scratch"):
        with start_toy(tmp_path / name, toy_settings(mechanism={"name": name, "interval": 1})) as run:
            run.train()
        assert not (tmp_path / name / "updates").exists()


def test_no_update_is_kept_where_the_log_promises_another_mechanism(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings()) as run:
        keeping = replace(run, own_options=replace(run.options, keep_every=1))
        with pytest.raises(LedgerError):
            keeping.train()
        assert run.ledger.next_round() == (1, 1)
    assert not update_files(tmp_path / "run")


@pytest.mark.parametrize(("promised", "other"), [("retrain", FedEraser()), ("federaser", Retrain())])
def test_a_run_is_rebuilt_by_no_other_mechanism_than_its_log_names(
    tmp_path: Path, promised: str, other: Mechanism
) -> None:
    with start_toy(tmp_path / "run", toy_settings(mechanism={"name": promised})) as run:
        run.train()
        assert run.ledger.policy.mechanism == promised
        ask(run, "client-01")
        with pytest.raises(ConfigError):
            erase(run.ledger, run.engine, run.options, other)
        with pytest.raises(ConfigError):
            answer_without_training(run.ledger, run.options, other)
        with pytest.raises(ConfigError):
            foresee(run.ledger, ["client-02"], run.options, other)
        assert [request.state for request in run.ledger.requests()] == [RequestState.WAITING]
        assert run.answer()


def test_what_is_kept_is_what_the_clients_returned(tmp_path: Path) -> None:
    with toy(tmp_path / "run", rounds=1) as run:
        [kept] = run.ledger.kept_rounds(1)
        model = Model(run.ledger.layout, torch.from_numpy(run.ledger.model_before(1)))
        returned = run.engine.train(model, [member.client for member in kept.members], 1)
        for member, row in zip(kept.members, returned.vectors, strict=True):
            assert np.array_equal(run.ledger.kept_update(member), row.numpy())
        assert [member.samples for member in kept.members] == list(returned.samples)


def test_without_compression_files_are_larger_and_models_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1_000  # of so many numbers there is something to compress
    monkeypatch.setattr(contract, "LAYOUT", Layout((TensorSpec("weight", (size,)),)))
    taken, models = {}, {}
    for compress in (True, False):
        directory = tmp_path / str(compress)
        with toy(directory, compress=compress) as run:
            files = {path: path.stat().st_size for path in update_files(directory)}
            leave(run, *mates(run))
            models[compress] = digests(run.ledger)
        calibrated = {path: path.stat().st_size for path in update_files(directory) if path not in files}
        assert len(files) == 4 * 9
        assert len(calibrated) == 3 * 7
        taken[compress] = [*files.values(), *calibrated.values()]
        assert faults(directory) == []
    assert models[True] == models[False]
    assert max(taken[True]) < 4 * size
    assert all(4 * size < bytes_ < 1.01 * 4 * size for bytes_ in taken[False])


def test_a_deniable_leaver_takes_its_updates_with_it_and_nobody_elses(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        before = set(update_files(tmp_path / "run"))
        mine = {
            run.ledger.updates.path(member.update_digest)
            for kept in run.ledger.kept_rounds(1)
            for member in kept.members
            if member.client == "client-03"
        }
        assert len(mine) == 4
        [request] = leave(run, "client-03")
        assert str(request.verdict) == "deniable"
        assert set(update_files(tmp_path / "run")) == before - mine
    assert faults(tmp_path / "run") == []


def test_superseded_rounds_give_up_their_updates_when_the_rebuild_commits_and_not_before(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        rolled_back(run, ["client-04"], 1)
        before = set(update_files(tmp_path / "run"))
        run.mechanism.rebuild_next(run.ledger, run.engine, run.options)
        # the first rebuilt round holds the survivors' updates as they are: the same files
        assert set(update_files(tmp_path / "run")) == before
        run.answer()
        after = update_files(tmp_path / "run")
        assert len(after) == 4 * 8
        assert len(set(after) & before) == 8
    assert faults(tmp_path / "run") == []


def test_a_kept_update_that_was_changed_or_lost_is_named(tmp_path: Path) -> None:
    toy(tmp_path / "run", rounds=2).close()
    one, two, *_ = update_files(tmp_path / "run")
    data = bytearray(one.read_bytes())
    data[-1] ^= 1
    one.write_bytes(data)
    two.unlink()
    found = faults(tmp_path / "run")
    assert len(found) == 2
    assert all("round 1, the kept update of slot" in text for text in found)
    assert {"missing" in text for text in found} == {True, False}
    with Ledger.open(tmp_path / "run") as ledger:
        [lost] = [m for m in ledger.kept_rounds(1)[0].members if ledger.updates.path(m.update_digest) == two]
        with refuses(IntegrityError, two.name, "missing"):
            ledger.kept_update(lost)


def test_files_that_no_row_names_are_noticed_and_removed(tmp_path: Path) -> None:
    toy(tmp_path / "run", rounds=2).close()
    kept = update_files(tmp_path / "run")
    left = tmp_path / "run" / "updates" / f"{bytes(32).hex()}.f32.zst"
    left.touch(mode=0o600)
    [note] = fsck(tmp_path / "run")
    assert (note.where, note.fault) == (f"updates/{left.name}", False)
    Ledger.open(tmp_path / "run", write=True).close()
    assert update_files(tmp_path / "run") == kept


def test_a_copy_of_the_run_has_what_it_needs_to_rebuild(tmp_path: Path) -> None:
    toy(tmp_path / "run").close()
    copy_run(tmp_path / "run", tmp_path / "copy" / "run")
    assert [p.name for p in update_files(tmp_path / "copy" / "run")] == [
        p.name for p in update_files(tmp_path / "run")
    ]
    assert faults(tmp_path / "copy" / "run") == []


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
    ("sql", "told"),
    [
        ("UPDATE rebuilt SET epochs = 9", "another digest"),
        ("DELETE FROM rebuilt", "nothing says from what it was rebuilt"),
        ("DELETE FROM updates WHERE slot = 0", "not all contributions to it are kept"),
        ("UPDATE memberships SET samples = samples + 1", "is not the one that was recorded"),
        ("UPDATE events SET weight = 0.5 WHERE mode = 'rebuilt'", "its event has weight 0.5"),
    ],
)
def test_fsck_names_what_is_wrong_with_a_rebuilt_round(tmp_path: Path, sql: str, told: str) -> None:
    with toy(tmp_path / "run") as run:
        leave(run, *mates(run))
        with run.ledger._begin() as connection:
            connection.execute(sa.text(sql))
    assert any("round 1, attempt 2" in text and told in text for text in faults(tmp_path / "run"))


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
    told = {"noise": {"mode": "calibrated", "clip": 1.0, "tau": 0.1}, "mechanism": {"name": "federaser"}}
    with refuses(ConfigError, "federaser", "noise"):
        config.from_values(told, source="tests")


def test_the_mechanism_is_kept_with_the_run() -> None:
    told: tuple[dict[str, Any], ...] = ({}, {"name": "federaser"}, {"name": "federaser", "compress": False})
    found = {config.settings_digest(config.from_values({"mechanism": each}, source="tests")) for each in told}
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


def test_leavers_digests_are_gone_from_the_tables_too(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        with run.ledger._connect() as connection:
            before = connection.execute(sa.select(sa.func.count()).select_from(memberships)).scalar_one()
        leave(run, "client-03")
        with run.ledger._connect() as connection:
            after = connection.execute(sa.select(sa.func.count()).select_from(memberships)).scalar_one()
        assert before - after == 8


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
        told = shown(proof_path(tmp_path / "run", 3))
        assert (told["rebuilt_rounds"], told["standing_rounds"]) == (4, 4)
        assert told["model"] == run.ledger.summary(4).after
    assert faults(tmp_path / "run") == []


def test_a_rollback_that_another_one_overtook_is_never_said_to_be_retrained(tmp_path: Path) -> None:
    """Undone from round 8, then from round 1: four rebuilt rounds stand, and none from round 8 on."""
    with toy(tmp_path / "run", signer=SIGNER) as run:
        rolled_back(run, [run.ledger.clients()[-1]], 8)
        rolled_back(run, mates(run), 1)
        run.answer()
        told = shown(proof_path(tmp_path / "run", 1))
        assert (told["rolled_back_to"], told["standing_rounds"]) == (8, 4)
        assert (told["retrained_from"], told["approximate"]) == (None, True)


def test_where_nothing_could_be_rebuilt_nothing_is_said_to_be_retrained(tmp_path: Path) -> None:
    with toy(tmp_path / "run", interval=8, signer=SIGNER) as run:
        rolled_back(run, ["client-04"], 3)
        run.answer()
        told = shown(proof_path(tmp_path / "run", 1))
        assert (told["rolled_back_to"], told["retrained_from"], told["approximate"]) == (3, None, False)


def test_a_lost_update_of_a_survivor_does_not_keep_a_request_from_being_honoured(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        leavers = mates(run)
        survivor = run.ledger.kept_rounds(3)[0].members[-1]
        assert survivor.client not in leavers
        run.ledger.updates.path(survivor.update_digest).unlink()
        assert all(finding.spare for finding in fsck(tmp_path / "run") if finding.fault)
        requests = leave(run, *leavers)
        assert all("cannot be rebuilt: update file" in request.remark for request in requests)
        assert [s.number for s in standing(run.ledger)] == [1]
        assert not set(leavers) & set(run.ledger.clients())
    assert faults(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DELETE FROM updates WHERE round_id = 3", "round 3: should keep its updates, and keeps none"),
        ("DELETE FROM updates WHERE round_id = 5 AND slot < 2", "round 5: keeps 7 of 9 updates"),
        (
            "INSERT INTO rebuilt (round_id, mechanism, source, epochs) VALUES (1, 'federaser', 7, 0)",
            "round 1: has clusters, and yet is said to have been rebuilt",
        ),
    ],
)
def test_fsck_names_rows_that_would_steer_a_rebuild_wrong(tmp_path: Path, sql: str, told: str) -> None:
    with toy(tmp_path / "run") as run, run.ledger._begin() as connection:
        connection.exec_driver_sql(sql)
    assert told in faults(tmp_path / "run")


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


def shown(proof: Path) -> dict[str, Any]:
    """What `disavow show-proof --json` says."""
    done = disavow("show-proof", proof, "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
