"""Ids as they may be printed: they come from elsewhere, and may hold anything."""

from __future__ import annotations


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
