"""The command line in a process of its own that has not to import torch again: a fork of one that has.

Most of the seconds of a command are imports. What a command says and does, its exit code, and what it leaves on
disk are the same in a fork; how it starts is not: `tests.cli.process` shows that, from the shell's side.
"""

from __future__ import annotations

import atexit
import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kill.erasure_driver import Driver


@cache
def driver() -> Driver:
    """The forking process of this process; it ends with it."""
    folder = TemporaryDirectory(prefix="disavow-forks-")
    found = Driver(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(found.close)
    return found


def disavow(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `tests.cli.process.disavow` does."""
    return _run(*arguments, cwd=cwd)


def module(name: str, *arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python -m name` to its end, with the repository on the search path."""
    return _run(name, *arguments, cwd=cwd, task="module")


def _run(*arguments: str | Path, cwd: Path | None, task: str = "disavow") -> subprocess.CompletedProcess[str]:
    keys = Path(os.environ["DISAVOW_KEYS"])
    ended = driver().run(*arguments, keys=keys, cwd=cwd or Path.cwd(), task=task)
    return subprocess.CompletedProcess(arguments, ended.status, ended.stdout, ended.stderr)
