"""Strategies are found by their names, and refused where they could not be."""

from __future__ import annotations

import errno
import importlib.metadata
import subprocess
import sys
from functools import cache
from importlib.metadata import EntryPoint
from types import new_class
from typing import Any, ClassVar

import pytest

import disavow
from disavow.config.declarations import NoiseSettings
from disavow.domain import strategies
from disavow.domain.strategies import (
    CLUSTERINGS,
    DISTRIBUTIONS,
    MECHANISMS,
    NOISE_KEYS,
    NOISES,
    ClusteringSpec,
    Registry,
    Strategy,
    register,
)
from disavow.errors import ConfigError, StorageFull, StrategyError
from tests.refusals import refuses


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[ClusteringSpec]:
    """A registry of its own, in which one of disavow is listed."""
    made = Registry[ClusteringSpec]("clustering.method", {"mdav": ("disavow.rounds.clustering.mdav:Mdav", "mdav")})
    monkeypatch.setattr(ClusteringSpec, "registry", made)
    return made


class Own(ClusteringSpec):
    """Not of disavow."""

    name = "own"
    summary = "own: as it likes"


def test_a_registered_strategy_is_listed_behind_those_of_disavow(registry: Registry[ClusteringSpec]) -> None:
    assert "own" not in registry
    assert register(Own) is Own
    assert list(registry) == ["mdav", "own"]
    assert isinstance(registry["own"], Own)
    assert [registry.added(name) for name in ("mdav", "own", "none")] == [False, True, False]
    assert [registry.summary(name) for name in registry] == ["mdav", "own: as it likes"]


def test_a_module_that_is_imported_again_may_register_again(registry: Registry[ClusteringSpec]) -> None:
    register(Own)
    register(Own)
    assert list(registry) == ["mdav", "own"]


def test_a_name_that_is_taken_is_refused(registry: Registry[ClusteringSpec]) -> None:
    register(Own)
    for taken in ("own", "mdav"):
        with refuses(ConfigError, taken):
            register(type("Other", (ClusteringSpec,), {"name": taken}))
    assert isinstance(registry["own"], Own)


@pytest.mark.parametrize("declared", [{}, {"name": ""}, {"name": 7}])
def test_a_strategy_without_a_name_is_refused(
    registry: Registry[ClusteringSpec], declared: dict[str, object]
) -> None:
    with refuses(ConfigError, "Nameless"):
        register(type("Nameless", (ClusteringSpec,), declared))
    assert list(registry) == ["mdav"]


def test_anchors_of_another_name_are_refused_because_verifiers_allow_no_gaps_in_them(
    registry: Registry[ClusteringSpec],
) -> None:
    class Anchored(ClusteringSpec):
        name = "anchored"
        anchored: ClassVar[bool] = True

    with refuses(ConfigError, "anchored"):
        register(Anchored)
    assert list(registry) == ["mdav"]


class Failing(ClusteringSpec):
    """Fails, or does not, as it is asked to."""

    name = "failing"
    error: ClassVar[Exception | None] = None

    def sizes(self, k: int) -> tuple[int, int | None]:
        if self.error is not None:
            raise self.error
        return super().sizes(k)


