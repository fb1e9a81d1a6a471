"""A run that keeps few models trains as one that keeps all, and a rollback goes to the nearest it kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
import zstandard

from disavow.erasure.dry_run import Forecast, foresee
from disavow.federation import Federation
from disavow.ledger import Ledger, fsck
from disavow.ledger.models import to_safetensors
from disavow.ledger.retention import round_models
from disavow.ledger.schema import rounds
from disavow.rounds.vectors import Model, Updates
from tests.erasure.mechanisms.contract import (
    LAYOUT,
    ToyEngine,
    digests,
    groups,
    leave,
    reopen_toy,
    rolled_back,
    standing,
    start_toy,
    toy_settings,
)

ROUNDS = 10
MODEL = 4 + len(zstandard.compress(to_safetensors(LAYOUT, np.linspace(-1, 1, LAYOUT.size, dtype=np.float32))))
FRESH: dict[str, Any] = {"clients": 18, "rounds": ROUNDS, "clustering": {"sticky": False}}
STICKY: dict[str, Any] = {"clients": 18, "rounds": ROUNDS}


def trained(directory: Path, models: int | None, **changed: Any) -> Federation:
    """A trained toy run that keeps so many models of one size, or all."""
    retention = "all" if models is None else models * MODEL
    run = start_toy(directory, toy_settings(ledger={"retention": retention}, **changed))
    run.train()
    return run


def kept_in(ledger: Ledger) -> list[int]:
    with ledger._connect() as connection:
        return [each.round for each in round_models(connection) if each.kept]


def repeating(ledger: Ledger) -> list[int]:
    query = sa.select(rounds.c.number).where(rounds.c.standing, rounds.c.repeats).order_by(rounds.c.number)
    with ledger._connect() as connection:
        return list(connection.execute(query).scalars())


def forecasts(run: Federation) -> dict[tuple[str, ...], Forecast]:
    pairs = combinations(run.ledger.clients(), 2)
    return {pair: foresee(run.ledger, pair, run.options, run.mechanism) for pair in pairs}


def further_back(run: Federation) -> tuple[tuple[str, ...], Forecast]:
    """Two whose leaving breaks a round that is not kept, nor the one before it."""
    for pair, forecast in forecasts(run).items():
        verdict = forecast.verdict
        if verdict.round is not None and verdict.back_to is not None and 1 < verdict.back_to < verdict.round - 1:
            return pair, forecast
    raise AssertionError("nobody's leaving goes back further")


@pytest.mark.parametrize("changed", [FRESH, STICKY], ids=["fresh", "sticky"])
@pytest.mark.parametrize("models", [2, 4])
def test_while_nobody_leaves_every_model_is_that_of_a_run_that_keeps_all(
    tmp_path: Path, models: int, changed: dict[str, Any]
) -> None:
    with trained(tmp_path / "all" / "run", None, **changed) as run:
        due = digests(run.ledger), [summary.evaluation for summary in run.ledger.summaries()]
        assert kept_in(run.ledger) == list(range(1, ROUNDS + 2))
    with trained(tmp_path / "few" / "run", models, **changed) as run:
        assert (digests(run.ledger), [summary.evaluation for summary in run.ledger.summaries()]) == due
        assert len(kept_in(run.ledger)) == len(list(run.ledger.store.digests())) == models
        assert run.ledger.unevaluated() == ()
    assert fsck(tmp_path / "few" / "run") == []


def test_a_rollback_goes_to_the_nearest_kept_and_everything_says_so(tmp_path: Path) -> None:
    with trained(tmp_path / "run", 4, **FRESH) as run:
        kept = kept_in(run.ledger)
        pair, forecast = further_back(run)
        broken, back_to = forecast.verdict.round, forecast.verdict.back_to
        assert broken is not None
        assert back_to == max(each for each in kept if each <= broken)
        assert forecast.cost.rounds == ROUNDS - back_to + 1
        stays = digests(run.ledger)[: back_to - 1]
        one, two = leave(run, *pair)
        assert one.verdict == two.verdict == forecast.verdict
        assert one.cost is not None
        assert one.cost.rounds == forecast.cost.rounds
        assert digests(run.ledger)[: back_to - 1] == stays
        attempts = {summary.number: summary.attempt for summary in standing(run.ledger)}
        assert attempts == {number: 1 if number < back_to else 2 for number in range(1, ROUNDS + 1)}
        assert len(kept_in(run.ledger)) == len(list(run.ledger.store.digests())) == 4
    assert fsck(tmp_path / "run") == []


def test_the_rebuilt_rounds_are_those_of_a_run_that_rolled_back_there_anyway(tmp_path: Path) -> None:
    with trained(tmp_path / "few" / "run", 4, **FRESH) as run:
        pair, forecast = further_back(run)
        leave(run, *pair)
        found = digests(run.ledger)
    with trained(tmp_path / "all" / "run", None, **FRESH) as run:
        assert forecast.verdict.back_to is not None
        rolled_back(run, pair, forecast.verdict.back_to)
        run.answer()
        assert digests(run.ledger) == found


def test_a_round_repeats_while_sticky_clusters_only_lose_leavers(tmp_path: Path) -> None:
    with trained(tmp_path / "run", None, **{**STICKY, "rounds": 3}) as run:
        assert repeating(run.ledger) == [2, 3]
        large = [group for group in groups(run.ledger, 3) if len(group) > run.ledger.policy.k]
        small = min(groups(run.ledger, 3), key=len)
        if large:
            leave(run, min(large[0]))
        _further(run, 4)
        assert 4 in repeating(run.ledger)
        leave(run, min(small))
        _further(run, 5)
        assert 5 not in repeating(run.ledger)  # too small now: its members were given other clusters
    assert fsck(tmp_path / "run") == []


def _further(run: Federation, rounds: int) -> None:
    replace(run, settings=run.settings.model_copy(update={"rounds": rounds})).train()


@pytest.mark.parametrize(
    "changed",
    [
        FRESH,
        {**STICKY, "training": {"fraction": 0.6}},
        {**STICKY, "deniability": {"odds": 1e38}},
        {**STICKY, "deniability": {"delta": 0.01}},
    ],
    ids=["fresh", "partial participation", "odds over all rounds", "wider than Δ"],
)
def test_where_any_round_may_break_first_none_repeats(tmp_path: Path, changed: dict[str, Any]) -> None:
    with trained(tmp_path / "run", None, **changed) as run:
        assert repeating(run.ledger) == []


def test_the_budget_can_be_changed_between_two_commands(tmp_path: Path) -> None:
    with trained(tmp_path / "run", None, **STICKY) as run:
        assert len(kept_in(run.ledger)) == ROUNDS + 1
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().replace('retention = "all"', f"retention = {3 * MODEL}"))
    with reopen_toy(tmp_path / "run") as run:
        run.train()
        assert len(kept_in(run.ledger)) == 3


@pytest.mark.parametrize("after", ["record", "evaluation"])
def test_interrupted_after_a_record_it_evaluates_and_thins_before_anything_else(tmp_path: Path, after: str) -> None:
    """Otherwise what is kept, and with it where a later rollback goes, would depend on the interruption."""

    class Interrupted(ToyEngine):
        def train(self, model: Model, clients: Any, round_number: int, *, epochs: int | None = None) -> Updates:
            if after == "evaluation" and round_number == 8:
                raise KeyboardInterrupt
            return super().train(model, clients, round_number, epochs=epochs)

        def evaluate(self, model: Model) -> Any:
            if after == "record" and run.ledger.last_round == 7:
                raise KeyboardInterrupt
            return super().evaluate(model)

    with trained(tmp_path / "due" / "run", 4, **FRESH) as run:
        due = kept_in(run.ledger)
    run = start_toy(tmp_path / "run", toy_settings(ledger={"retention": 4 * MODEL}, **FRESH))
    with run, pytest.raises(KeyboardInterrupt):
        replace(run, own_engine=Interrupted(run.settings.seed)).train()
    with reopen_toy(tmp_path / "run") as run:
        run.answer()  # as `disavow erase` would
        run.train()
        assert kept_in(run.ledger) == due
        assert run.ledger.unevaluated() == ()
