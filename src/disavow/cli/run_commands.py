"""Commands that make and keep runs, and erase clients from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli.base import LONGEST_WAIT, MOST_ROUNDS, Json, RunDirectory, TaskFactory, a_number, app
from disavow.cli.options import needs


@app.command(rich_help_panel="Runs and erasures")
def demo(
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="Where to write the run. [default: runs/demo]")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=MOST_ROUNDS, help="Rounds to train.")] = 20,
    json: Json = False,
) -> None:
    """Train a federation of 20 clients on real handwritten digits, let some of them leave, check the ledger.

    Nothing is downloaded. The demo uses seeded draws, so that everybody sees the same numbers.

    **Example:** `disavow demo`
    """
    with needs("train"):
        from disavow.cli import demo as command
    command.demo(run, rounds=rounds, as_json=json)


@app.command(rich_help_panel="Runs and erasures")
def init(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The file to write; - prints it instead.")
    ] = Path("config.toml"),
    task: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a Python file with a task of your own to fill in."),
    ] = None,
) -> None:
    """Write a commented settings file with every key at its default.

    **Example:** `disavow init config.toml`

    **Example:** `disavow init config.toml --task hospitals.py`
    """
    with needs("train"):
        from disavow.cli import init as command
    command.init(config, task)


@app.command(rich_help_panel="Runs and erasures")
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Settings in TOML; `disavow init` writes one.")],
    run: Annotated[Path, typer.Option("--run", metavar="DIR", help="Where to write the run; must be new.")],
    task: TaskFactory = None,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keep the models in an S3-compatible bucket (s3://BUCKET/PREFIX), not in DIR; DIR remembers it.",
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keep the rows of the ledger in this PostgreSQL database; sqlite: in the run. "
            "[default: ledger.database of CONFIG, or DISAVOW_DATABASE, or sqlite]",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Train a federation and keep its ledger. Interrupt it at any moment; `disavow resume` goes on.

    **Example:** `disavow train config.toml --run runs/first`

    **Example:** `disavow train config.toml --run runs/first --models s3://bucket/federations`

    **Example:** `disavow train config.toml --run runs/first --database postgresql+psycopg://disavow@db.example/runs`
    """
    with needs("train"):
        from disavow.cli import train as command
    command.train(config, run, task=task, models=models, database=database, as_json=json)


@app.command(rich_help_panel="Runs and erasures")
def resume(run: RunDirectory, task: TaskFactory = None, json: Json = False) -> None:
    """Go on with a run that was interrupted; a run that is complete stays as it is.

    **Example:** `disavow resume runs/first`
    """
    with needs("train"):
        from disavow.cli import train as command
    command.resume(run, task=task, as_json=json)


@app.command(rich_help_panel="Runs and erasures")
def status(
    run: RunDirectory,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw every metric over the rounds: .png, .pdf or .svg."),
    ] = None,
    json: Json = False,
) -> None:
    """Show what a run holds: its policy, its rounds, what each of them scored, its size on disk.

    **Example:** `disavow status runs/first`

    **Example:** `disavow status runs/first --plot rounds.png`
    """
    with needs("ledger"):
        from disavow.cli import status as command
    command.status(run, as_json=json, plot=plot)


@app.command(rich_help_panel="Runs and erasures")
def clients(run: RunDirectory, json: Json = False) -> None:
    """List the ids of the clients that are in a run.

    **Example:** `disavow clients runs/first`
    """
    with needs("ledger"):
        from disavow.cli import status as command
    command.clients(run, as_json=json)


