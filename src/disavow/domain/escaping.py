"""Ids in texts: as they may be printed, since they may hold anything, and where a text must not hold one."""

from __future__ import annotations

import re
from collections.abc import Iterable


def escaped(text: str) -> str:
    r"""Escape what is not printable: control and escape characters, line ends, marks that turn a text around.

    `!r` in a format does the same and adds quotes. Escaping twice is escaping once.

    >>> escaped("client-07"), escaped("a\x1b[2J\u202e\n")
    ('client-07', 'a\\x1b[2J\\u202e\\n')
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def named_client(text: str, clients: Iterable[str]) -> str | None:
    """Find a client whose id is a word of a text, such as the name of a metric.

    Args:
        text: What may name one.
        clients: Ids.

    Returns:
        The id; None where the text names nobody.

    >>> named_client("auroc_Gent", ["Gen", "Gent"]), named_client("Ghent", ["Gent"])
    ('Gent', None)
    """
    whole = (client for client in clients if client in text)
    return next((each for each in whole if re.search(rf"(?<![^\W_]){re.escape(each)}(?![^\W_])", text)), None)
