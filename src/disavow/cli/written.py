"""Files that somebody asked for: what is there and says something else is kept, unless it is to be replaced."""

from __future__ import annotations

import os
from pathlib import Path

from disavow.errors import ConfigError


def write_file(output: Path, data: bytes, *, force: bool, mode: int = 0o644) -> None:
    """Write a file that somebody asked for; one that is there and says something else is kept unless forced."""
    from disavow.ledger.files import write_durably  # needs the extra ledger, and an auditor has none

    try:
        if refuse_other(output, data, force=force):
            return
        write_durably(output, data, mode=mode)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from None


def refuse_other(output: Path, data: bytes, *, force: bool) -> bool:
    """Whether a file is there and holds just this; one that holds something else is refused unless forced."""
    if force or not os.path.lexists(output):
        return False
    if output.is_file() and output.stat().st_size == len(data) and output.read_bytes() == data:
        return True
    raise ConfigError(f"{output} exists and is not overwritten; --force replaces it")
