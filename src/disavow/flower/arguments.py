"""Arguments of `KIPFedAvg` that no settings check: a wrong one is refused before anything is started."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

from disavow.errors import ConfigError
from disavow.flower.identity import Identity


def check_rules(identity: str, repeats: int, too_large: float) -> None:
    """Refuse an identity that is none, and rules by which no reply, or every reply, would count.

    An unknown identity must never pass for one of the others: who a client is decides who stays forgotten.
    """
    known = get_args(Identity)
    if identity not in known:
        raise ConfigError(f"identity is {identity!r}; allowed: {', '.join(repr(name) for name in known)}")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 0:
        raise ConfigError(f"repeats is {repeats!r}; allowed: a whole number, 0 or more")
    number = isinstance(too_large, int | float) and not isinstance(too_large, bool)
    if not number or not math.isfinite(too_large) or too_large <= 1:
        raise ConfigError(f"too_large is {too_large!r}; allowed: a finite number above 1")


def absolute(name: str, path: str | Path) -> Path:
    """A folder that means the same whoever starts the server app: absolute, or in a home directory (`~`)."""
    try:
        found = Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{name} is {str(path)!r}, and there is no such home directory") from None
    if not found.is_absolute():
        raise ConfigError(
            f"{name} is {str(path)!r}, a relative path: it would lie in the folder in which somebody once started "
            f"Flower's SuperLink, not in that of `flwr run`; allowed: an absolute path, such as '~/{found}'"
        )
    return found
