"""Commands for whoever runs a Flower node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli.base import Json, app
from disavow.cli.options import needs


@app.command(rich_help_panel="Flower nodes")
def ask(
    evidence: Annotated[
        Path, typer.Argument(metavar="EVIDENCE", help="The folder that the node config names as evidence-dir.")
    ],
    record: Annotated[
        list[str] | None,
        typer.Option("--record", metavar="KEY", help="A record to erase; the client stays. Several may be given."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The node's authentication key, to sign with. [default: not signed]"),
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="ID", help="The run's id, where the node keeps evidence of several.")
    ] = None,
    json: Json = False,
) -> None:
    """Ask, on a Flower node, that its client be forgotten, or some of its records.

    The node's next reply carries the request; the server answers between two rounds, and what becomes of it is
    written beside it. Servers take signed requests only, unless they are told otherwise.

    **Example:** `disavow ask evidence/node-0 --key node-0`

    **Example:** `disavow ask evidence/node-0 --record patient-17 --key node-0`
    """
    with needs("ledger"):
        from disavow.cli import ask as command
    command.ask(evidence, records=record, key=key, run=run, as_json=json)
