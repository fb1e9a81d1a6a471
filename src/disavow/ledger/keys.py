"""Where the operator's keys lie: outside every run directory."""

from __future__ import annotations

import os
from pathlib import Path

from disavow.errors import ConfigError

ENVIRONMENT = "DISAVOW_KEYS"


def default_folder() -> Path:
    """Where the operator's keys lie: `DISAVOW_KEYS`, or .disavow/keys in the home directory."""
    return Path(os.environ.get(ENVIRONMENT) or Path.home() / ".disavow" / "keys")


def refuse_inside(keys: Path, run: Path) -> None:
    """Refuse a folder of keys that lies inside the run.

    Args:
        keys: Where the operator's keys lie.
        run: The run directory.

    Raises:
        ConfigError: It does.

    """
    if keys.resolve().is_relative_to(run.resolve()):
        raise ConfigError(f"{ENVIRONMENT} is {keys}; allowed: a folder outside the run directory {run}")
