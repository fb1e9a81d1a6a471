"""The proofs that a run keeps: one file for each answered request, signed, or a statement that waits for a key.

Once none of a leaver's rounds stands, there is a second one, which says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from disavow.ledger.files import Folder

PROOFS = "proofs"
_NAMES = r"request-[1-9][0-9]{0,17}(?:\.purged)?(?:\.unsigned)?\.json"
_NAME = re.compile(r"request-([0-9]+)(\.purged)?(\.unsigned)?\.json")


@dataclass(frozen=True)
class KeptProof:
    """A file in the folder of proofs: of which request, whether it is signed, and whether it is the second."""

    name: str
    request: int
    signed: bool
    purged: bool = False


class ProofStore:
    """The folder of proofs of a run; it is there once a request was answered."""

    def __init__(self, run: Path) -> None:
        self.folder = run / PROOFS
        self._files = Folder(self.folder, _NAMES)

    def path(self, request: int, *, signed: bool = True, purged: bool = False) -> Path:
        """Where the proof of a request lies, or its statement that is not signed; the first, or the second."""
        return self.folder / f"request-{request}{'.purged' if purged else ''}{'' if signed else '.unsigned'}.json"

    def write(self, request: int, data: bytes, *, signed: bool = True, purged: bool = False) -> None:
        """Store a proof durably."""
        self._files.make()
        self._files.write(self.path(request, signed=signed, purged=purged).name, data)

    def read(self, request: int, *, signed: bool = True, purged: bool = False) -> bytes | None:
        """The proof of a request; None where there is none."""
        try:
            return self._files.read(self.path(request, signed=signed, purged=purged).name)
        except FileNotFoundError:
            return None

    def kept(self) -> list[KeptProof]:
        """All files that are named like a proof."""
        named = ((name, _NAME.fullmatch(name)) for name in self._files.names())
        return [
            KeptProof(name, int(match[1]), signed=match[3] is None, purged=match[2] is not None)
            for name, match in named
            if match
        ]

    def halves(self) -> list[str]:
        """The names of those that a killed process was writing."""
        return [name for name in self._files.names() if name.startswith(".")]

    def strangers(self) -> list[str]:
        """The names of what lies here and is no proof; it is left alone."""
        return self._files.others()

    def remove_halves(self) -> None:
        """Delete what a killed process was writing."""
        self._files.remove(self.halves())
