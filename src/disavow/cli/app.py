"""All commands, each with an example in its help, declared in the order in which `disavow --help` lists them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import typer

from disavow.cli import run_commands

# isort: split
from disavow.cli import request_commands

# isort: split
from disavow.cli import keyring_commands

# isort: split
from disavow.cli import proof_commands

# isort: split
from disavow.cli import monitor_commands, witness_commands

# isort: split
from disavow.cli import node_commands

# isort: split
from disavow.cli import server_commands

# isort: split
from disavow.cli import study_commands
from disavow.cli.base import app

__all__ = [
    "app",
    "app_for",
    "keyring_commands",
    "monitor_commands",
    "node_commands",
    "proof_commands",
    "request_commands",
    "run_commands",
    "server_commands",
    "study_commands",
    "witness_commands",
]


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """Return the application with the one command that is asked for; typer reads the options of all it is given.

    Args:
        arguments: What the command line says after `disavow`.

    Returns:
        All commands where the first argument names none of them: for a list, or to refuse it.

    """
    named = [command for command in app.registered_commands if _name(command) in arguments[:1]]
    if not named:
        return app
    only = copy.copy(app)
    only.registered_commands = named
    return only


def _name(command: typer.models.CommandInfo) -> str:
    assert command.callback is not None  # noqa: S101 - a command is declared by decorating a function
    return command.name or command.callback.__name__.replace("_", "-")