def test_a_failure_of_a_registered_strategy_is_named_as_its_own(
    registry: Registry[ClusteringSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    register(Failing)
    assert registry["failing"].sizes(3) == (3, 5)
    assert isinstance(registry["failing"], Failing)
    monkeypatch.setattr(Failing, "error", ZeroDivisionError("by nothing"))
    with refuses(
        StrategyError, 'clustering.method "failing"', f"{__name__}.Failing", "sizes", "by nothing", __file__
    ):
        registry["failing"].sizes(3)
    assert registry["failing"].fewest_participants(3) == 3  # not its own


@pytest.mark.parametrize("error", [StorageFull("none left"), OSError(errno.ENOSPC, "none left")])
def test_what_a_registered_strategy_meets_is_not_its_failure(
    registry: Registry[ClusteringSpec], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    register(Failing)
    monkeypatch.setattr(Failing, "error", error)
    with pytest.raises(type(error)) as raised:
        registry["failing"].sizes(3)
    assert raised.value is error


def test_where_every_strategy_counts_a_broken_package_is_refused(
    registry: Registry[ClusteringSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry.complete() == [registry["mdav"]]
    point = EntryPoint("mine", "nowhere_to_be_found.strategies", strategies.PLUGINS)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    monkeypatch.setattr(strategies, "broken_plugins", cache(strategies.broken_plugins.__wrapped__))
    assert list(registry) == ["mdav"]
    for needed in (registry.complete, lambda: registry["nowhere"]):
        with refuses(ConfigError, "mine = nowhere_to_be_found.strategies"):
            needed()


def test_methods_of_disavow_are_called_as_they_are(registry: Registry[ClusteringSpec]) -> None:
    register(Own)
    for strategy in (registry["own"], registry["mdav"]):
        assert not vars(strategy)


def test_a_name_that_nobody_registered_is_refused(registry: Registry[ClusteringSpec]) -> None:
    with refuses(ConfigError, "clustering.method", "nowhere", "mdav"):
        registry["nowhere"]


@pytest.mark.parametrize(
    "kind", [CLUSTERINGS, NOISES, DISTRIBUTIONS, MECHANISMS], ids=lambda each: str(each.setting)
)
def test_those_of_disavow_are_where_they_are_said_to_be(kind: Registry[Strategy]) -> None:
    for name in kind:
        assert kind[name].name == name
        assert kind.summary(name)


def anything(*given: Any, **named: Any) -> Any:
    """Stands for a method."""


@pytest.mark.parametrize(
    ("kind", "declared", "named"),
    [
        (disavow.Clustering, {}, "partition"),
        (disavow.Clustering, {"partition": anything, "name": "one two"}, "one two"),
        (disavow.Clustering, {"partition": anything, "name": "a\x1b[2J"}, "name"),
        (disavow.Clustering, {"partition": anything, "__init__": lambda self, size: None}, "size"),
        (disavow.Noise, {"needs": ("taau",)}, "taau"),
        (disavow.Noise, {"needs": ("tau")}, "needs"),
        (disavow.Distribution, {"variance_of_squares": 8.0}, "draw"),
        (disavow.Distribution, {"draw": anything}, "variance_of_squares"),
        (disavow.Criterion, {}, "broken"),
        (disavow.Criterion, {"broken": anything, "judges": "round"}, "round"),
        (disavow.Mechanism, {}, "rebuild_next"),
        (disavow.Attacker, {"unit": "world"}, "scores"),
        (disavow.Attacker, {"scores": anything}, "unit"),
        (disavow.Attacker, {"scores": anything, "unit": "worlds"}, "worlds"),
    ],
)
def test_a_declaration_that_could_not_work_is_refused(
    kind: type[Strategy], declared: dict[str, Any], named: str
) -> None:
    with refuses(ConfigError, named):
        register(
            new_class("Incomplete", (kind,), exec_body=lambda body: body.update({"name": "incomplete", **declared}))
        )
    assert "incomplete" not in kind.registry


@pytest.mark.parametrize(
    "thing",
    [object, Strategy, Own(), "own", disavow.Policy],
    ids=["object", "Strategy", "instance", "text", "Policy"],
)
def test_what_is_no_class_of_a_strategy_is_refused(thing: Any) -> None:
    with refuses(ConfigError, "disavow.Clustering"):
        register(thing)


def test_what_a_noise_can_need_are_settings() -> None:
    assert NoiseSettings.model_fields.keys() >= {*NOISE_KEYS}


def test_what_is_declared_is_known_without_torch() -> None:
    code = (
        "import sys; from disavow.domain.strategies import *\n"
        "for kind in (CLUSTERINGS, NOISES, DISTRIBUTIONS, MECHANISMS): list(kind.values())\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
