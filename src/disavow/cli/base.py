"""The application that commands are declared on, and what they share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer


def new_app(name: str, about: str | None = None, *, no_args_is_help: bool = False) -> typer.Typer:
    """Create an application whose help and errors look like those of `disavow`; `disavow.cli.run` runs it.

    Args:
        name: What its help calls it.
        about: What its help says of it; a single command has a docstring instead.
        no_args_is_help: Whether a call without arguments prints the help.

    Returns:
        An application without commands.

    """
    return typer.Typer(
        name=name,
        help=about,
        no_args_is_help=no_args_is_help,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = new_app("disavow", "Federated learning whose clients can leave.", no_args_is_help=True)

MOST_ROUNDS = 1_000_000
LARGEST_SEED = 2**32 - 1
LONGEST_WAIT = 1_000_000.0
"""Seconds: more than eleven days."""


def a_number(value: float) -> float:
    """Refuse what is called a number and is none: it is above no bound and below none."""
    if math.isnan(value):
        raise typer.BadParameter("nan is not a number.")
    return value


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there and differs.")]
TaskFactory = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="MODULE:CALLABLE",
        help="What makes the task of a run whose settings name none; needed only to train.",
    ),
]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")]


def _version(wanted: bool) -> None:
    if wanted:
        from disavow import __version__

        typer.echo(f"disavow {__version__}")
        raise typer.Exit


@app.callback()
def disavow(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated learning whose clients can leave."""
