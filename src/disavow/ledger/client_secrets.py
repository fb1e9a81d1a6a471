"""What orders clients in secret: derived from each client's own key, and so gone with it."""

from __future__ import annotations

from collections.abc import Sequence

from disavow.errors import UnknownClient
from disavow.ledger.keyring import Keyring
from disavow.ledger.pseudonyms import derive


class ClientSecrets:
    """A secret for each client of a run, which never changes.

    They derive from the clients' own keys, not from the keyring's secret: that one outlives whoever leaves, and
    with it anybody could work out a leaver's schedule and compare it with the rounds in its proof.

    Args:
        keyring: The run's keyring.
        purpose: What they are for.

    """

    def __init__(self, keyring: Keyring, purpose: str) -> None:
        self._keyring, self._purpose = keyring, purpose
        self._known: dict[str, bytes] = {}

    def of(self, client: str) -> bytes:
        """Give the secret of a client; all of them are looked up once.

        Raises:
            UnknownClient: It is not in the keyring.

        """
        if client not in self._known:
            self.remember(list(self._keyring.present()))
        if client not in self._known:
            raise UnknownClient(f"{client!r} is not a client of this run")
        return self._known[client]

    def remember(self, clients: Sequence[str]) -> None:
        """Look up the secrets of clients now, so that they are known when these have left."""
        context = self._keyring.run_id.encode()
        for client, key in self._keyring.find_all(clients).items():
            self._known[client] = derive(key.first, self._purpose, context)
