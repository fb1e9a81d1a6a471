"""Optional parts of disavow, asked for by name when they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from disavow.errors import MissingExtra, how_to_install


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turn a failed import of a third-party package into the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "disavow":
            raise
        raise MissingExtra(f"this command needs {error.name}; {how_to_install(extra)}") from None
