"""Optional parts of disavow, asked for by name when they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from disavow.errors import MissingExtra, how_to_install

_OURS = ("disavow", "reproduction", "benchmarks")


def needs(extra: str) -> AbstractContextManager[None]:
    """Turn a failed import of a third-party package into the command that installs an extra."""
    return _installed_by(how_to_install(extra))


def needs_requirements(file: str) -> AbstractContextManager[None]:
    """Turn a failed import of a third-party package into the command that installs a file of requirements."""
    return _installed_by(f"in a clone of disavow: pip install --constraint constraints.txt --requirement {file}")


@contextmanager
def _installed_by(command: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OURS:
            raise
        raise MissingExtra(f"this command needs {error.name}; {command}") from None
