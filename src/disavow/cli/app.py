"""All commands, each with an example in its help, declared in the order in which `disavow --help` lists them."""

from __future__ import annotations

from disavow.cli import run_commands

# isort: split
from disavow.cli import keyring_commands

# isort: split
from disavow.cli import proof_commands

# isort: split
from disavow.cli import study_commands
from disavow.cli.base import app

__all__ = ["app", "keyring_commands", "proof_commands", "run_commands", "study_commands"]
