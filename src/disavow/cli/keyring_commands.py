"""Commands about the keyring, which says who the clients of a run are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli.base import Json, RunDirectory, app, new_app
from disavow.cli.options import needs

keyring = new_app(
    "keyring",
    """Look after a run's keyring: the ids and keys of its clients, with your keys (DISAVOW_KEYS), outside the run.

    **Example:** `disavow keyring show runs/first`
    """,
    no_args_is_help=True,
)
app.add_typer(keyring, rich_help_panel="Runs and erasures")


@keyring.command()
def show(run: RunDirectory, json: Json = False) -> None:
    """Show where the keyring lies and how many clients it knows, and has forgotten; it names nobody.

    **Example:** `disavow keyring show runs/first`
    """
    with needs("ledger"):
        from disavow.cli import keyring as command
    command.show(run, as_json=json)


@keyring.command()
def check(run: RunDirectory, json: Json = False) -> None:
    """Check that every client's key opens its id, that no leaver's key is left, and that run and keyring match.

    Exit 1 names what is wrong.

    **Example:** `disavow keyring check runs/first`
    """
    with needs("ledger"):
        from disavow.cli import keyring as command
    command.check(run, as_json=json)


@keyring.command()
def accept(run: RunDirectory, json: Json = False) -> None:
    """Go on with a run that was restored from a backup: without this, nothing is written to it.

    Clients who were forgotten since are withdrawn again, by the next command that writes. Other copies of the run
    are refused from now on, newer ones too.

    **Example:** `disavow keyring accept runs/first`
    """
    with needs("ledger"):
        from disavow.cli import keyring as command
    command.accept(run, as_json=json)


@keyring.command()
def backup(
    run: RunDirectory,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to copy it; must hold no keyring of this run.")
    ],
    json: Json = False,
) -> None:
    """Copy the keyring into FOLDER, also while the run is at work. DISAVOW_KEYS=FOLDER then uses the copy.

    Make one after every erasure and delete the one before: a copy still knows whoever is forgotten after it.

    **Example:** `disavow keyring backup runs/first /backup/keys-2025-06-01`
    """
    with needs("ledger"):
        from disavow.cli import keyring as command
    command.backup(run, folder, as_json=json)


@keyring.command()
def rotate(run: RunDirectory, json: Json = False) -> None:
    """Give every client a new key for rounds from now on: a copy of the keys so far does not tell who is in them.

    Earlier rounds keep their keys, and everything that is known about them.

    **Example:** `disavow keyring rotate runs/first`
    """
    with needs("ledger"):
        from disavow.cli import keyring as command
    command.rotate(run, as_json=json)
