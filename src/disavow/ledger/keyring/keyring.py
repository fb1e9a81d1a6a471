"""The keyring of a run as a whole: made in one step, copied, and its keys rotated."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from disavow.errors import ConfigError
from disavow.ledger.files import PRIVATE_FILE, PRIVATE_FOLDER, sync_file, sync_folder
from disavow.ledger.keyring.checks import Checks
from disavow.ledger.keyring.folders import holding, make_private_folders, try_lock, unfinished_in
from disavow.ledger.keyring.key_files import SECRET
from disavow.ledger.keyring.records import Records
from disavow.ledger.keyring.run_states import NEVER_OPENED, RunStates
from disavow.ledger.keyring.schema import FORMAT, ROWS, SCHEMA, note_change
from disavow.ledger.keyring.store import FOLDER, RUN_ID, ClientKey, check_value
from disavow.ledger.keyring.table import connect
from disavow.ledger.pseudonyms import KEY_BYTES
from disavow.ledger.run_state import RunState

_FIRST_CAPACITY = 64
"""How many places for keys there are at first. There are always at least twice as many as clients."""


class Keyring(Records, RunStates, Checks):
    """The keyring of one run. Opened on first use; nothing is read before that."""

    @classmethod
    def create(cls, keys: Path, run_id: str) -> Keyring:
        """Make the keyring of a new run, durably.

        Args:
            keys: The folder of the operator's keys.
            run_id: The run.

        Raises:
            ConfigError: It cannot be made there.

        """
        with cls.being_made(keys, run_id) as made:
            made.put_in_place()
        return made

    @classmethod
    @contextmanager
    def being_made(cls, keys: Path, run_id: str) -> Iterator[Keyring]:
        """Make the keyring of a new run beside its place; `put_in_place` moves it there.

        What an interrupted process left of another one is removed first. What is not put in place goes at the end.

        Args:
            keys: The folder of the operator's keys.
            run_id: The run.

        Raises:
            ConfigError: It cannot be made there.

        """
        made = cls(keys, run_id)
        made._lies_in(made.folder.with_name(f".{run_id}.new"))
        try:
            make_private_folders(made.folder.parent)
            with holding(made.folder.parent):  # or else another process takes a folder without its lock for stale
                made.folder.mkdir(mode=PRIVATE_FOLDER)
                lock = try_lock(made.folder)
                for stale in unfinished_in(keys):
                    shutil.rmtree(stale, ignore_errors=True)
            made._fill()
        except OSError as error:
            raise ConfigError(
                f"{keys} cannot hold a keyring: {error.strerror}; DISAVOW_KEYS names a folder that can be written"
            ) from None
        unfinished = made.folder
        try:
            yield made
        finally:
            made.close()
            shutil.rmtree(unfinished, ignore_errors=True)
            if lock is not None:
                os.close(lock)

    def _fill(self) -> None:
        secret = secrets.token_bytes(KEY_BYTES)
        self._files.write(1, {SECRET: secret}, capacity=_FIRST_CAPACITY)
        with closing(connect(self._table.path, "rwc")) as connection:
            self._table.path.chmod(PRIVATE_FILE)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA)
            facts = {
                "format": FORMAT,
                "run": self.run_id,
                "generation": 1,
                "epoch": 1,
                "capacity": _FIRST_CAPACITY,
                "clients": 0,
                "registering": 0,
                "check": check_value(secret),
                "state": "",
                "pending": NEVER_OPENED,
            }
            connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())

    def put_in_place(self) -> None:
        """Move a keyring that was made beside its place there, durably."""
        self.close()
        sync_folder(self.folder)
        place = self.folder.with_name(self.run_id)
        self.folder.rename(place)  # fails where there is one
        self._lies_in(place)
        sync_folder(place.parent)
        sync_folder(place.parent.parent)

    def rotate(self) -> int:
        """Give every client a new key for the rounds recorded from now on.

        Whoever has seen the keys so far cannot tell who is who in those rounds. Keys of earlier rounds stay.

        Returns:
            The new epoch.

        """
        with self._writing() as connection:
            epoch = self.epoch + 1
            positions = dict(connection.execute("SELECT number, place FROM clients WHERE marked = 0"))
            new = {number: secrets.token_bytes(KEY_BYTES) for number in positions}
            known = self._load(connection, ROWS)
            keys = {positions[number]: key for number, key in new.items()}
            self._write_keys(epoch, keys, capacity=int(self._fact("capacity")), new=True)
            sync_folder(self.folder)
            sealed = [
                (self._seal_id(ClientKey(each.number, each.id, (*each.keys, new[each.number]))), each.number)
                for each in known
            ]
            connection.executemany("UPDATE clients SET sealed = ? WHERE number = ?", sealed)
            connection.execute("UPDATE facts SET value = ? WHERE name = 'epoch'", [epoch])
            note_change(connection)
        with self._table.guard:
            self._present = None
        return epoch

    def copy(self, keys: Path) -> Keyring:
        """Copy it into another folder of keys: a backup, or the keyring of a copy of the run to try things on.

        Args:
            keys: The folder; it must hold no keyring of this run yet.

        Returns:
            The copy.

        Raises:
            ConfigError: There is one already, or it cannot be written.

        """
        made = Keyring(keys, self.run_id)
        try:
            make_private_folders(made.folder.parent)
            made.folder.mkdir(mode=PRIVATE_FOLDER)
            with self._writing():  # nobody forgets or registers meanwhile
                for epoch in range(1, self.epoch + 1):
                    path = made._files.path(epoch)
                    shutil.copyfile(self._files.path(epoch), path)
                    path.chmod(PRIVATE_FILE)
                    sync_file(path)
                with (  # the connection that has locked the table cannot be copied from
                    closing(connect(self._table.path, "ro")) as source,
                    closing(connect(made._table.path, "rwc")) as target,
                ):
                    made._table.path.chmod(PRIVATE_FILE)
                    source.backup(target)
            sync_folder(made.folder)
        except OSError as error:
            raise ConfigError(f"the keyring cannot be copied to {made.folder}: {error.strerror}") from None
        made.finish_forgetting()
        return made


class KeyringView(Keyring):
    """One state of a keyring, for checks: whoever comes or leaves meanwhile changes nothing in it.

    Args:
        keyring: The keyring; it must be there.

    """

    def __init__(self, keyring: Keyring) -> None:
        super().__init__(keyring.folder.parent.parent, keyring.run_id)
        self._seen = keyring.generation, keyring.states()
        self._clients = keyring.present()
        self._numbers = {each.number: each for each in self._clients.values()} | keyring.not_in_use()

    def is_still(self, keyring: Keyring) -> bool:
        """Say whether the keyring is still as it was."""
        return self._seen == (keyring.generation, keyring.states())

    @property
    def generation(self) -> int:
        """See `Keyring`."""
        return self._seen[0]

    def states(self) -> tuple[RunState | None, RunState | None]:
        """See `Keyring`."""
        return self._seen[1]

    def present(self) -> dict[str, ClientKey]:
        """See `Keyring`."""
        return dict(self._clients)

    def find_all(self, ids: Sequence[str]) -> dict[str, ClientKey]:
        """See `Keyring`."""
        return {client: self._clients[client] for client in ids if client in self._clients}

    def by_number(self, numbers: Sequence[int]) -> dict[int, ClientKey]:
        """See `Keyring`."""
        return {number: self._numbers[number] for number in numbers if number in self._numbers}


def never_opened_in(keys: Path) -> list[Path]:
    """Find keyrings whose run was never opened: its making may have been interrupted just before its last step.

    Args:
        keys: The folder of the operator's keys.

    """
    found = []
    for path in sorted((keys / FOLDER).iterdir()) if (keys / FOLDER).is_dir() else []:
        if RUN_ID.fullmatch(path.name):
            keyring = Keyring(keys, path.name)
            with suppress(ConfigError), closing(keyring):
                if keyring._fact("pending") == NEVER_OPENED:
                    found.append(path)
    return found
