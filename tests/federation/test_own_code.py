"""What trained a run: it is never retrained on something else, and may be left without retraining."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from disavow import config, runs
from disavow.audit.subject import subject_of
from disavow.data import FederatedData
from disavow.data import load as load_data
from disavow.domain import RequestState, TrainedBy, VerdictKind
from disavow.errors import CannotRetrain
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, RoundSummary, fsck
from disavow.ledger.id_search import files_with
from disavow.models import LeNet5
from disavow.rounds.options import now
from disavow.tasks import ImageTask
from tests.federation.making import (
    PASSPHRASE,
    SETTINGS,
    ReversedEngine,
    clusters,
    erase,
    foreseen,
    models,
    other_ids,
    other_labels,
    other_parts,
    other_shape,
    pair,
    states,
)

# -- what trained the run ----------------------------------------------------------------------------------------


def test_a_run_of_own_code_is_not_retrained_on_what_its_settings_name(own: Path) -> None:
    before, leavers = models(own), pair(own)
    outcome = erase(own, *leavers)
    assert outcome.refusal is not None
    assert states(own)[-1] is RequestState.WAITING
    assert models(own) == before
    with Federation.open(own, keys=own.with_name("keys"), write=True) as run, pytest.raises(CannotRetrain):
        run.train()
    assert models(own) == before
    assert fsck(own) == []


def test_a_run_of_own_code_answers_what_is_deniable(own: Path) -> None:
    outcome = erase(own, "client-01")
    assert outcome.refusal is None
    assert outcome.requests["client-01"].state is RequestState.ANSWERED


def test_settings_that_a_run_of_own_code_is_not_bound_to_do_not_keep_it_from_answering(
    own: Path, tmp_path: Path
) -> None:
    with Ledger.open(own) as ledger:
        made = ledger.trainer, ledger.policy, ledger.layout
    assert made[0] == TrainedBy("python", None)
    ledger = Ledger.create(
        tmp_path / "unbound",
        policy=made[1],
        layout=made[2],
        initial=np.zeros(made[2].size, np.float32),
        clients=["ada", "bela"],
        config="# no settings\n",
        created_by="tests",
        at=now(),
    )
    ledger.close()
    outcome = erase(tmp_path / "unbound", "ada")
    assert str(outcome.requests["ada"].verdict) == "never present"


def test_from_python_a_run_of_own_code_is_retrained_with_the_engine_it_is_given(own: Path) -> None:
    assert erase(own, *pair(own)).refusal is not None
    engine = ReversedEngine(runs.prepare(runs.settings_of(own)).engine)
    with Federation.open(own, keys=own.with_name("keys"), engine=engine) as federation:
        federation.answer()
    assert set(states(own)) == {RequestState.ANSWERED}
    assert [(number, attempt) for number, attempt, _ in models(own)] == [(1, 2), (2, 2)]


@pytest.mark.parametrize("change", [other_labels, other_ids, other_parts, other_shape])
def test_other_data_than_the_run_was_trained_on_is_refused_before_anything_is_undone(
    run: Path, change: Callable[[FederatedData], FederatedData], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = models(run)
    monkeypatch.setattr("disavow.data.load", lambda data_settings, **more: change(load_data(data_settings, **more)))
    outcome = erase(run, *pair(run))
    assert outcome.refusal is not None
    with (
        Federation.open(run, keys=run.with_name("keys"), ask=lambda path: PASSPHRASE, write=True) as federation,
        pytest.raises(CannotRetrain),
    ):
        federation.train()
    assert models(run) == before
    assert RequestState.REBUILDING not in states(run)


def test_the_audit_trains_no_run_of_own_code_and_on_no_other_data(
    own: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotRetrain):
        subject_of(own, "client-01")
    monkeypatch.setattr(
        "disavow.data.load", lambda *data_settings, **more: other_labels(load_data(*data_settings, **more))
    )
    with pytest.raises(CannotRetrain):
        subject_of(run, "client-01")


def test_a_run_records_the_data_of_its_settings(run: Path) -> None:
    settings = runs.settings_of(run)
    with Ledger.open(run) as ledger:
        assert ledger.trainer == TrainedBy("settings", load_data(settings.data, seed=settings.seed).held)


def test_what_is_prepared_by_hand_counts_as_own_code(tmp_path: Path) -> None:
    settings = config.from_values({**SETTINGS, "data": {"clients": 8}}, source="tests")
    data = other_labels(load_data(settings.data, seed=settings.seed))
    made = runs.prepare(settings, ImageTask(settings.data, settings.model, data))
    by_hand = runs.Prepared(made.loaded, made.engine)
    with Federation.create(tmp_path / "run", settings, keys=tmp_path / "keys", prepared=by_hand) as started:
        assert started.ledger.trainer.kind == "python"


def test_a_network_of_another_layout_is_refused_before_anything_is_undone(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageTask, "model", lambda task: LeNet5(task.data.train.shape, task.data.train.classes))
    before = models(run)
    assert erase(run, *pair(run)).refusal is not None
    assert models(run) == before


# -- without retraining --------------------------------------------------------------------------------------------


def test_without_retraining_the_rollback_is_made_and_the_earlier_model_served(own: Path) -> None:
    leavers = pair(own)
    outcome = erase(own, *leavers, retrain=False)
    assert outcome.refusal is None
    for request in outcome.requests.values():
        assert request.state is RequestState.ANSWERED
        assert request.verdict is not None
        assert (request.verdict.kind, request.verdict.round) == (VerdictKind.ROLLBACK, 1)
        assert request.remark == "not retrained: retraining was declined; the initial model is served"
    assert models(own) == []
    assert fsck(own) == []
    for client in leavers:
        assert files_with(own, client) == []


def test_without_retraining_what_is_deniable_keeps_its_model(own: Path) -> None:
    before = models(own)
    assert str(erase(own, "client-01", retrain=False).requests["client-01"].verdict) == "deniable"
    assert models(own) == before


def test_without_retraining_nobody_else_who_waits_is_rolled_back(own: Path) -> None:
    before, bystander = models(own), clusters(own)[1][0]
    assert erase(own, *pair(own)).refusal is not None
    assert erase(own, bystander, retrain=False).requests[bystander].state is RequestState.ANSWERED
    assert RequestState.WAITING in states(own)
    assert models(own) == before


def test_without_retraining_an_unfinished_rebuild_is_given_up_where_it_stands(run: Path) -> None:
    leavers = pair(run)

    def interrupt(summary: RoundSummary) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        erase(run, *leavers, callbacks=Callbacks(on_round=interrupt))
    assert set(states(run)) == {RequestState.REBUILDING}
    outcome = erase(run, leavers[0], retrain=False)
    assert outcome.requests[leavers[0]].remark.startswith("retrained only up to round 1: retraining was declined")
    assert set(states(run)) == {RequestState.ANSWERED}
    assert [(number, attempt) for number, attempt, _ in models(run)] == [(1, 2)]
    assert fsck(run) == []


def test_a_forecast_says_what_cannot_be_retrained_here(own: Path, run: Path, data: Path, tmp_path: Path) -> None:
    assert foreseen(own, *pair(own)).refusal is not None
    assert foreseen(own, *pair(own), retrain=False).refusal is None
    assert foreseen(own, "client-01").refusal is None
    assert foreseen(run, *pair(run)).refusal is None
    data.rename(tmp_path / "elsewhere")
    try:
        prospect = foreseen(run, *pair(run))
        assert str(data) in str(prospect.refusal)
        assert foreseen(run, "client-01").refusal is None
    finally:
        (tmp_path / "elsewhere").rename(data)
