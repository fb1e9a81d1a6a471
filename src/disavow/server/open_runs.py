"""The runs of a folder, opened when they are first asked for and kept open."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from disavow.errors import DisavowError, NotFound
from disavow.federation import Federation
from disavow.ledger import database
from disavow.ledger.files import FileIdentity, identity_of
from disavow.server.settings import ServerSettings

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""Names of runs stand in addresses; folders of other names are not served."""

_ID = re.compile(r"(?P<run>.+)-(?P<number>[1-9][0-9]{0,8})")


def find_runs(folder: Path) -> dict[str, Path]:
    """Find the runs in a folder, by the names of their own folders, in order.

    Args:
        folder: Where to look; folders in its folders are not searched.

    """
    return {
        path.name: path
        for path in sorted(folder.iterdir() if folder.is_dir() else ())
        if _NAME.fullmatch(path.name) and path.is_dir() and database.exists(path)
    }


def request_id(run: str, number: int) -> str:
    """Name a request among those of all runs."""
    return f"{run}-{number}"


def split_id(request: str) -> tuple[str, int]:
    """Read the name of a request: its run, and its number there.

    Raises:
        NotFound: It is none.

    """
    found = _ID.fullmatch(request)
    if found is None:
        raise _no_request()
    return found["run"], int(found["number"])


def _no_request() -> NotFound:
    return NotFound("there is no such request; a request is named RUN-NUMBER")


@dataclass(frozen=True, eq=False)
class _Opened:
    federation: Federation
    folder: FileIdentity | None


class OpenRuns:
    """The runs of a folder, for any number of threads.

    Args:
        settings: Where the runs and the operator's keys lie.

    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._guard, self._approving = threading.Lock(), threading.Lock()
        self._opened: dict[tuple[str, bool], _Opened] = {}

    def names(self) -> list[str]:
        """List the runs that there are now."""
        return list(find_runs(self._settings.runs))

    def federation(self, name: str) -> Federation:
        """Give a run, opened for reading; several threads may use it at once.

        Raises:
            NotFound: There is none of this name.

        """
        return self._open(name, shared=False)

    def to_place(self, name: str) -> Federation:
        """Give a run, kept open to place requests in it beside whoever holds it, for one thread.

        Raises:
            NotFound: There is none of this name.

        """
        return self._open(name, shared=True)

    @contextmanager
    def to_approve(self, name: str) -> Iterator[Federation]:
        """Give the same to one thread after the other: an approval takes several of its few connections.

        Raises:
            NotFound: There is none of this name.

        """
        with self._approving:
            yield self.to_place(name)

    def _open(self, name: str, *, shared: bool) -> Federation:
        path = self._settings.runs / name
        if not _NAME.fullmatch(name) or not path.is_dir() or not database.exists(path):
            self.drop(name)
            raise NotFound("there is no such run; `GET /v1/runs` lists them")
        folder = identity_of(path)
        with self._guard:
            opened = self._opened.get((name, shared))
            # a run that was restored meanwhile has other files: what is written to those of before is lost
            if opened is None or opened.folder != folder or opened.federation.ledger.replaced:
                federation = Federation.open(
                    path, shared=shared, keys=self._settings.keys, openings=self._settings.openings_folder
                )
                opened = self._opened[name, shared] = _Opened(federation, folder)
            return opened.federation

    def drop(self, name: str) -> None:
        """Close a run; it is opened again when it is next asked for."""
        with self._guard:
            found = [self._opened.pop((name, shared), None) for shared in (False, True)]
        for opened in found:
            if opened is not None:
                opened.federation.close()

    def readable(self) -> dict[str, str | None]:
        """Try every run: the code of why it cannot be read, None where it can."""
        found: dict[str, str | None] = {}
        for name in self.names():
            try:
                self.federation(name).ledger.log_length()
                found[name] = None
            except DisavowError as error:
                self.drop(name)
                found[name] = error.code
        return found

    def close(self) -> None:
        """Close all runs."""
        for name, _ in list(self._opened):
            self.drop(name)
