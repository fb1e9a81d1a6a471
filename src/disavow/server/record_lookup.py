"""Find who holds some records, wherever they are: in a process of its own, because the service loads no task.

    service --records--> process that opens the run, loads its task and looks --> who holds which

The keys of the records go through a pipe. Nothing of this is stored.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from disavow.errors import ConfigError, DisavowError, RecordErased, RecordsUnchecked, UnknownRecord
from disavow.server.child_process import run_module

LONGEST_SECONDS = 60
_AT_ONCE = threading.BoundedSemaphore(2)
"""How many look at once: each loads a task, with all that trains it."""

_REFUSALS: Mapping[str, type[DisavowError]] = {
    kind.code: kind for kind in (UnknownRecord, RecordErased, RecordsUnchecked, ConfigError)
}


def find_holders(run: Path, keys: Path, records: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Find which clients of a run hold which of some records.

    Args:
        run: The run directory.
        keys: The folder of the operator's keys.
        records: The keys of the records.

    Returns:
        Those that each client holds, by client.

    Raises:
        UnknownRecord: Nobody holds one of them.
        RecordErased: One of them was erased before.
        RecordsUnchecked: Nobody can look here: the task has no keys for records, or cannot be loaded.
        TooManyRequests: Others are looking.

    """
    answer = run_module(
        __name__,
        [str(run), str(keys)],
        json.dumps(list(records)).encode(),
        at_once=_AT_ONCE,
        busy="other records are being looked for; try again",
        seconds=LONGEST_SECONDS,
    )
    if answer is None:
        raise RecordsUnchecked("the records could not be looked up here; nothing was changed")
    if "code" in answer:
        raise _REFUSALS.get(answer["code"], RecordsUnchecked)(answer["message"])
    return {client: tuple(held) for client, held in answer["holders"].items()}


def _main() -> None:
    """Look for the records that come on standard input, and print who holds them or why nobody can tell."""
    from disavow.federation import Federation

    records = json.load(sys.stdin.buffer)
    try:
        with Federation.open(Path(sys.argv[1]), keys=Path(sys.argv[2])) as federation:
            found = federation.forecast(everywhere=records, try_loading=False).records
        answer: dict[str, Any] = {"holders": {client: list(held) for client, held in found.items()}}
    except DisavowError as error:
        answer = {"code": error.code, "message": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    _main()
