"""Examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from importlib.util import find_spec

import pytest

import benchmarks.engines
import disavow
import reproduction

# the first starts the command line when imported; the second runs only inside a migration; the third warns
_NOT_IMPORTED = {"disavow.__main__", "disavow.ledger.migrations.env", "disavow.engines.flower"}
_FLOWER = ("disavow.flower.", "disavow.engines.flower.")
_WITHOUT = () if find_spec("flwr") else _FLOWER
"""What needs an extra that is not installed."""


def modules() -> list[str]:
    packages = (disavow, reproduction, benchmarks.engines)
    found = [
        each for package in packages for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    names = (name for _, name, _ in found if name not in _NOT_IMPORTED)
    return ["disavow", *(name for name in names if not name.startswith(_WITHOUT))]


def examples(name: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(importlib.import_module(name)) if test.examples]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), verbose=False)
    assert results.failed == 0
    assert results.attempted == sum(len(test.examples) for test in examples(name))


def test_there_are_examples_and_they_are_found() -> None:
    with_examples = {name for name in modules() if examples(name)}
    assert {
        "disavow.domain.layout",
        "disavow.domain.verdict",
        "disavow.data",
        "disavow.rounds.participation",
    } <= with_examples
