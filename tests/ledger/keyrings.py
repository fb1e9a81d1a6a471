"""What lies in the files of a keyring."""

from __future__ import annotations

from disavow.ledger.keyring import Keyring
from tests.ledger.making import files_of

RUN = "0" * 32


def secrets_of(keyring: Keyring, client: str) -> list[bytes]:
    """Whatever tells of a client: its keys, its id."""
    found = keyring.find(client)
    assert found is not None
    return [client.encode(), *found.keys]


def bytes_of(keyring: Keyring) -> bytes:
    return b"".join(files_of(keyring.folder).values())


# -- who is in it ------------------------------------------------------------------------------------------------
