"""Asking a person for a passphrase, where there is one to ask."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path


def ask_passphrase(path: Path) -> str | None:
    """The passphrase of a key file; None where nobody is at the terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return getpass.getpass(f"passphrase of {path}: ")


def new_passphrase() -> str | None:
    """A new passphrase, asked for twice; None where nobody is at the terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    while True:
        first = getpass.getpass("passphrase for the new key: ")
        if first and first == getpass.getpass("once more: "):
            return first
        print("the two are not the same, or empty; try again", file=sys.stderr)
