"""An erasure from the request to the report, on real runs and on toy ones."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch

from disavow.domain import RequestState, VerdictKind
from disavow.errors import ConfigError, DisavowError, KeyringMissing, KeyringOutdated, LeaverReturns, RoundRefused
from disavow.ledger import Ledger, fsck
from disavow.ledger.id_search import files_with
from disavow.rounds.vectors import Model
from tests.erasure.erased_runs import DENIABLE, NEVER, erasure_rows, reopened, rollback, toy
from tests.erasure.mechanisms.contract import (
    ToyEngine,
    ask,
    digests,
    groups,
    leave,
    pair_first_together_in,
    standing,
    start_toy,
    toy_settings,
    trained_toy,
)
from tests.ledger.making import files_of
from tests.refusals import refuses

# -- deniable ----------------------------------------------------------------------------------------------------


class Alike(ToyEngine):
    """Every client returns the same, so that who is left changes nothing."""

    def _one(self, model: Model, client: str, round_number: int) -> torch.Tensor:
        return super()._one(model, "anybody", round_number)


def test_a_rebuild_that_ends_in_the_very_models_it_undid_says_so(tmp_path: Path) -> None:
    settings = toy_settings(noise={"mode": "none"}, deniability={"x": 3})
    with start_toy(tmp_path / "run", settings) as started:
        run = replace(started, own_engine=Alike(settings.seed))
        run.train()
        before = digests(run.ledger)
        [answered] = leave(run, "client-01")
        assert answered.verdict is not None
        assert answered.verdict.kind is VerdictKind.ROLLBACK
        same = sum(one == other for one, other in zip(before, digests(run.ledger), strict=True))
        assert same > 0
        assert f"{same} of the rounds end in the very models that were undone" in answered.remark
    with trained_toy(tmp_path / "other", toy_settings(deniability={"x": 3})) as run:
        [answered] = leave(run, "client-01")
        assert "undone" not in answered.remark


def test_a_deniable_request_leaves_every_model_as_it_is(real: Path) -> None:
    with reopened(real) as run:
        before, models = run.ledger.summaries(), files_of(real / "models")
        # nobody's cluster keeps fewer than two of its three
        [request] = leave(run, "client-04")
        assert (request.verdict, request.state) == (DENIABLE, RequestState.ANSWERED)
        assert request.cost is not None
        assert request.cost.rounds == 0
        assert request.client is None
        assert request.answered_at is not None
        assert run.ledger.summaries() == before
        assert files_of(real / "models") == models
        assert "client-04" not in run.ledger.clients()
        assert all("client-04" not in group for t in range(1, 5) for group in groups(run.ledger, t))
    assert fsck(real) == []
    assert files_with(real, "client-04") == []


def test_a_deniable_request_succeeds_even_when_fewer_than_k_are_left(tmp_path: Path) -> None:
    """x = 1: a cluster holds as long as anyone is left in it, while k = 3 could train no further round."""
    with toy(tmp_path / "run", clients=3, deniability={"x": 1}) as run:
        models = digests(run.ledger)
        for client in ("client-01", "client-02"):
            [request] = leave(run, client)
            assert (request.verdict, request.remark) == (DENIABLE, "")
        assert digests(run.ledger) == models
        assert run.ledger.clients() == ("client-03",)
    assert fsck(tmp_path / "run") == []


# -- rollback ----------------------------------------------------------------------------------------------------


def test_a_rollback_rebuilds_from_the_broken_round_to_where_it_stood(real: Path) -> None:
    with reopened(real) as run:
        pair = pair_first_together_in(run.ledger, 3)
        before = run.ledger.summaries()
        old_files = set(run.ledger.store.digests())
        one, two = leave(run, *pair)
        assert one.verdict == two.verdict == rollback(3)
        after = run.ledger.summaries()
        # rounds 1 and 2 are untouched, 3 and 4 are superseded and stand anew, at their second attempt
        assert [(s.number, s.attempt, s.standing) for s in after] == [
            (1, 1, True),
            (2, 1, True),
            (3, 1, False),
            (4, 1, False),
            (3, 2, True),
            (4, 2, True),
        ]
        assert after[:2] == before[:2]
        assert [s.after for s in after[:4]] == [s.after for s in before]  # their digests remain
        assert [s.participants for s in after] == [10, 10, 10, 10, 8, 8]
        assert run.ledger.round(3).before == before[1].after  # the model broadcast in it, not the one after
        assert all(summary.evaluation is not None for summary in after[4:])
        gone = {before[2].after, before[3].after}
        assert set(run.ledger.store.digests()) == (old_files - gone) | {after[4].after, after[5].after}
        assert one.cost is not None
        assert (one.cost.rounds, one.cost.client_epochs) == (2, 16)
        assert one.cost.exchanged_bytes == 2 * 16 * 4 * run.ledger.layout.size
        assert one.cost.seconds > 0
        assert erasure_rows(run.ledger) == 1  # one judgement, one rollback
    assert fsck(real) == []
    for client in pair:
        assert files_with(real, client) == []


def test_many_at_once_are_one_judgement_though_each_alone_were_deniable(real: Path, tmp_path: Path) -> None:
    with reopened(real) as run:
        pair = pair_first_together_in(run.ledger, 2)
    for client in pair:
        # with a keyring of its own: who is forgotten in one copy would be forgotten in the other
        alone = Path(shutil.copytree(real, tmp_path / f"only {client}" / "run"))
        with Ledger.open(alone) as ledger:
            ledger.keyring.copy(alone.with_name("keys")).close()
        with reopened(alone, keys=alone.with_name("keys")) as run:
            assert leave(run, client)[0].verdict == DENIABLE
    with reopened(real) as run:
        assert {request.verdict for request in leave(run, *pair)} == {rollback(2)}
        assert erasure_rows(run.ledger) == 1


def test_one_after_the_other_they_come_to_the_same_round(real: Path) -> None:
    with reopened(real) as run:
        one, two = pair_first_together_in(run.ledger, 2)
        assert leave(run, one)[0].verdict == DENIABLE
        assert leave(run, two)[0].verdict == rollback(2)
        assert [s.number for s in standing(run.ledger)] == [1, 2, 3, 4]
    assert fsck(real) == []


def test_a_second_rollback_goes_deeper_than_the_first(tmp_path: Path) -> None:
    with toy(tmp_path / "run", clustering={"sticky": False}) as run:
        late = pair_first_together_in(run.ledger, 4)
        assert leave(run, *late)[0].verdict == rollback(4)
        early = sorted(run.ledger.membership(1)[0])[:2]
        assert leave(run, *early)[0].verdict == rollback(1)
        assert [(s.number, s.attempt) for s in standing(run.ledger)] == [(1, 2), (2, 2), (3, 2), (4, 3)]
        assert len(list(run.ledger.store.digests())) == 5
    assert fsck(tmp_path / "run") == []


def test_a_cluster_wider_than_a_fixed_delta_breaks_whoever_leaves_it(tmp_path: Path) -> None:
    with toy(tmp_path / "run", deniability={"x": 1, "delta": 1e-6}) as run:
        assert leave(run, "client-05")[0].verdict == rollback(1)
        assert len(standing(run.ledger)) == 4
    assert fsck(tmp_path / "run") == []


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("representatives", [1, 2])
def test_when_a_whole_cluster_leaves_the_model_rolls_back(
    tmp_path: Path, together: bool, representatives: int
) -> None:
    """In every round the representative was with certainty one of them: nobody else could have been drawn."""
    clustering = {"k": 3, "representatives": representatives}
    with toy(tmp_path / "run", clustering=clustering, deniability={"x": 1}) as run:
        leavers = run.ledger.membership(1)[0]
        if together:
            assert {request.verdict for request in leave(run, *leavers)} == {rollback(1)}
            return
        verdicts = [leave(run, client)[0].verdict for client in leavers]
    survivors = [len(leavers) - 1 - i for i in range(len(leavers))]
    enough = [left >= representatives for left in survivors]  # x + s - 1, with x = 1
    assert verdicts[: enough.index(False) + 1] == [DENIABLE] * enough.index(False) + [rollback(1)]


def test_a_relative_delta_decides_who_is_alike(tmp_path: Path) -> None:
    with toy(tmp_path / "run", deniability={"x": 1, "delta": "0.01x"}) as run:
        assert leave(run, "client-05")[0].verdict == rollback(1)
    with toy(tmp_path / "wide", deniability={"x": 1, "delta": "100x"}) as run:
        assert leave(run, "client-05")[0].verdict == DENIABLE


def test_odds_decide_where_they_are_limited(tmp_path: Path) -> None:
    """Enough survive; the limit on the odds over all rounds makes it a rollback to the first round beyond it."""
    noise = {"sigma": 1.0}
    with toy(tmp_path / "free", deniability={"x": 1}, noise=noise) as run:
        assert leave(run, "client-05")[0].verdict == DENIABLE
    with toy(tmp_path / "strict", deniability={"x": 1, "odds": 1.01}, noise=noise) as run:
        assert leave(run, "client-05")[0].verdict == rollback(1)
    with toy(tmp_path / "loose", deniability={"x": 1, "odds": 1e30}, noise=noise) as run:
        assert leave(run, "client-05")[0].verdict == DENIABLE


# -- too few to retrain ------------------------------------------------------------------------------------------


def test_with_fewer_than_k_survivors_the_rollback_still_happens_and_says_so(tmp_path: Path) -> None:
    with toy(tmp_path / "run", clients=4, deniability={"x": 3}) as run:
        models = digests(run.ledger)
        [request] = leave(run, "client-02")
        assert request.verdict == DENIABLE  # a cluster of four keeps three
        one, two = leave(run, "client-01", "client-04")
        assert one.verdict == two.verdict == rollback(1)
        assert one.state is RequestState.ANSWERED
        assert one.remark == (
            "not retrained: 1 participants are left, fewer than k = 3; the initial model is served"
        )
        assert one.cost is not None
        assert one.cost.rounds == 0
        assert standing(run.ledger) == []
        assert set(run.ledger.store.digests()) == {run.ledger.initial_model}
        assert [summary.after for summary in run.ledger.summaries()] == models
        assert run.ledger.next_round() == (1, 2)
    assert fsck(tmp_path / "run") == []
    for client in ("client-01", "client-02", "client-04"):
        assert files_with(tmp_path / "run", client) == []


def test_an_earlier_model_is_served_where_later_rounds_cannot_be_retrained(tmp_path: Path) -> None:
    """Half of eight clients take part in a round; when three have left, half of the rest are too few."""
    with toy(tmp_path / "run", clients=8, training={"fraction": 0.5}) as run:
        models = digests(run.ledger)
        [present] = zip(*(groups(run.ledger, t) for t in range(1, 5)), strict=True)
        broken = {
            trio: [t for t, group in enumerate(present, start=1) if len(group - set(trio)) < 2]
            for trio in combinations(run.ledger.clients(), 3)
        }
        leavers, first = next((trio, rounds[0]) for trio, rounds in broken.items() if rounds and rounds[0] > 1)
        answered = leave(run, *leavers)
        assert {request.verdict for request in answered if request.verdict != NEVER} == {rollback(first)}
        assert answered[0].remark == (
            f"not retrained: 2 participants are left, fewer than k = 3; the model of round {first - 1} is served"
        )
        assert digests(run.ledger) == models[: first - 1]
        assert set(run.ledger.store.digests()) == {run.ledger.initial_model, *models[: first - 1]}
        assert (run.ledger.model_before(first) == run.ledger.model_after(first - 1)).all()
    assert fsck(tmp_path / "run") == []


def test_a_run_without_enough_clients_goes_no_further_and_says_why(tmp_path: Path) -> None:
    with toy(tmp_path / "run", clients=3, deniability={"x": 3}) as run:
        leave(run, "client-01")
        with refuses(RoundRefused, "2 participants", "k = 3"):
            run.train()
        leave(run, "client-02", "client-03")
        assert run.ledger.clients() == ()
    assert fsck(tmp_path / "run") == []


def test_a_run_without_any_client_is_refused_like_one_with_too_few(real: Path) -> None:
    """An engine that is asked to train nobody must not crash."""
    with reopened(real) as run:
        everyone = run.ledger.clients()
        leave(run, *everyone)
        assert run.ledger.clients() == ()
        assert standing(run.ledger) == []
        with refuses(RoundRefused, "0 participants", "k = 3"):
            run.train()
    assert fsck(real) == []
    for client in everyone:
        assert files_with(real, client) == []


# -- never present, twice, back again ----------------------------------------------------------------------------


def test_who_never_took_part_is_told_so_and_forgotten_all_the_same(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        models = digests(run.ledger)
        run.ledger.register(["newcomer"])
        [request] = leave(run, "newcomer")
        assert (request.verdict, request.state) == (NEVER, RequestState.ANSWERED)
        assert digests(run.ledger) == models
        with refuses(LeaverReturns, "newcomer"):
            run.ledger.register(["newcomer"])
    assert files_with(tmp_path / "run", "newcomer") == []
    assert fsck(tmp_path / "run") == []


def test_asking_before_the_first_round_is_never_present(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings()) as run:
        [request] = leave(run, "client-01")
        assert request.verdict == NEVER
        run.train()
        assert run.ledger.round(1).slots.__len__() == 8


def test_asked_twice_gives_the_first_answer_and_nothing_happens_again(real: Path) -> None:
    with reopened(real) as run:
        pair = pair_first_together_in(run.ledger, 3)
        first = leave(run, *pair)
        before = run.ledger.summaries()
        assert leave(run, *pair) == first
        assert run.answer() == ()
        assert run.ledger.summaries() == before
        assert erasure_rows(run.ledger) == 1
    rows = files_of(real)
    with reopened(real) as run:  # and in another process, later
        assert leave(run, pair[1]) == first[1:]
    assert files_of(real) == rows


def test_asked_twice_while_waiting_is_asked_once(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        first = ask(run, "client-01")
        assert ask(run, "client-01", "client-01") == first * 2
        assert len(run.answer()) == 1
        assert len(run.ledger.requests()) == 1


def test_a_leaver_takes_part_in_no_later_round_and_cannot_return(tmp_path: Path) -> None:
    with toy(tmp_path / "run") as run:
        leave(run, "client-01")
        replace(run, settings=run.settings.model_copy(update={"rounds": 7})).train()
        assert [s.participants for s in standing(run.ledger)] == [9] * 4 + [8] * 3
        assert all("client-01" not in group for t in range(1, 8) for group in groups(run.ledger, t))
        with refuses(LeaverReturns, "client-01"):
            run.ledger.register(["client-01"])
        run.ledger.register(["client-02", "client-1"])  # others can come and stay


@pytest.mark.parametrize(
    ("instead", "refusal"),
    [(None, KeyringMissing), ("of another run", ConfigError), ("of before", KeyringOutdated)],
)
def test_another_keyring_is_refused_and_the_right_one_still_works(
    tmp_path: Path, instead: str | None, refusal: type[DisavowError]
) -> None:
    with toy(tmp_path / "run") as run:
        keyring = run.ledger.keyring
        before = keyring.copy(tmp_path / "of before")
        before.close()
        first = leave(run, "client-01")
    with toy(tmp_path / "other") as other:
        others = other.ledger.keyring.folder
    keyring.folder.rename(tmp_path / "right")
    if instead is not None:
        shutil.copytree(before.folder if instead == "of before" else others, keyring.folder)
    for write in (True, False):
        with refuses(refusal, keyring.run_id):
            Ledger.open(tmp_path / "run", write=write, shared=not write)
    shutil.rmtree(keyring.folder, ignore_errors=True)
    (tmp_path / "right").rename(keyring.folder)
    with reopened(tmp_path / "run") as run:
        assert leave(run, "client-01") == first
