"""A run can be repeated, interrupted and gone on with; what was drawn in secret is nowhere."""

from __future__ import annotations

import copy
import re
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

import disavow
from disavow import config, runs
from disavow.config import Settings
from disavow.engines.trainer import VectorisedEngine
from disavow.errors import ConfigError, RoundRefused, RunExists, RunMissing
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, RoundSummary, fsck
from disavow.ledger.database import NAME
from tests.conftest import SMALL
from tests.ledger.making import all_rows, files_of
from tests.refusals import refuses


def settings_with(**changed: Any) -> Settings:
    """`SMALL` with other values; a table is merged, not replaced."""
    values = copy.deepcopy(SMALL)
    for key, value in changed.items():
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    return config.from_values(values, source="tests")


def models_of(directory: Path) -> list[str]:
    """The digests of all models, the initial one first."""
    with Ledger.open(directory) as ledger:
        return [ledger.initial_model, *(summary.after for summary in ledger.summaries())]


def train(settings: Settings, directory: Path) -> list[str]:
    with Federation.create(directory, settings) as run:
        run.train()
    return models_of(directory)


def test_seeded_runs_agree_in_every_model(trained: Path, tmp_path: Path) -> None:
    assert train(settings_with(), tmp_path / "again") == models_of(trained)


def test_another_seed_is_another_run(trained: Path, tmp_path: Path) -> None:
    other = train(settings_with(seed=8), tmp_path / "other")
    assert not set(other) & set(models_of(trained))


@pytest.mark.parametrize("noise", [{"mode": "paper"}, {"mode": "calibrated", "clip": 1.0, "tau": 0.001}])
def test_no_two_fresh_runs_agree_after_the_initial_model(tmp_path: Path, noise: dict[str, Any]) -> None:
    settings = settings_with(draws="fresh", noise=noise, rounds=2)
    one, two, three = (train(settings, tmp_path / str(i)) for i in range(3))
    assert one[0] == two[0] == three[0]  # a training draw, from the seed
    assert len({*one[1:], *two[1:], *three[1:]}) == 6


