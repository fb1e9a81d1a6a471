"""Ask a log for its newest head and for proofs of consistency: a run folder, or a run of a service."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from disavow.errors import ConfigError, LedgerError, LogUnreachable, RunError, StorageError
from disavow.proof.merkle import HASH_BYTES, consistency_of

if TYPE_CHECKING:
    from disavow.ledger import Ledger

_T = TypeVar("_T")
_MOST_BYTES = 1 << 20
_SECONDS = 30.0
_RUN = re.compile(r"(?P<run>.*/v1/runs/[^/?#]+)(?:/log(?:/checkpoint)?)?/?")
_HASH = re.compile(rf"[0-9a-f]{{{2 * HASH_BYTES}}}")
_MOST_STEPS = 64
_REFUSED = range(400, 500)
_MAY_PASS = {401, 403, 408, 429}
"""Statuses that say nothing about the log: who asks may not, or not now."""


class RefusesProof(Exception):
    """A log that does not prove how one head goes on from another: it says that it never had these sizes."""


class LogSource(Protocol):
    """A log that can be asked."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def head(self) -> str:
        """Give its newest checkpoint, as the log signed it.

        Raises:
            LogUnreachable: It does not answer.
            ConfigError: Its log is not signed.

        """
        ...

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Give the proof that the log of `new` leaves goes on from that of `old`, at least one and fewer.

        Raises:
            LogUnreachable: It does not answer.
            RefusesProof: It says that it never had these sizes.

        """
        ...


def source_of(place: str, token: str | None = None) -> LogSource:
    """Find the log that a URL or a folder names.

    Args:
        place: The URL of a run of a service, such as https://fl.example/v1/runs/first, or a run folder.
        token: What the service wants as bearer token.

    Raises:
        ConfigError: It is neither.

    """
    scheme = urlsplit(place).scheme
    if scheme in ("http", "https"):
        return ServiceLog(place, token)
    if "://" in place:
        raise ConfigError(
            f"{place} has no log that can be asked; allowed: a run folder (of a run in a database, too), or "
            "https://HOST/v1/runs/RUN"
        )
    if not Path(place).is_dir():
        raise ConfigError(f"{place} is no folder; allowed: a run folder, or https://HOST/v1/runs/RUN")
    return FolderLog(Path(place))


class FolderLog:
    """The log of a run folder on this machine; its rows may be in a database elsewhere."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def name(self) -> str:
        """The folder."""
        return str(self._directory)

    def head(self) -> str:
        """Read the newest checkpoint."""
        found = self._read(lambda ledger: ledger.signed_head())
        if found is None:
            raise ConfigError(f"the log of {self._directory} is not signed: it has no heads to watch")
        return found

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Compute the proof from the leaf hashes."""
        hashes = self._read(lambda ledger: ledger.log_hashes())
        if not 1 <= old <= new <= len(hashes):
            raise RefusesProof
        return consistency_of(hashes[:new], old)

    def _read(self, question: Callable[[Ledger], _T]) -> _T:
        from disavow.ledger import Ledger

        try:
            with Ledger.open(self._directory) as ledger:
                return question(ledger)
        except (LedgerError, RunError, StorageError) as error:
            raise LogUnreachable(str(error)) from None


class ServiceLog:
    """The log of a run of a service, over HTTP. No redirect is followed: the token is for this service alone."""

    def __init__(self, url: str, token: str | None = None) -> None:
        found = _RUN.fullmatch(url)
        if found is None:
            raise ConfigError(f"{url} is no run of a service; allowed: https://HOST/v1/runs/RUN")
        self._url, self._token = found["run"], token
        self._opener = urllib.request.build_opener(NoRedirects)

    @property
    def name(self) -> str:
        """The URL of the run."""
        return self._url

    def head(self) -> str:
        """Ask for the newest checkpoint."""
        status, answer = self._get("/log/checkpoint")
        if status is not None:
            raise LogUnreachable(f"{self.name} answers with status {status}")
        note = answer.get("checkpoint")
        if note is None:
            raise ConfigError(f"the log of {self.name} is not signed: it has no heads to watch")
        if not isinstance(note, str):
            raise LogUnreachable(f"{self.name} answers with no checkpoint")
        return note

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Ask for the proof."""
        status, answer = self._get(f"/log/consistency?{urlencode({'old': old, 'new': new})}")
        if status in _REFUSED and status not in _MAY_PASS:
            raise RefusesProof
        if status is not None:
            raise LogUnreachable(f"{self.name} answers with status {status}")
        proof = answer.get("proof")
        if not isinstance(proof, list) or len(proof) > _MOST_STEPS:
            raise RefusesProof
        if not all(isinstance(each, str) and _HASH.fullmatch(each) for each in proof):
            raise RefusesProof
        return [bytes.fromhex(each) for each in proof]

    def _get(self, path: str) -> tuple[int | None, dict[str, Any]]:
        """The status of an answer that is none, and the answer."""
        headers = {"Accept": "application/json", "User-Agent": "disavow"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(quote(self._url, safe=":/@[]%") + path, headers=headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                data = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code, {}
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise LogUnreachable(f"{self.name} does not answer: {reason}") from None
        try:
            found = json.loads(data) if len(data) <= _MOST_BYTES else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise LogUnreachable(f"{self.name} answers with something else than a service of disavow does")
        return None, found


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would take what is for one host to another."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        """Follow none: the answer is its status."""
