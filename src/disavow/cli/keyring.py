"""`disavow keyring`: who the clients of a run are, kept outside it."""

from __future__ import annotations

from pathlib import Path

import typer

from disavow.cli.output import print_json, results
from disavow.errors import ConfigError, KeyringOutdated
from disavow.ledger import Ledger, database
from disavow.ledger.keyring import FOLDER, Keyring, never_opened_in, unfinished_in
from disavow.ledger.keys import refuse_inside


def show(directory: Path, *, as_json: bool) -> None:
    """Say what the keyring of a run holds, without naming anybody."""
    with Ledger.open(directory) as ledger:
        keyring = ledger.keyring
        head = keyring.state
        found = {
            "run": str(directory),
            "run_id": keyring.run_id,
            "folder": str(keyring.folder),
            "clients": keyring.count(),
            "forgotten": keyring.tombstones(),
            "epoch": keyring.epoch,
            "generation": keyring.generation,
            "head": None if head is None else {"size": head.size, "root": head.root.hex()},
        }
    if as_json:
        print_json(found)
        return
    console = results()
    for name in ("folder", "clients", "forgotten", "epoch", "generation"):
        console.print(f"{name:>10}  {found[name]}")
    log_head = "none yet" if head is None else f"{head.size} leaves, root {head.root.hex()}"
    console.print(f"{'head':>10}  {log_head}")


def check(directory: Path, *, as_json: bool) -> None:
    """Check the keyring of a run, alone and against the run; exit 1 when something is wrong."""
    with Ledger.open(directory) as ledger:
        folder, faults, notes = ledger.keyring.folder, ledger.keyring.faults(), []
        try:
            restored = ledger.restored_from_backup()
            notes = [f"the run is {restored}"] if restored.older else []
            notes += _unfinished(ledger.keyring)
        except KeyringOutdated as error:
            faults.append(str(error))
    if as_json:
        print_json({"run": str(directory), "clean": not faults, "faults": faults, "notes": notes})
    else:
        for fault in faults:
            results().print(f"fault: {fault}")
        for note in notes:
            results().print(f"note: {note}")
        count = f"{len(faults)} fault{'s' if len(faults) > 1 else ''}" if faults else "clean"
        results().print(f"{folder}: {count}")
    if faults:
        raise typer.Exit(1)


def _unfinished(keyring: Keyring) -> list[str]:
    """What interrupted processes left of keyrings beside this one."""
    keys = keyring.folder.parent.parent
    stale = [f"{path} was never finished, and belongs to no run: delete it" for path in unfinished_in(keys)]
    return stale + [
        f"{path} is of a run that was never opened; if there is no such run, its making was interrupted: delete it"
        for path in never_opened_in(keys)
    ]


def accept(directory: Path, *, as_json: bool) -> None:
    """Go on with a run that was restored from a backup, or a copy that others were written to instead of."""
    found = Ledger.accept(directory)
    if as_json:
        print_json({"run": str(directory), "changed": not found.accepted, "slots": found.slots})
    elif found.accepted:
        results().print(f"{directory} is the run that its keyring knows; nothing was changed.")
    else:
        message = f"{directory} is the run that goes on; other copies of it are refused from now on."
        if found.slots:
            message += (
                f"\n{found.slots} of its slots are of clients who were forgotten since: "
                f"`disavow resume {directory}` withdraws them before anything else."
            )
        results().print(message)


def backup(directory: Path, folder: Path, *, as_json: bool) -> None:
    """Copy the keyring of a run into another folder of keys; what is there is never overwritten."""
    refuse_inside(folder, directory)
    with Ledger.open(directory) as ledger:
        keyring = ledger.keyring
        target = folder / FOLDER / keyring.run_id
        if target.exists():
            raise ConfigError(f"{target} exists and is never overwritten; name another folder, or delete it first")
        copied = keyring.copy(folder)
        copied.close()
    if as_json:
        print_json({"run": str(directory), "copy": str(copied.folder)})
    else:
        results().print(
            f"{copied.folder}\n\nIt can name everybody who is in the run now. Delete it once there is a newer "
            "one: whoever is forgotten meanwhile is not forgotten in it (docs/backup.md)."
        )


def rotate(directory: Path, *, as_json: bool) -> None:
    """Give every client a new key for rounds from now on, while nobody else holds the run."""
    with Ledger.open(directory, shared=True) as ledger, database.lock(directory):
        epoch = ledger.rotate_keys()
    if as_json:
        print_json({"run": str(directory), "epoch": epoch})
    else:
        results().print(f"Rounds from now on go by new keys, of epoch {epoch}. Earlier rounds keep theirs.")
