"""Where the operator's keys lie: outside every run directory."""

from __future__ import annotations

import os
from pathlib import Path

from disavow.errors import ConfigError

ENVIRONMENT = "DISAVOW_KEYS"


def default_folder() -> Path:
    """Where the operator's keys lie: `DISAVOW_KEYS`, or .disavow/keys in the home directory."""
    return Path(os.environ.get(ENVIRONMENT) or Path.home() / ".disavow" / "keys")


def refuse_inside(path: Path, run: Path, what: str = ENVIRONMENT) -> None:
    """Refuse a folder of keys, or another file that names people, inside the run.

    Args:
        path: Where the operator's keys lie, or what else is to be written.
        run: The run directory.
        what: The setting or option that names the path.

    Raises:
        ConfigError: It does.

    """
    if path.resolve().is_relative_to(run.resolve()):
        raise ConfigError(f"{what} is {path}; allowed: a path outside the run directory {run}; nothing was changed")
