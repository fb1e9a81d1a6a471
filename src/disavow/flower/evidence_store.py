"""Store a node's evidence: files by run and name, in a folder of its own or in the node's context.

The folder is the one that the node config names as `evidence-dir`, or else `~/.disavow/evidence/NODE`: receipts
that end with the process would hold nobody to anything. In a simulation, whose nodes are not anybody's, and where
`DISAVOW_EVIDENCE` is set and empty, evidence without a folder of its own stays in the context, which Flower keeps
for as long as the run lasts. With `keep-evidence=false` in the node config nothing is kept.

Files are written as `ledger.files.write_durably` writes them; not by it, because a SuperNode starts a process for
every message, and would load the ledger and its database in each.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from disavow.errors import VerificationError
from disavow.ledger.files import sync_folder, write_durably

if TYPE_CHECKING:
    from flwr.app import Context

FOLDER = "evidence-dir"
"""The key of the node config that names the folder."""

KEEP = "keep-evidence"
"""The key of the node config that says whether anything is kept: it is, unless this is false."""

ENVIRONMENT = "DISAVOW_EVIDENCE"
"""Where the folders of nodes are whose config names none, in place of `~/.disavow/evidence`."""

CLIENT_ID, PARTITION = "client-id", "partition-id"

_STATE = "disavow-evidence"
_FIRST = "first-run"
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_RUN = re.compile(r"[0-9a-f]{32}")
"""What the ledger gives a run for an id. It comes from a server, and becomes a folder's name here."""


def keeps_evidence(context: Context) -> bool:
    """Tell whether a node keeps evidence: it does, unless its config says otherwise.

    Args:
        context: That of the node.

    """
    return str(context.node_config.get(KEEP, True)).lower() not in ("false", "0", "no", "off")


def evidence_folder(context: Context) -> Path | None:
    """Find the folder in which a node keeps its evidence; None where that is its context.

    Args:
        context: That of the node.

    """
    named = context.node_config.get(FOLDER)
    if named is not None:
        return Path(str(named)).expanduser()
    base = os.environ.get(ENVIRONMENT)
    if base == "" or _in_simulation():
        return None
    folder = (Path(base) if base else Path.home() / ".disavow" / "evidence") / _node_name(context)
    try:
        make_private(folder)
    except OSError as error:
        from disavow.flower.log import warn  # whoever only writes into a folder need not have Flower

        warn(f"evidence is kept in the context of this run alone: {folder} cannot be made ({error.strerror})")
        return None
    return folder


def _in_simulation() -> bool:
    """Tell whether this process is one of Ray's, in which Flower simulates nodes."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _node_name(context: Context) -> str:
    """Name a node by what stays the same when it is started again, where its config says anything of that."""
    config = context.node_config
    if CLIENT_ID in config:
        name = str(config[CLIENT_ID])
        if _PLAIN.fullmatch(name):
            return name
        return f"client-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    return f"partition-{config[PARTITION]}" if PARTITION in config else f"node-{context.node_id}"


def is_run(value: object) -> bool:
    """Tell whether this can be the id of a run."""
    return isinstance(value, str) and _RUN.fullmatch(value) is not None


class EvidenceStore:
    """Holds files by the id of their run and their name. `VerificationError` for what is no run's id."""

    def __init__(self, context: Context) -> None:
        from flwr.app import ConfigRecord  # whoever only writes into a folder need not have it

        self._folder: Path | None = None
        self._state = ConfigRecord()  # forgotten with this object, where nothing is to be kept
        if keeps_evidence(context):
            self._folder = evidence_folder(context)
            if _STATE not in context.state:
                context.state[_STATE] = self._state
            self._state = context.state.config_records[_STATE]

    def write(self, run: str, name: str, data: bytes) -> None:
        """Keep this, in entry of what was there; once it returns, durably."""
        entry = _entry(run, name)
        if self._folder is None:
            self._state[entry] = data
            return
        write_private(self._folder / entry, data)

    def read(self, run: str, name: str) -> bytes | None:
        """Read what is stored under this name; None for nothing."""
        entry = _entry(run, name)
        if self._folder is None:
            kept = self._state.get(entry)
            return kept if isinstance(kept, bytes) else None
        path = self._folder / entry
        return path.read_bytes() if path.is_file() else None

    def remove(self, run: str, name: str) -> None:
        """Remove what is stored under this name, if there is anything."""
        entry = _entry(run, name)
        if self._folder is None:
            self._state.pop(entry, None)
            return
        (self._folder / entry).unlink(missing_ok=True)

    def first_run(self, run: str) -> str:
        """Tell which run was named first in this Flower run: this one, if none was before."""
        _entry(run, "")
        return str(self._state.setdefault(_FIRST, run))

    def names(self, run: str) -> list[str]:
        """List the names of all that is stored of a run."""
        start = _entry(run, "")
        if self._folder is None:
            return sorted(name.removeprefix(start) for name in self._state if name.startswith(start))
        home = self._folder / start
        return sorted(str(path.relative_to(home)) for path in home.rglob("[!.]*") if path.is_file())


def _entry(run: str, name: str) -> str:
    """The only way to a file or an entry: whatever is read or written has passed here."""
    if not is_run(run):
        raise VerificationError("what the message names as its run is no run's id")
    return f"{run}/{name}"


def write_private(path: Path, data: bytes) -> None:
    """Write a file for this user alone, durably, and the folders above it that are missing.

    Args:
        path: The file; what was there is replaced.
        data: What it is to hold.

    """
    make_private(path.parent)
    write_durably(path, data, mode=0o600)


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone.

    Args:
        folder: The folder; one that is there stays as it is.

    """
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
        sync_folder(missing.parent)
