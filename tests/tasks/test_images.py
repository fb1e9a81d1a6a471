"""Built-in images from Python: the same run as from settings."""

from __future__ import annotations

from pathlib import Path

import pytest

import disavow
from disavow import config
from disavow.errors import CannotRetrain, ConfigError
from disavow.federation import Federation
from disavow.tasks import image_task
from tests.refusals import refuses

VALUES = {
    "seed": 3,
    "rounds": 1,
    "draws": "seeded",
    "data": {"clients": 6, "test_fraction": 0.8},
    "model": {"name": "convnet"},
    "training": {"epochs": 1},
    "clustering": {"k": 2},
    "deniability": {"x": 1},
}


def state_of(federation: Federation) -> tuple[object, ...]:
    ledger = federation.ledger
    rounds = [(each.after, each.evaluation) for each in ledger.summaries()]
    text = (federation.directory / "config.toml").read_text()
    return ledger.initial_model, ledger.trainer, ledger.settings_digest, ledger.clients(), rounds, text


def test_images_from_python_give_the_bits_of_those_from_settings(tmp_path: Path) -> None:
    settings = config.from_values(VALUES, source="tests")
    others = config.from_values({k: v for k, v in VALUES.items() if k not in ("data", "model")}, source="tests")
    found = []
    for name, task, given in (
        ("settings", None, settings),
        ("task", image_task("digits", model="convnet", clients=6, test_fraction=0.8), others),
    ):
        with Federation.create(tmp_path / name, task, settings=given, keys=tmp_path / "keys") as federation:
            federation.train()
            found.append(state_of(federation))
    assert found[0] == found[1]
    # it names itself: whoever opens it needs no task
    with Federation.open(tmp_path / "task", keys=tmp_path / "keys") as federation:
        assert federation.prepared.loaded.samples.keys() == set(federation.clients())
    with (
        Federation.open(tmp_path / "task", image_task(clients=7), keys=tmp_path / "keys") as federation,
        pytest.raises(CannotRetrain),
    ):
        federation.load()


def test_images_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with refuses(ConfigError, "data.clients"):
        image_task(clients=0)
    with refuses(ConfigError, "data.colour"):
        image_task(colour="red")
    with refuses(ConfigError, "clustering.k"):
        disavow.Federation.create(tmp_path / "run", image_task(clients=3), policy=disavow.Policy(k=4, x=2))
    assert not (tmp_path / "run").exists()