def test_nothing_of_a_secret_draw_is_on_disk(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    train(settings_with(draws="fresh"), directory)
    with closing(sqlite3.connect(directory / NAME)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {f"{t}.{row[1]}" for t in tables for row in connection.execute(f"PRAGMA table_info({t})")}
    suspicious = re.compile(r"seed|representative|chosen|drawn|\bdraw|noise|random|rng|secret|index")
    columns.remove("events.representatives")  # how many are drawn of each cluster, as the policy in leaf 0 says
    assert [column for column in columns if suspicious.search(column)] == []
    settings = tomllib.loads((directory / "config.toml").read_text())
    assert settings["seed"] == SMALL["seed"]
    assert [key for key in _keys(settings) if "seed" in key] == ["seed"]
    # models, rows, settings and an empty lock: there is no further file in which one could be
    names = {name for name in files_of(directory) if not name.startswith("models/")}
    assert names == {"config.toml", "lock", NAME}


def _keys(values: dict[str, Any]) -> list[str]:
    return [k for key, v in values.items() for k in (key, *(_keys(v) if isinstance(v, dict) else []))]


def test_slots_are_numbered_in_another_order_each_round(tmp_path: Path) -> None:
    """A slot number that followed its client through the rounds would outlive the client's leaving."""
    directory = tmp_path / "run"
    train(settings_with(draws="fresh", rounds=6), directory)
    with Ledger.open(directory) as ledger:
        rounds = [ledger.round(i) for i in range(1, 7)]
        order = [tuple(slot.member for cluster in each.clusters for slot in cluster.slots) for each in rounds]
        groups = [{frozenset(cluster) for cluster in ledger.membership(i)} for i in range(1, 7)]
    assert all(group == groups[0] for group in groups)  # sticky: the same clusters, all six times
    assert len(set(order)) > 1  # the same order six times: (2! 4! 4!)^-5 at the most


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_run_goes_on_to_the_models_of_one_that_was_not(
    trained: Path, tmp_path: Path, after: int
) -> None:
    def stop(summary: RoundSummary) -> None:
        if summary.number == after:
            raise Interrupted

    with Federation.create(tmp_path / "run", settings_with()) as run, pytest.raises(Interrupted):
        run.train(Callbacks(on_round=stop))
    assert fsck(tmp_path / "run") == []
    seen: list[int] = []
    with Federation.open(tmp_path / "run", write=True) as run:
        assert run.settings == settings_with()
        run.train(Callbacks(on_round=lambda summary: seen.append(summary.number)))
    assert seen == list(range(after + 1, 4))
    assert models_of(tmp_path / "run") == models_of(trained)


def test_a_round_recorded_but_not_evaluated_is_evaluated_on_the_way_on(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch, Federation.create(tmp_path / "run", settings_with()) as run:
        patch.setattr(VectorisedEngine, "evaluate", stop)
        with pytest.raises(Interrupted):
            run.train()
        assert run.ledger.unevaluated() == (1,)
    with Federation.open(tmp_path / "run", write=True) as run:
        run.train()
        assert run.ledger.unevaluated() == ()
    with Ledger.open(trained) as one, Ledger.open(tmp_path / "run") as two:
        assert [s.evaluation for s in one.summaries()] == [s.evaluation for s in two.summaries()]


def test_a_complete_run_stays_as_it_is(run_dir: Path) -> None:
    before = all_rows(run_dir)
    with Federation.open(run_dir, write=True) as run:
        run.train(Callbacks(on_round=lambda summary: pytest.fail("there was nothing to do")))
    assert all_rows(run_dir) == before


def test_a_run_keeps_the_settings_it_was_started_with(trained: Path) -> None:
    assert runs.settings_of(trained) == settings_with()


def test_a_directory_in_use_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with refuses(RunExists, tmp_path):
        Federation.create(tmp_path, settings_with())
    assert files_of(tmp_path) == {"thesis.tex": b"years of work"}


def test_no_run_to_go_on_with(tmp_path: Path) -> None:
    for open_it in (Federation.open, runs.settings_of):
        with refuses(RunMissing, tmp_path):
            open_it(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_more_clients_than_samples_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with refuses(ConfigError, "data.clients", 1700, 1438):
        Federation.create(tmp_path / "run", settings_with(data={"clients": 1700}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "changed",
    [{"training": {"learning_rate": 1e30}}, {"noise": {"mode": "calibrated", "clip": 1.0, "tau": 1e38}}],
    ids=["updates that are not finite", "noise that overflows float32"],
)
def test_a_round_whose_numbers_are_not_finite_is_refused_and_the_run_stays_clean(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    with Federation.create(tmp_path / "run", settings_with(**changed)) as run:
        with refuses(RoundRefused, "round 1"):
            run.train()
        assert run.ledger.next_round() == (1, 1)
    assert fsck(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('draws = "fresh"', 'draws = "seeded"'),
        ("k = 3", "k = 2"),
        ("seed = 7", "seed = 8"),
        ("epochs = 1", "epochs = 2"),
        ("learning_rate = 0.1", "learning_rate = 0.2"),
    ],
)
def test_settings_that_were_changed_after_the_start_are_refused_by_resume_and_by_fsck(
    tmp_path: Path, old: str, new: str
) -> None:
    directory = tmp_path / "run"
    train(settings_with(draws="fresh"), directory)
    file = directory / "config.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with refuses(ConfigError, "changed since"):
        Federation.open(directory, write=True)
    [finding] = fsck(directory)
    assert "config.toml" in str(finding)
    assert ", ".join(config.CHANGEABLE) in str(finding)
    file.write_text(text.replace("rounds = ", "rounds = 1"))  # 3 becomes 13: more rounds are welcome
    assert fsck(directory) == []
    Federation.open(directory, write=True).close()


@pytest.mark.parametrize(
    ("sizes", "batch_size", "said"),
    [
        ((36, 36, 33, 48), 16, None),
        ((36, 36, 33, 48), 32, "3 of 4 clients end each epoch with at most an eighth of a batch"),
        ((33, 33, 40, 40), 32, None),
        ((3, 3, 3), 32, None),
        ((9, 17, 25), 8, "3 of 3 clients end each epoch with at most an eighth of a batch"),
        ((9, 17, 25), 4, None),
    ],
    ids=[
        "rest of four of 16",
        "rests of four and one of 32",
        "half of them",
        "one batch",
        "one sample",
        "small batches",
    ],
)
def test_last_batches_that_are_small_for_most_clients_are_noted(
    sizes: tuple[int, ...], batch_size: int, said: str | None
) -> None:
    clients = {f"client-{at}": (torch.zeros(size, 2), torch.zeros(size).long()) for at, size in enumerate(sizes)}
    task = disavow.task(model=lambda: torch.nn.Linear(2, 2), clients=clients, batch_size=batch_size)
    notes = runs.prepare(
        config.from_values({"clustering": {"k": 1}, "deniability": {"x": 1}}, source="test"), task
    ).notes
    assert notes == () if said is None else notes[0].startswith(said)
