"""The flow of an erasure: keys, then the request, then the answer; data and an engine only to train."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disavow import config, runs
from disavow.audit.subject import subject_of
from disavow.data import FederatedData
from disavow.data import load as load_data
from disavow.domain import Evaluation, RequestState, TrainedBy, VerdictKind
from disavow.engines.state import model_of
from disavow.errors import CannotRetrain, ConfigError, IntegrityError, RunInUse, UnknownClient
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, RoundSummary, database, fsck
from disavow.ledger.id_search import files_with
from disavow.ledger.rows import time_to_text
from disavow.models import LeNet5
from disavow.proof.keys import generate
from disavow.results import Answer, Prospect
from disavow.rounds.local_training import Engine
from disavow.rounds.options import now
from disavow.rounds.training import train
from disavow.rounds.vectors import Model, Updates
from disavow.tasks import ImageTask
from tests.cli.process import environment
from tests.cli.process import run as process_run
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
    with Federation.create(folder / "run", settings, keys=folder / "keys", ask=lambda path: PASSPHRASE) as run:
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


def erase(
    run: Path,
    *clients: str,
    passphrase: str = PASSPHRASE,
    keys: Path | None = None,
    openings: Path | None = None,
    **more: Any,
) -> Answer:
    keys = keys or run.with_name("keys")
    with Federation.open(run, keys=keys, ask=lambda path: passphrase, openings=openings) as federation:
        return federation.erase(clients, **more)


def foreseen(run: Path, *clients: str, **more: Any) -> Prospect:
    with Federation.open(run, keys=run.with_name("keys")) as federation:
        return federation.forecast(clients, **more)


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

    seen: list[Prospect] = []

    def confirm(asked: Prospect) -> None:
        seen.append(asked)
        assert states(run) == []
        raise No

    with pytest.raises(No):
        erase(run, *pair(run), confirm=confirm)
    assert states(run) == []
    [asked] = seen
    assert asked.forecast is not None
    assert asked.forecast.verdict.kind is VerdictKind.ROLLBACK
    assert asked.forecast == foreseen(run, *pair(run)).forecast


def test_who_has_been_answered_before_is_not_foreseen_again(run: Path) -> None:
    erase(run, "client-01")
    asked = foreseen(run, "client-01")
    assert asked.forecast is None
    assert asked.before["client-01"].state is RequestState.ANSWERED


# -- data and engine only where something is trained --------------------------------------------------------------


@pytest.mark.usefixtures("moved")
def test_to_answer_what_is_deniable_loads_neither_data_nor_engine(run: Path) -> None:
    keys, written = run.with_name("keys"), []
    with Federation.open(run, keys=keys, ask=lambda path: PASSPHRASE, write=True) as federation:
        federation.ledger.place_requests(["client-01"], key=federation.tombstone_key(), at=federation.clock())
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


# -- readers -----------------------------------------------------------------------------------------------------


def test_a_reader_keeps_an_erasure_no_longer_than_it_waits(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted rows cannot be purged from files that somebody reads, such as an fsck of a large run."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 36_000)
    leaver = clusters(run)[1][0]
    with closing(sqlite3.connect(run / database.NAME, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM rounds").fetchone()
        with pytest.raises(RunInUse):
            erase(run, leaver, wait=0)
        assert states(run) == [RequestState.PURGING]
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


# -- what trained the run ----------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A run of somebody's own engine on somebody's own data, with the ids and the shapes of digits."""
    settings = config.from_values({**SETTINGS, "data": {"clients": 8}}, source="tests")
    prepared = runs.prepare(settings)
    ledger = Ledger.create(
        tmp_path / "own",
        policy=settings.policy,
        layout=model_of(prepared.network).layout,
        initial=model_of(prepared.network).vector.numpy(),
        clients=prepared.loaded.samples,
        config=config.to_toml(settings),
        created_by="tests",
        at=now(),
        settings_digest=config.settings_digest(settings),
    )
    with ledger:
        train(ledger, Own(prepared.engine), runs.round_options(settings), rounds=2)
    return tmp_path / "own"


@dataclass(frozen=True)
class Own:
    """An engine that the settings know nothing of: it goes the other way."""

    inner: Engine

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        updates = self.inner.train(model, clients, round_number, epochs=epochs)
        return replace(updates, vectors=-updates.vectors)

    def evaluate(self, model: Model) -> Evaluation | None:
        return self.inner.evaluate(model)

    def close(self) -> None:
        self.inner.close()


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
    engine = Own(runs.prepare(runs.settings_of(own)).engine)
    with Federation.open(own, keys=own.with_name("keys"), engine=engine) as federation:
        federation.answer()
    assert set(states(own)) == {RequestState.ANSWERED}
    assert [(number, attempt) for number, attempt, _ in models(own)] == [(1, 2), (2, 2)]


def other_labels(data: FederatedData) -> FederatedData:
    return replace(data, train=replace(data.train, labels=data.train.labels.flip(0)))


def other_ids(data: FederatedData) -> FederatedData:
    return replace(data, parts={name.replace("client", "silo"): part for name, part in data.parts.items()})


def other_parts(data: FederatedData) -> FederatedData:
    names = list(data.parts)
    return replace(data, parts=dict(zip(names, [data.parts[name] for name in reversed(names)], strict=True)))


def other_shape(data: FederatedData) -> FederatedData:
    return replace(data, train=replace(data.train, images=data.train.images[:, :, :, :-4]))


@pytest.mark.parametrize("change", [other_labels, other_ids, other_parts, other_shape])
def test_other_data_than_the_run_was_trained_on_is_refused_before_anything_is_undone(
    run: Path, change: Callable[[FederatedData], FederatedData], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = models(run)
    monkeypatch.setattr("disavow.data.load", lambda asked, **more: change(load_data(asked, **more)))
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
    monkeypatch.setattr("disavow.data.load", lambda *asked, **more: other_labels(load_data(*asked, **more)))
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
        told = foreseen(run, *pair(run))
        assert str(data) in str(told.refusal)
        assert foreseen(run, "client-01").refusal is None
    finally:
        (tmp_path / "elsewhere").rename(data)


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
        with pytest.raises(UnknownClient) as refused:
            ask(run, "client-1")
        assert "did you mean client-01" in str(refused.value)
        with pytest.raises(UnknownClient) as refused:
            ask(run, "hospital")
        assert "did you mean" not in str(refused.value)
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
