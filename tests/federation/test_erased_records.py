"""An open run whose task leaves out records that were erased, and knows its clients' data again by what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import disavow
from disavow import config, runs
from disavow.engines.state import model_of
from disavow.errors import CannotRetrain
from disavow.federation import Federation
from disavow.tasks.loading import LoadedTask
from tests.refusals import refuses
from tests.tasks.recorded import ERASED, Arrays, Datasets, Recorded, keys_of
from tests.tasks.zoo import CLIENTS

GONE = [record for records in ERASED.values() for record in records]
POLICY = disavow.Policy(k=2, x=1, draws="seeded")


@pytest.fixture(params=[Arrays, Datasets])
def kind(request: pytest.FixtureRequest) -> type[Recorded]:
    """What clients hold."""
    found: type[Recorded] = request.param
    return found


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Recorded]) -> Path:
    """A run of one round."""
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    with Federation.create(tmp_path / "run", kind(), policy=POLICY, rounds=1) as federation:
        federation.train()
    return tmp_path / "run"


def exclude(federation: Federation, erased: dict[str, tuple[str, ...]]) -> None:
    """Do with the keyring what a record request does: its client goes on under a new key, without the records."""
    keyring = federation.ledger.keyring
    numbers = federation.ledger.numbers_of(sorted(erased))
    keyring.put_in_place_of(keyring.prepare_successors(list(numbers.values())), erased)


def updates(federation: Federation) -> torch.Tensor:
    model = model_of(federation.prepared.network)
    return federation.engine.train(model, tuple(CLIENTS), 2).vectors


def loaded(federation: Federation) -> LoadedTask:
    return runs.find_again(federation.ledger, federation.settings, federation.task)


def changed(task: Recorded, client: str) -> Recorded:
    """The same task, one of whose clients holds other data."""

    class Other(type(task)):  # type: ignore[misc]
        def _columns(self, name: str) -> tuple[Any, Any]:
            inputs, labels = super()._columns(name)
            return (inputs[:-1] + 1, labels[:-1]) if name == client else (inputs, labels)

        def record_keys(self, name: str) -> Any:
            keys = super().record_keys(name)
            return keys[:-1] if name == client else keys

    return Other(task._without)


def test_an_engine_that_is_held_trains_on_no_record_that_is_erased_meanwhile(run: Path, kind: Any) -> None:
    with Federation.open(run, kind(), write=True) as federation:
        engine, model = federation.engine, model_of(federation.prepared.network)
        before = engine.train(model, tuple(CLIENTS), 2)
        exclude(federation, ERASED)
        after = engine.train(model, tuple(CLIENTS), 2)
        kept = federation.record_keys_of("ada")
    assert kept == tuple(keys_of("ada", GONE))
    other = [not torch.equal(a, b) for a, b in zip(before.vectors, after.vectors, strict=True)]
    assert [client for client, each in zip(CLIENTS, other, strict=True) if each] == list(ERASED)
    assert after.samples == tuple(len(keys_of(client, GONE)) for client in CLIENTS)


def test_a_run_loads_whether_or_not_its_data_still_holds_the_records(run: Path, kind: Any) -> None:
    with Federation.open(run, kind(), write=True) as federation:
        exclude(federation, ERASED)
        with_records = updates(federation)
    with Federation.open(run, kind(GONE), write=True) as federation:
        without_records = updates(federation)
        assert "ada" in federation.ledger.data_digests()
    assert torch.equal(with_records, without_records)


def test_what_is_left_is_bound_on_first_use_and_must_stay(run: Path, kind: Any) -> None:
    with Federation.open(run, changed(kind(), "ada"), write=True) as federation, refuses(CannotRetrain, "ada"):
        loaded(federation)
    with Federation.open(run, kind()) as federation:  # open for reading: nothing is bound
        exclude(federation, ERASED)
        loaded(federation)
        assert sorted(federation.ledger.data_digests()) == sorted(CLIENTS.keys() - ERASED.keys())
    with Federation.open(run, kind(), write=True) as federation:
        expected = loaded(federation).digests
        assert federation.ledger.data_digests() == expected
    for task, named in ((changed(kind(), "ada"), "ada"), (changed(kind(GONE), "dan"), "dan")):
        with Federation.open(run, task, write=True) as federation, refuses(CannotRetrain, named):
            loaded(federation)


def test_a_client_of_whom_nothing_is_left_is_refused_by_name(run: Path, kind: Any) -> None:
    with Federation.open(run, kind(), write=True) as federation:
        exclude(federation, {"cyd": tuple(keys_of("cyd"))})
        with refuses(CannotRetrain, "cyd"):
            loaded(federation)


def test_record_keys_need_no_engine(run: Path, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_engine_of", lambda *_: pytest.fail("an engine was built"))
    with Federation.open(run, kind()) as federation:
        assert federation.record_keys_of("ada") == tuple(keys_of("ada"))


def test_built_in_images_leave_out_the_numbers_that_were_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    values: dict[str, Any] = {
        "rounds": 1,
        "draws": "seeded",
        "data": {"clients": 4, "test_fraction": 0.9},
        "model": {"name": "convnet"},
        "training": {"epochs": 1},
        "clustering": {"k": 2},
        "deniability": {"x": 1},
    }
    with Federation.create(tmp_path / "run", config.from_values(values, source="tests")) as federation:
        federation.train()
        keys = federation.record_keys_of("client-01") or ()
    with Federation.open(tmp_path / "run", write=True) as federation:
        exclude(federation, {"client-01": keys[:5]})
        model = model_of(federation.prepared.network)
        assert federation.record_keys_of("client-01") == keys[5:]
        assert federation.engine.train(model, ["client-01"], 2).samples == (len(keys) - 5,)
