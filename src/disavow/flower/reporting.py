"""What server app and node say, in Flower's own log, so that it shows where people look.

Much of it is in the words of the other side: whatever is not printable is escaped.
"""

from __future__ import annotations

from logging import INFO, WARNING

from flwr.supercore import log

from disavow.domain import escaped

_NAMED = 10
"""How many clients an error names before it only counts."""


def inform(text: str) -> None:
    """Something to know."""
    log(INFO, "disavow: %s", escaped(text))


def warn(text: str) -> None:
    """Something that is not as it should be."""
    log(WARNING, "disavow: %s", escaped(text))


def listed(reasons: dict[str, str]) -> str:
    """Clients with the reason why their reply does not count, which may be in their own words."""
    shown = escaped("; ".join(f"{client}: {reason}" for client, reason in sorted(reasons.items())[:_NAMED]))
    return shown if len(reasons) <= _NAMED else f"{shown}; and {len(reasons) - _NAMED} more"
