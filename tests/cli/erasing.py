"""A run to erase from by commands, and what it then holds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Protocol

from disavow.ledger import Ledger
from disavow.ledger.copying import run_id_of
from disavow.ledger.keyring import Keyring
from disavow.ledger.keys import default_folder
from tests.cli.process import COMMAND, environment
from tests.ledger.making import files_of

SETTINGS: dict[str, Any] = {
    "seed": 5,
    "rounds": 3,
    "draws": "seeded",
    "data": {"clients": 8},
    "model": {"name": "lenet5"},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3},
    "deniability": {"x": 2},
}
"""Two sticky clusters: anybody is deniable, and two of one cluster go back to round 1."""


IMPATIENT = 60


class Command(Protocol):
    """Runs a command to its end, in a process of its own; `limit` is as on a full disk: no file may grow beyond."""

    def __call__(
        self, *arguments: str | Path, keys: Path | None = None, limit: int | None = None
    ) -> subprocess.CompletedProcess[str]: ...


def launch(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )


def own_keys(run: Path, keys: Path) -> Keyring:
    """Copy the keyring of a run to keys of its own: what a copy of the run forgets stays known elsewhere."""
    copied = Keyring(default_folder(), run_id_of(run)).copy(keys)
    copied.close()
    return copied


def states(run: Path) -> list[str]:
    with Ledger.open(run) as ledger:
        return [request.state.value for request in ledger.requests()]


def models(run: Path) -> list[tuple[int, int, str]]:
    with Ledger.open(run) as ledger:
        return [(s.number, s.attempt, s.after) for s in ledger.summaries() if s.standing]


def contents(run: Path) -> dict[str, bytes]:
    """What a command that changes nothing leaves alone: all but the lock, which says who came last."""
    return {name: data for name, data in files_of(run).items() if name != "lock"}
