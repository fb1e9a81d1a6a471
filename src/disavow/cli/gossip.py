"""`disavow gossip`: which heads that clients hold cannot be of one log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from disavow.cli.output import print_json, results
from disavow.domain import escaped
from disavow.errors import ConfigError, LogShrunk, SplitView
from disavow.monitor.gossip import Comparison, Conflict, compare
from disavow.monitor.heads import HeldHead, RefusedFile, read_held
from disavow.monitor.sources import source_of
from disavow.proof.keys import trusted_keys
from disavow.proof.notes import Checkpoint, KeyIndex, open_with_any
from disavow.proof.validation import to_base64

TOKEN = "DISAVOW_TOKEN"  # noqa: S105 - the name of the variable
NOT_COMPARED = 44
_FILES_NAMED = 3


def gossip(files: Sequence[Path], *, key: Path, log: str | None, token_file: Path | None, as_json: bool) -> None:
    """Compare the heads in files, and with a log where one is given; end with the code of what was found."""
    trusted = trusted_keys(key)
    held, refused = read_held(files, trusted)
    if not held:
        reasons = "".join(f"; {each.file}: {each.reason}" for each in refused[:_FILES_NAMED])
        raise ConfigError(f"no file holds a head that these keys signed: there is nothing to compare{reasons}")
    source = newest = None
    if log is not None:
        source = source_of(log, secret_in(token_file, TOKEN))
        newest = open_with_any(source.head(), KeyIndex.of(trusted), f"the head of {source.name}", cosigned=True)
        if all(each.head.origin != newest.origin for each in held):
            raise ConfigError(f"{source.name} is {newest.origin}, of which no file holds a head")
    compared = compare(held, source, newest)
    code = _exit_code(compared)
    if as_json:
        print_json(_as_json(compared, held, refused, newest, code))
    else:
        _print(compared, refused, source.name if source else None)
    if code:
        raise typer.Exit(code)


def secret_in(path: Path | None, variable: str) -> str | None:
    """Read a secret from a file, or else from the environment.

    Args:
        path: The file.
        variable: The variable, where no file is given.

    Raises:
        ConfigError: The file cannot be read, or holds none.

    """
    if path is None:
        return os.environ.get(variable) or None
    try:
        found = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if not found or not found.isprintable():
        raise ConfigError(f"{path} holds no secret; allowed: one line of text")
    return found


def _exit_code(compared: Sequence[Comparison]) -> int:
    conflicts = [conflict for each in compared for conflict in each.conflicts]
    if conflicts:
        return (LogShrunk if all(conflict.shrunk for conflict in conflicts) else SplitView).exit_code
    return 0 if any(each.compared for each in compared) else NOT_COMPARED


def _print(compared: Sequence[Comparison], refused: Sequence[RefusedFile], log: str | None) -> None:
    console = results()
    for file in refused:
        console.print(f"not used: {escaped(str(file.file))}: {escaped(file.reason)}")
    for each in compared:
        count = sum(len(files) for files in each.heads.values())
        console.print(f"{escaped(each.origin)}: {len(each.heads)} heads in {count} files")
        for conflict in each.conflicts:
            console.print(f"  {'SHRUNK' if conflict.shrunk else 'SPLIT VIEW'}: {_in_words(conflict, log)}")
        if each.conflicts:
            console.print("  Keep these files: each is signed by the server, and together they show it.")
            continue
        if each.open:
            sizes = ", ".join(str(head.size) for head in each.open)
            console.print(f"  nothing ties the heads of {sizes} leaves to the others; --log asks the log")
        if each.compared:
            console.print(f"  no contradiction among the {len(each.compared)} heads that could be compared")


def _in_words(conflict: Conflict, log: str | None) -> str:
    one = f"{_head(conflict.one)} in {_named(conflict.files)}"
    other = f"in {_named(conflict.other_files)}" if conflict.other_files else f"of {log}"
    return f"{one} and {_head(conflict.other)} {other} cannot be of one log: {conflict.where}"


def _head(head: Checkpoint) -> str:
    return f"the head of {head.size} leaves ({to_base64(head.root)[:16]})"


def _named(files: Sequence[Path]) -> str:
    more = f" and {len(files) - _FILES_NAMED} more" if len(files) > _FILES_NAMED else ""
    return ", ".join(escaped(str(path)) for path in files[:_FILES_NAMED]) + more


def _as_json(
    compared: Sequence[Comparison],
    held: Sequence[HeldHead],
    refused: Sequence[RefusedFile],
    newest: Checkpoint | None,
    code: int,
) -> dict[str, Any]:
    outcome = {0: "consistent", NOT_COMPARED: "not compared", LogShrunk.exit_code: "shrunk"}.get(code, "split view")
    return {
        "outcome": outcome,
        "exit_code": code,
        "heads": len({each.head for each in held}),
        "log": None if newest is None else _head_json(newest),
        "refused": [{"file": str(each.file), "reason": each.reason} for each in refused],
        "logs": [
            {
                "origin": each.origin,
                "heads": [
                    {**_head_json(head), "files": [str(path) for path in files], "compared": head in each.compared}
                    for head, files in each.heads.items()
                ],
                "conflicts": [
                    {
                        "heads": [
                            {**_head_json(conflict.one), "files": [str(path) for path in conflict.files]},
                            {**_head_json(conflict.other), "files": [str(path) for path in conflict.other_files]},
                        ],
                        "where": conflict.where,
                        "shrunk": conflict.shrunk,
                    }
                    for conflict in each.conflicts
                ],
            }
            for each in compared
        ],
    }


def _head_json(head: Checkpoint) -> dict[str, Any]:
    return {"origin": head.origin, "size": head.size, "root": to_base64(head.root)}
