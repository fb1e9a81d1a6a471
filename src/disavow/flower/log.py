"""Write to Flower's own log, which is where people look. Words of the other side are escaped if not printable."""

from __future__ import annotations

from logging import INFO, WARNING

from flwr.supercore import log

from disavow.domain import escaped


def inform(text: str) -> None:
    """Log what is worth knowing."""
    log(INFO, "disavow: %s", escaped(text))


def warn(text: str) -> None:
    """Log what is not as it should be."""
    log(WARNING, "disavow: %s", escaped(text))
