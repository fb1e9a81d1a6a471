"""The tree in the docstring of `errors` is the tree of classes, exit codes and all."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from disavow import errors
from disavow.errors import DisavowError
from tests.cli import process
from tests.cli.process import error_code

LINE = re.compile(r"^    (?P<indent>[│├└─ ]*)(?P<name>\w+)(?:\s+(?P<code>\d+)\s{2,}(?P<meaning>\S.*))?$")


def drawn() -> dict[str, tuple[str | None, int | None]]:
    """Each class of the drawing with its parent and its exit code."""
    tree: dict[str, tuple[str | None, int | None]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := LINE.match(line):
            depth = len(found["indent"]) // 4
            del path[depth:]
            tree[found["name"]] = (path[-1] if path else None, int(found["code"]) if found["code"] else None)
            path.append(found["name"])
    return tree


def declared() -> dict[str, type[DisavowError]]:
    return {
        name: value
        for name, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, DisavowError) and value.__module__ == errors.__name__
    }


def test_every_error_is_drawn_under_its_parent_and_nothing_else_is() -> None:
    parents = {name: one.__base__.__name__ if one.__base__ else None for name, one in declared().items()}
    assert {name: parent for name, (parent, _) in drawn().items()} == {**parents, "DisavowError": None}


def test_every_error_has_the_exit_code_that_is_drawn() -> None:
    codes = {name: code for name, (_, code) in drawn().items() if code is not None}
    assert codes.keys() == declared().keys() - {"DisavowError"}
    assert codes == {name: declared()[name].exit_code for name in codes}


def test_every_error_says_what_it_is() -> None:
    assert [name for name, one in declared().items() if not one.__dict__.get("__doc__")] == []


def test_every_error_has_a_code_of_its_own_and_prints_it(tmp_path: Path) -> None:
    codes = [kind.__dict__["code"] for kind in declared().values()]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"DSV-\d{3}", code) for code in codes)
    assert error_code(process.disavow("status", tmp_path)) == errors.RunMissing.code
