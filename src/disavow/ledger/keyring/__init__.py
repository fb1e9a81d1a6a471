"""The keyring: who the clients of a run are. It lies with the operator's keys, outside the run, and nowhere else.

    KEYS/keyring/RUN_ID/keys.1           32 bytes for each client, at a random place; the first are the secret
                        keys.2 ...       the same after a rotation: rounds recorded since go by these
                        clients.sqlite3  place, keyed hash and sealed id of each client; tombstones; the run's state

The run knows a client by pseudonyms that derive from its key (`pseudonyms`), and the table here has its id sealed
under its keys. So whoever is to be forgotten is forgotten by overwriting 32 bytes: what is left of it, in the run,
in its backups, in free pages and journals of the table, cannot be opened or linked any more. Its row is deleted.
The keyed hash of its id stays, alone, as its *tombstone*: it makes out whoever comes back under the same id. Where
that is allowed, the client gets a new number, place and key, and the tombstone says who decided it.

A client that stays and has some of its records erased gets a second key, its *successor*: first prepared, then in
use, when the first becomes a *predecessor*, which is forgotten without a tombstone. Erased records are kept as
keyed hashes (`domain.records`), whatever becomes of the client.

The keyring also notes how far its run has come (`run_state`), before the run commits to it: so the run is never
newer than its keyring, and one that is older, or another copy of it, is noticed before it is written to.

Each module is a class of what a keyring does, derived from those that it needs; `Keyring` puts them together:

    store (schema, table, key_files) ─┬─ forgetting ── clients ── records ─┬─ keyring (folders)
                                      ├─ run_states ───────────────────────┤
                                      └─ checks ───────────────────────────┘
"""

from disavow.ledger.keyring.folders import unfinished_in
from disavow.ledger.keyring.keyring import Keyring, KeyringView, never_opened_in
from disavow.ledger.keyring.store import FOLDER, ClientKey

__all__ = ["FOLDER", "ClientKey", "Keyring", "KeyringView", "never_opened_in", "unfinished_in"]
