"""The command of a witness, who needs neither a run nor anything that trains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli.base import Json, app
from disavow.errors import ConfigError


@app.command(rich_help_panel="Proofs")
def witness(
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="The witness's private key; its verifier key is FILE.pub.")
    ],
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the heads it has cosigned are kept; never shared.")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KEY",
            help="A log to cosign for: its origin (`*` at the end: all that begin so), and its verifier key or a "
            "file with it. Again for each log, and for each further key of one.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8322,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make the key, print its verifier key, and end.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --new-key: whose key it is, such as a host name.")
    ] = None,
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="With --new-key: leave it unencrypted, readable by you alone.")
    ] = False,
    json: Json = False,
) -> None:
    """Cosign heads of logs that only grow, for whoever does not trust the servers that write them.

    It serves C2SP tlog-witness (`POST /add-checkpoint`) until it is stopped. Whoever runs it should be nobody who
    runs a server.

    **Example:** `disavow witness --key witness.pem --new-key --name witness.example.org`

    **Example:** `disavow witness --key witness.pem --state seen --log 'disavow/run/*=signing.pub'`
    """
    from disavow.cli import witness as command

    if new_key:
        if name is None or state is not None or log:
            raise ConfigError("--new-key makes a key and nothing else: it takes --key and --name")
        command.new_key(key, name, no_passphrase=no_passphrase, as_json=json)
    elif state is None or not log or name is not None:
        raise ConfigError("a witness needs --state and at least one --log; --name is for --new-key")
    else:
        command.serve(key, state, log, host=host, port=port, as_json=json)
