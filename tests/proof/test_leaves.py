"""The names of disavow's own strategies are words of the format: in its table, both verifiers, the registries."""

from __future__ import annotations

import re
from inspect import getclosurevars
from pathlib import Path
from typing import Any

import pytest

from disavow.domain import strategies
from disavow.proof.leaves import LoggedPolicy, RebuiltLeaf
from tests.proof import second_verifier as second

FORMAT = (Path(__file__).parents[2] / "docs" / "proof-format.md").read_text(encoding="utf-8")
REGISTRIES: dict[str, strategies.Registry[Any]] = {
    "clustering": strategies.CLUSTERINGS,
    "noise": strategies.NOISES,
    "distribution": strategies.DISTRIBUTIONS,
    "mechanism": strategies.MECHANISMS,
}


def own(registry: strategies.Registry[Any]) -> set[str]:
    return {name for name in registry if not registry.added(name)}


def words(reader: Any) -> set[str]:
    """The words that a reader made by `one_of` was given, in either verifier."""
    return set(getclosurevars(reader).nonlocals["allowed"])


@pytest.mark.parametrize("field", REGISTRIES)
def test_the_words_of_the_policy_are_the_names_of_the_registry(field: str) -> None:
    row = re.search(rf"^\| `{field}` \| ([^|;]*)", FORMAT[FORMAT.index("| field of the policy") :], re.MULTILINE)
    assert row is not None
    kinds = getclosurevars(second.POLICY).nonlocals["kinds"]
    assert own(REGISTRIES[field]) == words(LoggedPolicy._declared().readers[field]) == words(kinds[field])
    assert own(REGISTRIES[field]) == set(re.findall(r'"([\w-]+)"', row[1]))


def test_rebuilt_rounds_name_a_mechanism_that_is_not_exact() -> None:
    approximate = {name for name in own(strategies.MECHANISMS) if not strategies.MECHANISMS[name].exact}
    assert words(RebuiltLeaf._declared().readers["mechanism"]) == approximate
