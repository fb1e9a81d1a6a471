"""Strategies are found by their names, and refused where they could not be."""

from __future__ import annotations

import subprocess
import sys
from typing import ClassVar

import pytest

from disavow.domain.strategies import (
    CLUSTERINGS,
    DISTRIBUTIONS,
    MECHANISMS,
    NOISES,
    ClusteringSpec,
    Registry,
    Strategy,
    register,
)
from disavow.errors import ConfigError
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


def test_what_is_declared_is_known_without_torch() -> None:
    code = (
        "import sys; from disavow.domain.strategies import *\n"
        "for kind in (CLUSTERINGS, NOISES, DISTRIBUTIONS, MECHANISMS): list(kind.values())\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
