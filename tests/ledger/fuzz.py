"""Run fsck on hostile bytes, in a process that can be neither filled with memory nor kept busy for ever.

python -m tests.ledger.fuzz flips RUN FIRST COUNT      flip one random byte of the database, COUNT times
python -m tests.ledger.fuzz sql RUN STATEMENT...       run each statement on a fresh copy

Prints a JSON object: what was tried, mapped to the exception that fsck let through.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from disavow.errors import DisavowError
from disavow.ledger import fsck
from disavow.ledger.database import NAME

_MEMORY = 3 << 30
_SECONDS = 20


def flip(data: bytes, seed: int) -> bytes:
    """The bytes with one of them changed."""
    chance = random.Random(seed)
    position = chance.randrange(len(data))
    changed = bytearray(data)
    changed[position] ^= chance.randrange(1, 256)
    return bytes(changed)


def complaint(directory: Path) -> str | None:
    """What fsck raised that it should not have raised; None when it behaved."""
    signal.alarm(_SECONDS)
    try:
        fsck(directory)
    except DisavowError:
        return None
    except BaseException as error:  # a crash is what is looked for
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return None


def flips(directory: Path, seeds: range) -> Iterator[tuple[str, str | None]]:
    """One flip for each seed, each on the undamaged file."""
    path = directory / NAME
    original = path.read_bytes()
    for seed in seeds:
        for extra in ("-wal", "-shm"):
            path.with_name(path.name + extra).unlink(missing_ok=True)
        path.write_bytes(flip(original, seed))
        yield f"seed {seed}", complaint(directory)


def statements(directory: Path, tried: list[str]) -> Iterator[tuple[str, str | None]]:
    """One statement at a time, each on the undamaged file."""
    path = directory / NAME
    original = path.read_bytes()
    for statement in tried:
        path.write_bytes(original)
        with closing(sqlite3.connect(path)) as connection:
            try:
                connection.execute(statement)
            except sqlite3.IntegrityError:  # the one thing SQLite itself refuses: text as a row id
                continue
            connection.commit()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield statement, complaint(directory)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"fsck was still busy after {_SECONDS} seconds")


def main() -> None:
    """Try, and print what went wrong."""
    kind, run, *rest = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGALRM, _too_long)
    todo: dict[str, Callable[[Path], Iterator[tuple[str, str | None]]]] = {
        "flips": lambda copy: flips(copy, range(int(rest[0]), int(rest[0]) + int(rest[1]))),
        "sql": lambda copy: statements(copy, rest),
    }
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(run, Path(folder) / "run"))
        print(json.dumps({tried: wrong for tried, wrong in todo[kind](copy) if wrong is not None}))


if __name__ == "__main__":
    main()
