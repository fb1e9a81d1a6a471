"""Who decided, why, and who received a model: texts that a run keeps for whoever has its keyring, and nobody else.

They are sealed under a key that derives from the keyring's secret, not from a client's: they outlive a leaver. So a
text that contains the id of a client is refused.
"""

from __future__ import annotations

import json

from disavow.errors import ConfigError, IntegrityError, TextNamesClient
from disavow.ledger.clients import names_client
from disavow.ledger.keyring import Keyring
from disavow.ledger.pseudonyms import derive, open_sealed, seal

LONGEST_NAME, LONGEST_REASON = 200, 2000
"""Characters."""

_PADDED = 128
"""Sealed texts are padded to a multiple of so many bytes."""


def seal_texts(keyring: Keyring, place: str, *texts: str) -> bytes:
    """Seal texts, bound to their place.

    Args:
        keyring: The run's keyring.
        place: What they are, and of which row: no two rows may share it.
        texts: The texts.

    """
    data = json.dumps(texts).encode()
    padded = data.ljust(len(data) + -len(data) % _PADDED)
    return seal(derive(keyring.secret, "texts", b""), _bound(keyring, place), padded)


def open_texts(keyring: Keyring, place: str, sealed: bytes) -> list[str]:
    """Open what `seal_texts` sealed for this place.

    Raises:
        IntegrityError: It is anything else.

    """
    found = open_sealed(derive(keyring.secret, "texts", b""), _bound(keyring, place), sealed)
    if found is None:
        raise IntegrityError(f"what was sealed as {place} is not what was recorded")
    texts: list[str] = json.loads(found)
    return texts


def refuse_text(keyring: Keyring, what: str, text: str, *, longest: int, needed: bool = True) -> None:
    """Refuse a text that a run may not keep.

    Args:
        keyring: The run's keyring.
        what: What the text is, for the message.
        text: The text.
        longest: How many characters it may have.
        needed: Whether it must say something.

    Raises:
        ConfigError: It is empty, too long, or no proper text.
        TextNamesClient: It contains the id of somebody who is or was in the run.

    """
    if needed and not text.strip():
        raise ConfigError(f"{what} is empty; allowed: a text of up to {longest} characters; nothing was changed")
    if len(text) > longest or any(not character.isprintable() and character not in "\n\t" for character in text):
        raise ConfigError(
            f"{what} is too long or cannot be printed; allowed: a text of up to {longest} characters; nothing was "
            "changed"
        )
    if names_client(keyring, text):
        raise TextNamesClient(
            f"{what} contains the id of a client, and would outlive its erasure: leave it out; nothing was changed"
        )


def _bound(keyring: Keyring, place: str) -> bytes:
    return f"texts/{keyring.run_id}/{place}".encode()