@app.command(rich_help_panel="Runs and erasures")
def fsck(
    run: RunDirectory,
    absent: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Also prove that no file of the run contains this id; may be repeated."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="HEAD", help="A head that was kept (`disavow checkpoint`): the log must go on from it."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check a run from its stored bytes: every digest, every invariant. Exit 1 names what is wrong.

    **Example:** `disavow fsck runs/first --absent client-07 --checkpoint head.txt`
    """
    with needs("ledger"):
        from disavow.cli import fsck as command
    command.fsck(run, absent=absent or [], checkpoint=checkpoint, as_json=json)


@app.command(rich_help_panel="Runs and erasures")
def erase(
    run: RunDirectory,
    clients: Annotated[
        list[str] | None,
        typer.Argument(metavar="CLIENT...", help="Who asks to be forgotten, or has the records."),
    ] = None,
    record: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Erase this record of each CLIENT, and keep the client. Repeatable."),
    ] = None,
    records: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The same for the keys in a file, one a line; - is stdin.")
    ] = None,
    everywhere: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Erase this record at every client that holds it. Repeatable."),
    ] = None,
    unchecked: Annotated[
        bool,
        typer.Option(
            "--unchecked",
            help="Do not look whether the clients hold the records: the task is not here, or the data is gone.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost; change nothing.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            max=LONGEST_WAIT,
            callback=a_number,
            help="Seconds to wait for another process that holds the run to answer.",
        ),
    ] = 60,
    openings: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write the leavers' openings. [default: beside the run]"),
    ] = None,
    without_retraining: Annotated[
        bool,
        typer.Option(
            "--without-retraining",
            help="Where a rollback is needed, make it and train nothing again: the earlier model is served, later "
            "rounds are dropped.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the whole run first, as `disavow fsck` does; refuse a damaged one."),
    ] = False,
    task: TaskFactory = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Roll back without asking, as scripts need it.")] = False,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="WHO", help="Who places it, for its history. [default: the login name of this account]"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Honour the wish of clients to be forgotten: at once where it is deniable, by retraining where it is not.

    What it would undo is shown and has to be confirmed: on a terminal by an answer, elsewhere by `--yes`. Without,
    nothing is placed (exit 12). What is deniable undoes nothing, and is not asked about.

    Asking twice gives the first answer. A run that is being trained honours the request between two rounds. What is
    deniable needs no data. What has to be retrained and cannot be here waits (exit 10); nothing is undone for it.
    A proof of each answer is kept with the run; its opening, which says whom it is about, is written outside it.
    Where `requests.approval` wants it, the request waits until somebody approves it (exit 22; docs/requests.md).

    With `--record`, `--records` or `--everywhere`, clients stay: what they have contributed so far is withdrawn,
    and they go on without the records, on which no round trains again.

    **Example:** `disavow erase runs/first client-07 --dry-run`

    **Example:** `disavow erase runs/first client-07 --yes`

    **Example:** `disavow erase runs/first hospital-3 --record patient-17 --yes`
    """
    with needs("ledger"):
        from disavow.cli import erase as command
    command.erase(
        run,
        command.wanted(clients, record, records, everywhere, unchecked=unchecked),
        dry_run=dry_run,
        wait=wait,
        retrain=not without_retraining,
        check=check,
        yes=yes,
        openings=openings,
        task=task,
        by=by,
        as_json=json,
    )


@app.command(rich_help_panel="Runs and erasures")
def purge(
    run: RunDirectory,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost; change nothing.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            max=LONGEST_WAIT,
            callback=a_number,
            help="Seconds to wait for another process that holds the run.",
        ),
    ] = 60,
    task: TaskFactory = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Purge without asking, as scripts need it.")] = False,
    json: Json = False,
) -> None:
    """Remove all leavers so far from the model, by one exact retraining of the rounds that they were in.

    A leaver whose departure is deniable is answered at once, and its updates may stay in the model. A purge takes
    them out, and each leaver gets a second proof that says so. What cannot be retrained is not undone (exit 24).
    What it would undo is shown and has to be confirmed: on a terminal by an answer, elsewhere by `--yes`. A process
    that trains the run is waited for; with `deniability.purge = "deadline"` it purges by itself, in time.

    **Example:** `disavow purge runs/first --dry-run`

    **Example:** `disavow purge runs/first --yes`
    """
    with needs("ledger"):
        from disavow.cli import purge as command
    command.purge(run, dry_run=dry_run, wait=wait, yes=yes, task=task, as_json=json)


@app.command(rich_help_panel="Runs and erasures")
def cancel(
    run: RunDirectory,
    client: Annotated[str | None, typer.Argument(metavar="CLIENT", help="Whose request is cancelled.")] = None,
    request: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Which request is cancelled, in the place of CLIENT.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="WHO", help="Who cancels it. [default: the login name of this account]")
    ] = None,
    json: Json = False,
) -> None:
    """Cancel an erasure request that waits: one that another process has not taken up yet.

    The client stays in the run and may ask again later. A request that has its verdict cannot be cancelled. Of
    several requests for records of one client, one is cancelled by its number.

    **Example:** `disavow cancel runs/first client-07`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.cancel(run, client, request, by=by, as_json=json)


@app.command(rich_help_panel="Runs and erasures")
def requests(run: RunDirectory, json: Json = False) -> None:
    """List all erasure requests: deadline, state, verdict, cost, time taken.

    **Example:** `disavow requests runs/first`
    """
    with needs("ledger"):
        from disavow.cli import requests as command
    command.requests(run, as_json=json)
