"""Commands of the operator's service: run it, run its worker, make tokens for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli.base import Json, app, new_app
from disavow.cli.options import needs

_PANEL = "The service"

Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", help="The folder in which the runs lie.")]
StateFolder = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="The service's own files. [default: .service in the runs' folder]"),
]
Keys = Annotated[
    Path | None, typer.Option("--keys", metavar="DIR", help="The operator's keys. [default: DISAVOW_KEYS]")
]
Openings = Annotated[
    Path | None,
    typer.Option("--openings", metavar="DIR", help="Where openings go. [default: STATE/openings]"),
]
Database = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="The PostgreSQL database of the runs, with its password."),
]


@app.command(rich_help_panel=_PANEL)
def serve(
    runs: Runs = Path("runs"),
    database: Database = None,
    state: StateFolder = None,
    keys: Keys = None,
    openings: Openings = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8321,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name to answer to; may be repeated.")
    ] = None,
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="How others reach it, behind a reverse proxy with TLS.")
    ] = None,
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Also answer requests and train.")] = True,
    private_callbacks: Annotated[
        bool, typer.Option("--private-callbacks", help="Call webhooks at private addresses, and without TLS.")
    ] = False,
    oidc_issuer: Annotated[
        str | None, typer.Option(metavar="URL", help="An OpenID Connect provider at which people log in.")
    ] = None,
    oidc_client: Annotated[
        str, typer.Option(metavar="ID", help="Its name there; DISAVOW_OIDC_SECRET holds its secret.")
    ] = "disavow",
    oidc_claim: Annotated[
        str, typer.Option(metavar="NAME", help="The claim of the ID token that lists roles.")
    ] = "disavow_roles",
    demo: Annotated[
        bool, typer.Option("--demo", help="Make a small federation with three requests, and serve it.")
    ] = False,
    json: Json = False,
) -> None:
    """Serve runs: REST, pages and OpenDSR, for people with different rights, while a worker trains.

    On this machine it prints a link that logs in once. Needs the extra `server`.

    **Example:** `disavow serve --runs runs`

    **Example:** `disavow serve --demo`
    """
    with needs("server"):
        from disavow.cli import serve as command
    command.serve(
        runs,
        database=database,
        state=state,
        keys=keys,
        openings=openings,
        host=host,
        port=port,
        hosts=tuple(allow_host or ()),
        public_url=public_url,
        worker=worker,
        private_callbacks=private_callbacks,
        oidc=(oidc_issuer, oidc_client, oidc_claim),
        demo=demo,
        as_json=json,
    )


@app.command(rich_help_panel=_PANEL)
def worker(
    runs: Runs = Path("runs"),
    database: Database = None,
    state: StateFolder = None,
    keys: Keys = None,
    openings: Openings = None,
    train: Annotated[
        bool, typer.Option("--train/--no-train", help="Also train runs that are not complete.")
    ] = True,
    once: Annotated[bool, typer.Option("--once", help="Stop once there is nothing left to do.")] = False,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
    json: Json = False,
) -> None:
    """Answer requests and train the runs of a folder, beside a service that does not.

    Several workers may run; one of them works on a run at a time.

    **Example:** `disavow worker --runs runs`
    """
    with needs("server"):
        from disavow.cli import serve as command
    command.work(
        runs,
        database=database,
        state=state,
        keys=keys,
        openings=openings,
        train=train,
        once=once,
        with_parent=with_parent,
        as_json=json,
    )


token = new_app(
    "token",
    """Make, list and revoke API tokens of the service.

    **Example:** `disavow token create --name intake --role operator`
    """,
    no_args_is_help=True,
)
app.add_typer(token, rich_help_panel=_PANEL)


@token.command()
def create(
    name: Annotated[str, typer.Option(metavar="NAME", help="Who holds it: what the history of requests will say.")],
    role: Annotated[list[str], typer.Option(metavar="ROLE", help="viewer, operator, approver or auditor.")],
    only: Annotated[
        list[str] | None, typer.Option(metavar="RUN", help="The run it may be used for; all by default.")
    ] = None,
    days: Annotated[int, typer.Option(min=0, max=3650, help="Days until it expires; 0: it never does.")] = 90,
    runs: Runs = Path("runs"),
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Make a token and print it, this once.

    **Example:** `disavow token create --name intake --role operator --days 30`
    """
    with needs("server"):
        from disavow.cli import token as command
    command.create(runs, state, name=name, roles=role, only=only, days=days, as_json=json)


@token.command("list")
def list_tokens(runs: Runs = Path("runs"), state: StateFolder = None, json: Json = False) -> None:
    """List tokens with role, scope, expiry and last use; never the tokens themselves.

    **Example:** `disavow token list`
    """
    with needs("server"):
        from disavow.cli import token as command
    command.list_tokens(runs, state, as_json=json)


@token.command()
def revoke(
    number: Annotated[int, typer.Argument(metavar="ID", help="As `disavow token list` shows it.")],
    runs: Runs = Path("runs"),
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Revoke a token, from the next call on.

    **Example:** `disavow token revoke 3`
    """
    with needs("server"):
        from disavow.cli import token as command
    command.revoke(runs, state, number, as_json=json)


@token.command()
def link(
    url: Annotated[str, typer.Option(metavar="URL", help="Where the service is.")] = "http://127.0.0.1:8321",
    runs: Runs = Path("runs"),
    state: StateFolder = None,
    json: Json = False,
) -> None:
    """Print a link that logs in once, within 15 minutes, with all rights of staff.

    **Example:** `disavow token link`
    """
    with needs("server"):
        from disavow.cli import token as command
    command.link(runs, state, url, as_json=json)
