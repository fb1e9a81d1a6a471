"""All commands, each with an example in its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow import __version__
from disavow.cli.extras import needs

app = typer.Typer(
    name="disavow",
    help="Federated learning whose clients can leave.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"disavow {__version__}")
        raise typer.Exit


@app.callback()
def disavow(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated learning whose clients can leave."""


@app.command()
def demo(
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="Where to write the run. [default: runs/demo]")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to train.")] = 20,
    json: Json = False,
) -> None:
    """Train a federation of 20 clients on real handwritten digits, and keep its ledger.

    Nothing is downloaded. The demo uses seeded draws, so that everybody sees the same numbers.

    **Example:** `disavow demo`
    """
    with needs("train"):
        from disavow.cli import demo as command
    command.demo(run, rounds=rounds, as_json=json)


@app.command()
def init(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The file to write; - prints it instead.")
    ] = Path("config.toml"),
) -> None:
    """Write a commented settings file with every key at its default.

    **Example:** `disavow init config.toml`
    """
    with needs("train"):
        from disavow.cli import init as command
    command.init(config)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Settings in TOML; `disavow init` writes one.")],
    run: Annotated[Path, typer.Option("--run", metavar="DIR", help="Where to write the run; must be new.")],
    json: Json = False,
) -> None:
    """Train a federation and keep its ledger. Interrupt it at any moment; `disavow resume` goes on.

    **Example:** `disavow train config.toml --run runs/first`
    """
    with needs("train"):
        from disavow.cli import train as command
    command.train(config, run, as_json=json)


@app.command()
def resume(run: RunDirectory, json: Json = False) -> None:
    """Go on with a run that was interrupted; a run that is complete stays as it is.

    **Example:** `disavow resume runs/first`
    """
    with needs("train"):
        from disavow.cli import train as command
    command.resume(run, as_json=json)


@app.command()
def status(run: RunDirectory, json: Json = False) -> None:
    """Show what a run holds: its policy, its rounds, its accuracy, its size on disk.

    **Example:** `disavow status runs/first`
    """
    with needs("train"):
        from disavow.cli import status as command
    command.status(run, as_json=json)


@app.command()
def fsck(run: RunDirectory, json: Json = False) -> None:
    """Check a run from its stored bytes: every digest, every invariant. Exit 1 names what is wrong.

    **Example:** `disavow fsck runs/first`
    """
    with needs("train"):
        from disavow.cli import fsck as command
    command.fsck(run, as_json=json)
