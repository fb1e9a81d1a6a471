"""Find whose answered requests are: once a key is destroyed, only the opening of a request names its client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from disavow.erasure.proof_files import names_asker
from disavow.errors import Unreadable
from disavow.ledger import Ledger
from disavow.proof.opening import Opening


@dataclass(frozen=True)
class OpenedRequest:
    """An answered request and its opening.

    Args:
        number: The number of the request.
        client: Whose it was.
        for_records: Whether it was for some of the client's records, and not for the whole client.
        path: Where the opening lies.
        records: The keys of those records.

    """

    number: int
    client: str
    for_records: bool
    path: Path
    records: tuple[str, ...] = ()


class OpenedRequests:
    """The answered requests of a run whose openings are here.

    Args:
        ledger: The run.
        openings: The folder for openings.

    """

    def __init__(self, ledger: Ledger, openings: Path) -> None:
        self._ledger, self._openings = ledger, openings
        self._found: dict[Path, OpenedRequest | None] = {}

    def add(self, number: int, path: Path) -> None:
        """Note where the opening of a request was written: elsewhere than by default, if that was asked for.

        Args:
            number: The number of the request.
            path: The opening.

        """
        self._found[path] = self._read(number, path)

    def all(self) -> list[OpenedRequest]:
        """List them by their numbers; each opening is read once."""
        for path in self._openings.glob(f"request-*-{self._ledger.run_id[:8]}.json"):
            number = path.name.split("-")[1]
            if path not in self._found and number.isdecimal():
                self._found[path] = self._read(int(number), path)
        return sorted((each for each in self._found.values() if each is not None), key=lambda each: each.number)

    def _read(self, number: int, path: Path) -> OpenedRequest | None:
        """Read an opening; None where the log does not say that it is of this request."""
        try:
            opening = Opening.decode(path.read_bytes())
        except (OSError, Unreadable):
            return None
        if not names_asker(self._ledger, path, number, opening.client):
            return None
        records = () if opening.records is None else opening.records.keys
        return OpenedRequest(number, opening.client, opening.records is not None, path, records)
