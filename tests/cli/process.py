"""The command line as a person runs it: a process of its own, its output in pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from disavow.errors import DisavowError

COMMAND = [sys.executable, "-m", "disavow"]
ROOT = Path(__file__).parents[2]
"""The repository, whose folders `reproduction` and `benchmarks` are not installed."""

_SHAPES_OUTPUT = {"FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"}
"""What the shell of whoever runs the tests may have set, and what would change what is printed."""


def environment(**more: str) -> dict[str, str]:
    """The environment of a child, without what would shape its output."""
    kept = {name: value for name, value in os.environ.items() if name not in _SHAPES_OUTPUT}
    return {**kept, "PYTHONUTF8": "1", **more}


def with_repository(**more: str) -> dict[str, str]:
    """The environment of a child that imports folders of the repository from wherever it is started."""
    found = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return environment(PYTHONPATH=os.pathsep.join(found), **more)


def disavow(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run([*COMMAND, *map(str, arguments)], cwd=cwd, env=environment())


def run(arguments: Sequence[str], *, cwd: Path | None, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run any program to its end, with nobody at its standard input."""
    return subprocess.run(
        arguments,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def write_config(path: Path, values: Mapping[str, Any]) -> Path:
    """A settings file of just these values."""

    def line(key: str, value: object) -> str:
        return f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {str(value).lower()}"

    top = [line(key, value) for key, value in values.items() if not isinstance(value, Mapping)]
    for section, inner in values.items():
        if isinstance(inner, Mapping):
            top += [f"[{section}]", *(line(key, value) for key, value in inner.items())]
    path.write_text("\n".join(top) + "\n", encoding="utf-8")
    return path


def assert_refused(result: subprocess.CompletedProcess[str], kind: type[DisavowError], *named: object) -> None:
    """Expect one line on stderr with this error's code and exit code, which names these: clients, files, keys."""
    assert result.returncode == kind.exit_code, result.stderr
    [line] = result.stderr.splitlines()
    assert result.stdout == ""
    assert line.startswith(f"error {kind.code}: "), line
    for each in named:
        assert str(each) in line


def error_code(result: subprocess.CompletedProcess[str]) -> str:
    """The code of the error that a command ended with, such as DSV-203."""
    codes = re.findall(r"^error (DSV-\d{3}): ", result.stderr, flags=re.M)
    assert codes, result.stderr
    return str(codes[-1])
