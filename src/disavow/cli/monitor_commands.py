"""Commands that watch logs from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli.base import LONGEST_WAIT, Json, a_number, app

Key = Annotated[Path, typer.Option(metavar="FILE", help="The server's public key, or its list of keys.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Holds the API token of the service. [default: the variable DISAVOW_TOKEN, or none]"
    ),
]


@app.command(rich_help_panel="Watching logs")
def gossip(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Checkpoints, receipts, proofs and serving statements, or folders with them."
        ),
    ],
    key: Key,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="URL|DIR", help="The log as it is given out now: each head must be a beginning of it."
        ),
    ] = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Compare the heads that several clients hold: a server that tells two of them two histories is named.

    Two heads of one size must have one root. Receipts and proofs show parts of the log under their heads, and these
    must be the same, too. With --log the server must prove that its log goes on from each head.

    Exit 0: no two contradict each other; 40: two heads cannot be of one log (a split view); 41: the log has fewer
    leaves than a head; 44: nothing ties the heads to each other, so that nothing is known; 43: the log does not
    answer.

    **Example:** `disavow gossip clinic-1/evidence clinic-2/evidence --key signing.pub`

    **Example:** `disavow gossip head.note receipts/ --key signing.pub --log https://fl.example/v1/runs/first`
    """
    from disavow.cli import gossip as command

    command.gossip(files, key=key, log=log, token_file=token_file, as_json=json)


@app.command(rich_help_panel="Watching logs")
def watch(
    log: Annotated[str, typer.Argument(metavar="URL|DIR", help="https://HOST/v1/runs/RUN, or a run folder.")],
    key: Key,
    every: Annotated[
        float,
        typer.Option(
            min=0.1, max=LONGEST_WAIT, metavar="SECONDS", callback=a_number, help="How long to wait between looks."
        ),
    ] = 60.0,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the newest head is kept. [default: in memory, while it runs]"),
    ] = None,
    max_age: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="Also raise the alarm after so long without a new head."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once and end: for cron, with --state.")] = False,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Where an alarm is posted, as JSON; tried five times.")
    ] = None,
    webhook_secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Holds what the post is signed with. [default: DISAVOW_WEBHOOK_SECRET, or not signed]",
        ),
    ] = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Watch a log: look at its head again and again, and end with an alarm if it is not one log that only grows.

    Each head must be signed, and the log must prove that it goes on from the one before. After an alarm the head
    from before stays in --state, so that the next call raises it again.

    Exit 40: a fork, two heads that cannot be of one log; 41: the log has fewer leaves than before; 42: no new head
    for longer than --max-age; 1 or 2: a head that no key signed, or that cannot be read. With --once, 0: all is
    well, and 43: the log does not answer.

    **Example:** `disavow watch https://fl.example/v1/runs/first --key signing.pub --state first.head`

    **Example:** `disavow watch runs/first --key signing.pub --once --state first.head --max-age 86400`
    """
    from disavow.cli import watch as command

    command.watch(
        log,
        key=key,
        every=every,
        state=state,
        max_age=max_age,
        once=once,
        webhook=webhook,
        webhook_secret_file=webhook_secret_file,
        token_file=token_file,
        as_json=json,
    )
