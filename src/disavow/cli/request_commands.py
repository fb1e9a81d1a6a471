"""Commands about requests: who decides what, what is due, the register, releases and returns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli.base import Force, Json, RunDirectory, app, new_app
from disavow.cli.options import needs

_PANEL = "Requests and deadlines"
_MOST_DAYS = 36_500

request = new_app(
    "request",
    """Decide about one erasure request: every decision is kept with its time, who made it and why.

    **Example:** `disavow request approve runs/first 3 --reason "checked by the data-protection officer"`
    """,
    no_args_is_help=True,
)
app.add_typer(request, rich_help_panel=_PANEL)

Number = Annotated[
    int, typer.Argument(metavar="NUMBER", help="The number of the request (`disavow requests RUN`).")
]
By = Annotated[
    str | None, typer.Option(metavar="WHO", help="Who decides. [default: the login name of this account]")
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; a text that names no client.")]


@request.command()
def show(run: RunDirectory, number: Number, json: Json = False) -> None:
    """Show a request with its deadline and its whole history.

    **Example:** `disavow request show runs/first 3`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.show(run, number, as_json=json)


@request.command()
def approve(
    run: RunDirectory,
    number: Number,
    by: By = None,
    reason: Reason = "",
    forecast: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="Only if this is still the digest of what is forecast (else exit 21)."),
    ] = None,
    json: Json = False,
) -> None:
    """Approve a request, so that it is answered; needed where `requests.approval` says so.

    `disavow request show` prints the digest of the forecast, and what it says.

    **Example:** `disavow request approve runs/first 3 --by "the data-protection officer"`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.decide(run, number, "approve", by=by, reason=reason, forecast=forecast, as_json=json)


@request.command()
def refuse(run: RunDirectory, number: Number, reason: Reason, by: By = None, json: Json = False) -> None:
    """Refuse a request that waits: it stays in the register, and its client may ask again.

    **Example:** `disavow request refuse runs/first 3 --reason "not the person it claims to be"`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.decide(run, number, "refuse", by=by, reason=reason, as_json=json)


@request.command()
def pause(run: RunDirectory, number: Number, reason: Reason, by: By = None, json: Json = False) -> None:
    """Pause a request while the identity of who asks is in doubt: its deadline moves by as long.

    **Example:** `disavow request pause runs/first 3 --reason "asked for a copy of the passport"`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.decide(run, number, "pause", by=by, reason=reason, as_json=json)


@request.command()
def resume(run: RunDirectory, number: Number, reason: Reason, by: By = None, json: Json = False) -> None:
    """End the pause of a request: the identity of who asks is verified.

    **Example:** `disavow request resume runs/first 3 --reason "passport seen"`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.decide(run, number, "resume_request", by=by, reason=reason, as_json=json)


@request.command()
def extend(
    run: RunDirectory,
    number: Number,
    reason: Reason,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            help="Until the beginning of this day (UTC), 2027-03-01 say. [default: three months after receipt]",
        ),
    ] = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Extend the deadline of a request, once, before it is due and to at most three months after receipt.

    **Example:** `disavow request extend runs/first 3 --reason "many requests at once"`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.decide(run, number, "extend", by=by, reason=reason, until=until, as_json=json)


@request.command("cancel")
def cancel_number(
    run: RunDirectory, number: Number, by: By = None, reason: Reason = "", json: Json = False
) -> None:
    """Cancel a request that waits or is paused, by its number; `disavow cancel` does so by its client.

    **Example:** `disavow request cancel runs/first 3`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.decide(run, number, "cancel", by=by, reason=reason, as_json=json)


@app.command(rich_help_panel=_PANEL)
def due(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The run directories.")],
    within: Annotated[
        int | None,
        typer.Option(min=0, max=_MOST_DAYS, metavar="DAYS", help="Only what is due within so many days."),
    ] = None,
    json: Json = False,
) -> None:
    """List the requests that are open, of several runs, the one with the least time left first.

    With `deniability.purge = "deadline"` an answer is open until its client is purged from the model (*to purge*).
    Exit 23: one of them is overdue.

    **Example:** `disavow due runs/first runs/second --within 7`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.due(runs, within=within, as_json=json)


@app.command(rich_help_panel=_PANEL)
def register(
    run: RunDirectory,
    csv: Annotated[bool, typer.Option("--csv", help="Print it as CSV, for spreadsheets.")] = False,
    json: Json = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write it to a file instead: CSV with --csv, else JSON."
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Print the register of all requests: refused, cancelled and repeated ones too (GDPR Art. 30).

    Clients, actors and reasons are in it only where the keyring is: it is for you, not for the run. The table is
    short; `--csv` and `--json` have all of it.

    **Example:** `disavow register runs/first --csv -o register.csv`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.register(run, as_csv=csv, as_json=json, output=output, force=force)


@app.command(rich_help_panel=_PANEL)
def releases(
    run: RunDirectory,
    notices: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write a notice to everybody who has a superseded model there."),
    ] = None,
    json: Json = False,
) -> None:
    """List the models that were exported for somebody (`disavow export --to`), and which of them are superseded.

    A model is superseded once a rollback or a purge has undone a round that made it: whoever has it is to be told
    (GDPR Art. 19).

    **Example:** `disavow releases runs/first --notices notices`
    """
    with needs("ledger"):
        from disavow.cli import releases as command
    command.releases(run, notices=notices, as_json=json)


@app.command(rich_help_panel=_PANEL)
def readmit(
    run: RunDirectory,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="Who returns.")],
    reason: Reason,
    by: By = None,
    json: Json = False,
) -> None:
    """Let somebody who was erased be a client again, under a new key.

    What it was forgotten for stays forgotten. Who decided it, and why, is kept in the keyring, sealed.

    **Example:** `disavow readmit runs/first client-07 --reason "consented again, in writing"`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.readmit(run, client, by=by, reason=reason, as_json=json)
