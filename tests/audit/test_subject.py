"""Who can be audited, with which records; and every refusal, before anything is trained or written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from disavow import config, runs
from disavow.audit.subject import FEWEST_RECORDS, Subject, subject_of
from disavow.config import Settings
from disavow.data import FederatedData
from disavow.data import load as load_data
from disavow.engines.state import model_of
from disavow.errors import CannotRetrain, ConfigError, DisavowError, RunMissing, UnknownClient
from disavow.federation import Federation
from disavow.ledger import Ledger
from tests.audit.making import CLIENT, DENIABLE, hashes_of, leave, make_run, merged
from tests.refusals import refuses


def data_of(directory: Path) -> FederatedData:
    settings = runs.settings_of(directory)
    return load_data(settings.data, seed=settings.seed)


def check_records(subject: Subject, data: FederatedData) -> None:
    """What must hold of the records, whatever the partition."""
    held_out = subject.held_out - len(data.train)
    assert np.array_equal(subject.own, data.parts[subject.client])
    assert ((held_out >= 0) & (held_out < len(data.test))).all()
    assert len(set(held_out.tolist())) == len(held_out)
    assert torch.equal(subject.images[subject.held_out], data.test.images[held_out])
    assert torch.equal(subject.images[subject.own], data.train.images[subject.own])
    trained_on = np.concatenate(list(subject.parts.values()))
    assert not np.isin(subject.held_out, trained_on).any()
    own = np.bincount(subject.labels[subject.own].numpy(), minlength=10)
    found = np.bincount(subject.labels[subject.held_out].numpy(), minlength=10)
    there = np.bincount(data.test.labels.numpy(), minlength=10)
    assert np.array_equal(found, np.minimum(own, there))
    assert np.array_equal(subject.records, np.concatenate([subject.own, subject.held_out]))


def test_held_out_records_have_the_labels_of_the_own_ones(broken: Path) -> None:
    for client in ("client-01", CLIENT):
        check_records(subject_of(broken, client), data_of(broken))


def test_where_labels_are_unequal_and_held_out_records_few_there_are_as_many_as_there_are(tmp_path: Path) -> None:
    shape = {"data": {"partition": "dirichlet", "alpha": 0.3, "test_fraction": 0.1}, "rounds": 1}
    directory = make_run(tmp_path / "run", shape)
    data = data_of(directory)
    largest = max(data.parts, key=lambda client: len(data.parts[client]))
    subject = subject_of(directory, largest)
    check_records(subject, data)
    assert len(subject.held_out) < len(subject.own)


def test_the_seed_draws_the_held_out_records(broken: Path) -> None:
    first, again, other = (subject_of(broken, CLIENT, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.held_out, again.held_out)
    assert not np.array_equal(first.held_out, other.held_out)


def test_a_subject_knows_its_run(broken: Path) -> None:
    subject = subject_of(broken, CLIENT)
    with Ledger.open(broken) as ledger:
        assert (subject.clients, subject.policy, subject.layout) == (ledger.clients(), ledger.policy, ledger.layout)
        assert subject.rounds == 3
        assert np.array_equal(subject.initial.vector.numpy(), ledger.model_before(1))
    assert torch.equal(model_of(subject.network).vector, subject.initial.vector)
    assert subject.parts.keys() == set(subject.clients)


def test_a_seat_takes_the_place_of_the_own_records_and_of_nobody_elses(broken: Path) -> None:
    subject = subject_of(broken, CLIENT)
    key = subject.records[::2]
    parts = subject.workload(held=key).parts
    assert np.array_equal(parts[CLIENT], key)
    assert all(parts[client] is subject.parts[client] for client in subject.clients if client != CLIENT)
    assert subject.workload().parts[CLIENT] is subject.parts[CLIENT]


def test_those_who_have_left_are_in_nobodys_world(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run", DENIABLE)
    leave(directory, "client-05")
    subject = subject_of(directory, CLIENT)
    assert "client-05" not in subject.clients
    assert "client-05" not in subject.parts


# -- refusals ----------------------------------------------------------------------------------------------------


def refusal(
    directory: Path, client: str, kind: type[DisavowError], *named: object, data: FederatedData | None = None
) -> None:
    """Refused with this code, naming these, with every byte beside the run and in it left as it was."""
    before = hashes_of(directory.parent)
    with refuses(kind, *named):
        subject_of(directory, client, data=data)
    assert hashes_of(directory.parent) == before


@pytest.mark.parametrize("client", ["nobody", "", "client-0", "client-03 ", "\udcff"])
def test_an_unknown_client_is_refused(own_run: Path, client: str) -> None:
    refusal(own_run, client, UnknownClient, "not a client of this run")


@pytest.mark.parametrize("change", [DENIABLE, {}])
def test_a_client_that_has_left_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    directory = make_run(tmp_path / "run", change)
    leave(directory, CLIENT)
    with Ledger.open(directory) as ledger:
        [request] = ledger.requests()
        assert str(request.verdict) == ("deniable" if change else "rollback to round 1")
    refusal(directory, CLIENT, UnknownClient, CLIENT, "has left")


def test_a_run_without_a_round_is_refused(tmp_path: Path) -> None:
    settings = config.from_values(merged(), source="tests")
    Federation.create(tmp_path / "run", settings).close()
    refusal(tmp_path / "run", CLIENT, ConfigError, "no round")


def test_a_run_with_requests_waiting_is_refused(own_run: Path) -> None:
    with Ledger.open(own_run, shared=True) as ledger:
        ledger.place_requests(["client-05"], at=ledger.created_at)
    refusal(own_run, CLIENT, ConfigError, "1 request", "disavow resume")


def test_a_client_whose_data_is_missing_is_named(own_run: Path) -> None:
    data = data_of(own_run)

    def without(*clients: str) -> FederatedData:
        return replace(data, parts={name: part for name, part in data.parts.items() if name not in clients})

    refusal(own_run, CLIENT, CannotRetrain, "client-05", data=without("client-05"))
    refusal(own_run, CLIENT, CannotRetrain, "client-03 and 1 more", data=without(CLIENT, "client-05"))


def test_the_data_of_those_who_have_left_need_not_be_there(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run", DENIABLE)
    leave(directory, "client-05")
    data = data_of(directory)
    parts = {name: part for name, part in data.parts.items() if name != "client-05"}
    assert subject_of(directory, CLIENT, data=replace(data, parts=parts)).clients == tuple(parts)


def test_too_few_records_are_refused(own_run: Path) -> None:
    data = data_of(own_run)
    few = {**data.parts, CLIENT: data.parts[CLIENT][: FEWEST_RECORDS - 1]}
    refusal(own_run, CLIENT, ConfigError, f"{FEWEST_RECORDS - 1} records", data=replace(data, parts=few))
    # whoever has more to measure than single records may go on with fewer
    compared = subject_of(own_run, CLIENT, data=replace(data, parts=few), fewest_records=1)
    assert compared.too_few is not None
    enough = {**data.parts, CLIENT: data.parts[CLIENT][:FEWEST_RECORDS]}
    assert len(subject_of(own_run, CLIENT, data=replace(data, parts=enough)).own) == FEWEST_RECORDS


def test_too_few_held_out_records_are_refused(own_run: Path) -> None:
    data = data_of(own_run)
    test = data.test.select(np.arange(FEWEST_RECORDS - 1))
    refusal(own_run, CLIENT, ConfigError, "labels", data=replace(data, test=test))


@pytest.mark.parametrize(
    ("shape", "left", "k"),
    [
        ({"data": {"clients": 3}, "clustering": {"k": 3}}, "only 2", "k = 3"),
        ({"training": {"fraction": 0.25}}, "only 1", "k = 2"),
    ],
)
def test_too_few_to_train_without_the_client_are_refused(
    tmp_path: Path, shape: dict[str, object], left: str, k: str
) -> None:
    """Three of k = 3; or a quarter of six, which is two, and of five, which is one."""
    directory = make_run(tmp_path / "run", {"rounds": 1}, shape)
    refusal(directory, CLIENT, ConfigError, "without client-03", left, k)


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path / "nothing", CLIENT, RunMissing, tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    refusal(tmp_path / "empty", CLIENT, RunMissing, tmp_path / "empty")


def changed_settings(directory: Path, settings: Settings) -> None:
    (directory / "config.toml").write_text(config.to_toml(settings))


def test_settings_that_were_changed_since_the_run_was_started_are_refused(own_run: Path) -> None:
    """With another seed, other records would be taken for the client's: some that others have trained on."""
    settings = runs.settings_of(own_run)
    changed_settings(own_run, settings.model_copy(update={"seed": settings.seed + 1}))
    refusal(own_run, CLIENT, ConfigError, "config.toml", "changed")


def test_settings_that_may_be_changed_are_not_refused(own_run: Path) -> None:
    settings = runs.settings_of(own_run)
    changed_settings(own_run, settings.model_copy(update={"rounds": settings.rounds + 1}))
    assert subject_of(own_run, CLIENT).rounds == settings.rounds
