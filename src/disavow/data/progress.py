"""How loading says how far it is. Data code prints nothing; whoever calls it may show a bar."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[str, int, int | None], None]
"""What is being done, how much of it is done, and how much there is to do; None where that is not known."""


def nothing(what: str, done: int, total: int | None) -> None:
    """Show nothing."""
