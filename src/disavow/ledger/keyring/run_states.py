"""How far the run of a keyring has come, noted before the run commits to it.

So the run is never newer than its keyring, and one that is older, or another copy of it, is noticed before it is
written to.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from disavow.errors import KeyringOutdated, RunOutdated
from disavow.ledger.keyring.schema import note_change
from disavow.ledger.keyring.store import KeyringStore
from disavow.ledger.run_state import RunState

NEVER_OPENED = "never opened"
"""What is pending in the keyring of a run that nobody has opened yet: its making may have been interrupted."""


class RunStates(KeyringStore):
    """What a keyring knows of its run, and whether a run is the one that goes on."""

    @property
    def state(self) -> RunState | None:
        """How far its run had come when it was last written; None before its first leaf."""
        return self.states()[0]

    def states(self) -> tuple[RunState | None, RunState | None]:
        """Read how far the run had come, and how far before the commit that may not have reached it."""
        with self._reading() as connection:
            return _states(connection)

    @property
    def settled(self) -> bool:
        """Whether the run is known to have come as far as was noted."""
        return self._fact("pending") == ""

    def advance(self, before: RunState, after: RunState, directory: Path) -> None:
        """Note how far the run is about to come, durably, before it commits to that.

        Args:
            before: How far it is.
            after: How far it will be.
            directory: The run, for what is said of it.

        Raises:
            RunOutdated: The keyring knows another state of the run: this is not the copy of it that goes on.

        """
        with self._writing() as connection:
            if before not in _states(connection):
                raise self.outdated_run(directory)
            _note(connection, after, str(before))

    def begin(self, state: RunState) -> None:
        """Note how far a run is that is about to be put in its place; it is settled once somebody opens it."""
        with self._writing() as connection:
            _note(connection, state, NEVER_OPENED)

    def confirm(self, state: RunState) -> None:
        """Note that the run has come as far as was noted last. Without it, a run one step behind is taken for one
        that was killed.

        Args:
            state: What was committed; where another process has noted a later state since, nothing is changed.

        """
        with self._writing(durable=False) as connection:
            if state == _states(connection)[0]:
                _note(connection, state, "")

    def settle(self, state: RunState) -> None:
        """Note how far the run is, where a process was killed between noting a state and committing to it.

        Args:
            state: How far it is, read in a transaction that writes, so that nobody else is between the two; another
                one than was noted changes nothing.

        """
        with self._writing(durable=False) as connection:
            if state in _states(connection):
                _note(connection, state, "")

    def begin_accepting(self) -> None:
        """Make older copies of the keyring older than the run that is about to be accepted."""
        with self._writing() as connection:
            note_change(connection)

    def adopt(self, state: RunState) -> None:
        """Take a run for the one that goes on, whatever was known of it; older or other copies are refused."""
        with self._writing() as connection:
            _note(connection, state, "")

    def matches(self, state: RunState, generation: int, epoch: int) -> bool:
        """Compare a run with what is known of it.

        Args:
            state: How far it is.
            generation: That of the keyring when the run was written last.
            epoch: The newest that its rounds go by.

        Returns:
            Whether it is the run that goes on; otherwise it was restored from a backup, or another copy went on.

        Raises:
            KeyringOutdated: The keyring is older than the run.

        """
        newest, pending = self.states()
        older = newest is not None and state.history == newest.history and state.commits > newest.commits
        if generation > self.generation or epoch > self.epoch or older:
            raise KeyringOutdated(
                f"the keyring {self.folder} is older than its run, as if restored from a backup: clients who were "
                "forgotten since would be known again; restore the newest copy of it"
            )
        return newest is None or state in (newest, pending)

    def outdated_run(self, directory: Path) -> RunOutdated:
        """Say that a run is not the copy of it that goes on."""
        return RunOutdated(
            f"{directory} is not in the state that its keyring knows last: it was restored from a backup, or "
            f"another copy of it was written to; `disavow keyring accept {directory}` goes on with this one"
        )


def _states(connection: sqlite3.Connection) -> tuple[RunState | None, RunState | None]:
    found = dict(connection.execute("SELECT name, value FROM facts WHERE name IN ('state', 'pending')"))
    state, pending = (found[name] for name in ("state", "pending"))
    return (
        RunState.from_text(state) if state else None,
        RunState.from_text(pending) if pending not in ("", NEVER_OPENED) else None,
    )


def _note(connection: sqlite3.Connection, state: RunState, pending: str) -> None:
    facts = [(str(state), "state"), (pending, "pending")]
    connection.executemany("UPDATE facts SET value = ? WHERE name = ?", facts)
