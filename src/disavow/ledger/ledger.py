"""The ledger of one run: what was promised, who took part in which cluster, and every model.

A round is one transaction. Its model file is durable before a row names it. What only reads is in `reader`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from disavow.domain import (
    OWN_CODE,
    Anchors,
    Decision,
    EngineChoice,
    Evaluation,
    EventKind,
    Layout,
    Member,
    Policy,
    Rebuilt,
    Round,
    Slot,
    TrainedBy,
)
from disavow.domain.strategies import MECHANISMS
from disavow.errors import DisavowError, LedgerError, MetricNamesClient, RunMissing
from disavow.ledger import clients as registry
from disavow.ledger import cosignatures, database, journal, log, rebuilt, retention, rounds, updates
from disavow.ledger.bucket import Location
from disavow.ledger.creation import Beginning, make
from disavow.ledger.files import FileIdentity, identity_of
from disavow.ledger.keys import default_folder, refuse_inside
from disavow.ledger.lock import Lock
from disavow.ledger.members import RoundKeys
from disavow.ledger.models import Vector
from disavow.ledger.proofs import ProofStore
from disavow.ledger.reader import Reader, RunRecord
from disavow.ledger.readmission import readmit
from disavow.ledger.releases import note_release
from disavow.ledger.requests import (
    cancel,
    decide,
    delete_request_details,
    give_up_forgotten,
    note_not_held,
    note_word,
    place,
    place_for_records,
    place_for_unknown,
)
from disavow.ledger.restored import Restored
from disavow.ledger.rounds import NewRound
from disavow.ledger.rows import members_of
from disavow.ledger.run_files import make_private, refuse_unsafe
from disavow.ledger.run_state import count_commits, new_history, state_of
from disavow.ledger.schema import models, run
from disavow.ledger.transaction import Snapshot, Transaction
from disavow.ledger.updates import KeptFile
from disavow.proof.cosignatures import WitnessKey
from disavow.proof.notes import Signer
from disavow.proof.word import SignedWord

OWN_METRICS = frozenset({"accuracy", "loss"})
"""Names that disavow gives, whatever clients are called."""


@dataclass(frozen=True)
class _Recording:
    """The transaction in which a round is recorded: its model, its name and keys, the files of its updates."""

    connection: sa.Connection
    digest: str
    by: RoundKeys
    files: Mapping[str, KeptFile]


class Ledger(Reader):
    """A run directory, opened. Use it as a context manager."""

    def __init__(
        self,
        directory: Path,
        engine: sa.Engine,
        lock: Lock | None,
        signer: Signer | None = None,
        keys: Path | None = None,
        *,
        takes_short_writes: bool = False,
    ) -> None:
        self._lock, self._signer = lock, signer
        self.takes_short_writes = takes_short_writes
        """Whether it may be written to for a moment beside whoever holds the lock, such as to place a request."""
        self.restored = Restored()
        """Whom this run, accepted from a backup, has yet to withdraw; see `restored`."""
        self._engine = engine
        super().__init__(RunRecord.load(directory, engine, default_folder() if keys is None else keys))
        self._files = self._found_files()

    # -- coming into being ---------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        policy: Policy,
        layout: Layout,
        initial: Vector,
        clients: Iterable[str],
        config: str,
        created_by: str,
        at: datetime,
        settings_digest: str = "",
        trainer: TrainedBy = OWN_CODE,
        data: Mapping[str, str] | None = None,
        signer: Signer | None = None,
        keys: Path | None = None,
        models_at: str | None = None,
        database: str | None = None,
    ) -> Ledger:
        """A new run, opened for writing. The directory appears whole, or not at all.

        `settings_digest` binds `config`, the text of the settings file; "" leaves it unbound. `trainer` says what
        trains the run: the caller's own code, unless told otherwise. `data` is the SHA-256 of what each client
        holds, where a task trains the run. `signer` signs the log from its first leaf on. The run's keyring goes to
        `keys`, the folder of the operator's keys. `models_at` is the URL under which its models are kept, such as
        s3://bucket/prefix; without it they are in the directory. `database` is where its rows go: a URL, or
        "sqlite" for a file in the directory; by default what `DISAVOW_DATABASE` says, or else that file.
        """
        keys = default_folder() if keys is None else keys
        refuse_inside(keys, directory)
        place = None if models_at is None else Location.parse(models_at)
        start = Beginning(
            policy,
            layout,
            initial,
            clients,
            config,
            created_by,
            at,
            settings_digest,
            trainer,
            keys,
            signer,
            data,
            place,
            database,
        )
        make(directory, start)
        return cls.open(directory, write=True, signer=signer, keys=keys)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        write: bool = False,
        shared: bool = False,
        signer: Signer | None = None,
        keys: Path | None = None,
    ) -> Ledger:
        """A run that exists. For writing, it is locked and tidied.

        `signer` signs the log; a run whose log has been signed is not written without one.

        `keys` is the folder of the operator's keys, with the run's keyring; `DISAVOW_KEYS` unless told otherwise.
        Writing takes the keyring; reading without it gives nobody's name. A run that is not the one that its
        keyring knows last, because it was restored from a backup, is written only once it was accepted (`accept`).

        `shared` opens it for short writes beside the process that holds the lock, such as placing a request.
        """
        refuse_unsafe(directory)
        if not database.exists(directory):
            raise RunMissing(f"{directory} holds no run; `disavow train CONFIG.toml --run {directory}` starts one")
        lock = database.lock(directory) if write else None
        engine = None
        try:
            if write:
                make_private(directory)
            database.check_revision(directory)
            engine = database.connect(directory, write=write or shared)
            ledger = cls(directory, engine, lock, signer, keys, takes_short_writes=shared)
            if write or shared:
                ledger._compare_with_keyring()
            if write:
                ledger._take_up_log()
                ledger.remove_leftovers()
        except BaseException:
            if engine is not None:
                engine.dispose()
            if lock is not None:
                lock.release()
            raise
        return ledger

    @classmethod
    def accept(cls, directory: Path, *, keys: Path | None = None) -> Restored:
        """Go on with a run that is not the one its keyring knows last: restored from a backup, or another copy.

        Whoever was forgotten and is in it again is to be withdrawn: that request waits, and is answered before
        anything else happens to the run. Other copies of the run are refused from now on.

        Args:
            directory: The run.
            keys: The folder of the operator's keys.

        Returns:
            What the run had forgotten; where it is the one that goes on already, nothing was changed.

        Raises:
            KeyringOutdated: The keyring is older than the run.
            RunInUse: Another process holds the run.

        """
        with cls.open(directory, keys=keys) as ledger, database.lock(directory) as lock:
            make_private(directory)
            ledger._engine.dispose()
            ledger._engine = database.connect(directory, write=True)
            refuse_inside(ledger.keyring.folder.parent.parent, directory)
            ledger.keyring.finish_forgetting()
            found = ledger.restored_from_backup()
            if found.accepted:
                return found
            ledger.keyring.begin_accepting()
            # the run does not know that they were withdrawn: their slots are among those of nobody
            ledger.keyring.forget(ledger.keyring.predecessors() - ledger._withdrawn())
            at = datetime.now(UTC)
            with database.room_to_write(directory), database.writing(ledger._engine, lock) as connection:
                connection.execute(run.update().values(history=new_history()))
                count_commits(connection)
                give_up_forgotten(connection, ledger.keyring, at=at)
                if found.slots:
                    place_for_unknown(connection, ledger.keyring, at=at)
                registry.note_generation(connection, ledger.keyring)
                state = state_of(connection)
            # after that commit: killed before it, the run is not accepted, and still knows what it lacks
            ledger.keyring.adopt(state)
        return found

    def _withdrawn(self) -> set[int]:
        """The numbers of clients who are withdrawn, but not forgotten yet."""
        return self._read(registry.withdrawn)

    def allow_short_writes(self) -> None:
        """Let a ledger that was opened for reading write beside whoever holds the lock, as `shared` does."""
        self._engine.dispose()
        self._engine = database.connect(self.directory, write=True)
        self._compare_with_keyring()
        self.takes_short_writes = True

    @property
    def replaced(self) -> bool:
        """Whether the ledger or its keyring are other files than those that were opened, such as restored ones.

        What is written through this object then reaches nobody: open the run again.
        """
        return self._found_files() != self._files

    def _found_files(self) -> tuple[FileIdentity | None, ...]:
        return tuple(map(identity_of, (*database.rows_at(self.directory), self.keyring.table)))

    @property
    def writable(self) -> bool:
        """Whether this process holds the run's lock."""
        return self._lock is not None

    @contextmanager
    def locked(self, signer: Signer | None) -> Iterator[None]:
        """Hold the lock of a run that is open for short writes, as `open` with `write` does.

        Raises:
            RunInUse: Another process holds it.

        """
        if self._lock is not None:
            yield
            return
        self._lock, self._signer = database.lock(self.directory), signer
        try:
            make_private(self.directory)
            self._compare_with_keyring()
            self._take_up_log()
            self.remove_leftovers()
            yield
        finally:
            self._lock.release()
            self._lock = None

    def _take_up_log(self) -> None:
        with self._connect() as connection:
            current = log.key_of(connection)
            ready = current == (self._signer.public if self._signer else None)
        if not ready:
            with self._begin() as connection:
                log.note_signer(connection, self._signer, at=log.time_of(datetime.now(UTC)))

    def _compare_with_keyring(self) -> None:
        """Complete what a crash left of forgetting; refuse a run that is not the one its keyring knows last."""
        refuse_inside(self.keyring.folder.parent.parent, self.directory)
        self.keyring.finish_forgetting()
        self.restored = self.restored_from_backup()
        if not self.restored.accepted:
            raise self.keyring.outdated_run(self.directory)
        self.complete_record_requests()
        if self._lock is not None and not self.keyring.settled:
            with self._begin() as connection:  # nobody is between noting a state and committing to it
                self.keyring.settle(state_of(connection))

    @property
    def signer(self) -> Signer | None:
        """What signs this run's log and proofs."""
        return self._signer

    def remove_leftovers(self) -> None:
        """Delete model and update files that no row keeps: superseded ones, leavers', and those of rounds never
        recorded, which could be a second draw of the same round. And proofs that were half written.

        A commit that failed may have reached the disk all the same, and a recovery, or a server that we no longer
        hear, then brings its rows back, with the files they name. The next commit that succeeds takes its place in
        SQLite's log, or has waited for it on a server: so there is one first.
        """
        with database.room_to_write(self.directory):
            ProofStore(self.directory).remove_halves()
        if not any(self._leftovers()):
            return
        with self._begin() as connection:
            connection.execute(run.update().values(run_id=self.run_id))  # as it is: any commit will do
        model_files, update_files = self._leftovers()
        with database.room_to_write(self.directory):
            self.store.remove(model_files)
            self.updates.remove(update_files)

    def _leftovers(self) -> tuple[list[str], list[str]]:
        """The names of model files and update files that no row keeps."""
        with self._connect() as connection:
            named = set(connection.execute(sa.select(models.c.digest).where(models.c.present)).scalars())
            kept = updates.named(connection)
        return self.store.leftovers(named), self.updates.leftovers(kept)

    def close(self) -> None:
        """Let go of the run and of its lock. Closing twice is closing once."""
        self._engine.dispose()
        self.keyring.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Read one state of the ledger several times."""
        with self._connect() as connection:
            yield Snapshot(self._record, connection)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Write several steps at once: all of them, or none."""
        with self._begin() as connection:
            yield Transaction(self._record, connection, self._signer)

    @contextmanager
    def _connect(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        """Open a connection that writes: its changes are committed at the end, or none of them."""
        with database.room_to_write(self.directory), database.writing(self._engine, self._lock) as connection:
            before = state_of(connection)
            yield connection
            after = state_of(connection)
            if after != before:  # the keyring knows of it before the run commits to it: the run is never newer
                self.keyring.advance(before, after, self.directory)
        if after != before:
            with suppress(DisavowError):  # it is committed all the same; the next opening settles it
                self.keyring.confirm(after)

    # -- writing -------------------------------------------------------------------------------------------

    def register(self, ids: Sequence[str], data: Mapping[str, str] | None = None) -> None:
        """Make clients known. Registering one twice is registering it once.

        Args:
            ids: The clients.
            data: The SHA-256 of what each of them holds: noted of those of whom the run knows none, such as
                newcomers and clients some of whose records were erased since.

        Raises:
            LeaverReturns: One of them was forgotten.

        """
        with self._begin() as connection:
            registry.register(connection, self.keyring, ids, data or {})

    def bind_data(self, data: Mapping[str, str]) -> None:
        """Keep the SHA-256 of what clients hold, where the run does not know it: after records were erased.

        Args:
            data: The digests, by client.

        """
        with self._begin() as connection:
            registry.bind_data(connection, self.keyring, data)

    def keep_anchors(self, anchors: Anchors) -> None:
        """Keep the fixed clusters of this run; places of clients who are not in it are left out."""
        with self._begin() as connection:
            registry.store_anchors(connection, self.keyring, anchors)

    def place_requests(
        self,
        ids: Sequence[str],
        *,
        at: datetime,
        stream_round: int | None = None,
        openings: Path | None = None,
        note: str = "",
        by: str = "",
        reason: str = "",
    ) -> tuple[int, ...]:
        """Make erasure requests wait for whoever holds the run; their numbers. See `requests.place`."""
        folder = None if openings is None else str(openings.absolute())
        with self._begin() as connection:
            journal.complete_record_requests(connection, self.members)  # their clients have other numbers then
            return place(
                connection,
                self.keyring,
                ids,
                at=at,
                stream_round=stream_round,
                openings=folder,
                note=note,
                by=by,
                reason=reason,
            )

    def place_record_requests(
        self,
        records: Mapping[str, Sequence[str]],
        *,
        at: datetime,
        openings: Path | None = None,
        note: str = "",
        by: str = "",
        reason: str = "",
    ) -> dict[str, int]:
        """Make requests wait for records of clients to be erased: the records by client, the number of each
        client's request. Whether a client holds a record is not looked at. See `requests.place_for_records`.
        """
        folder = None if openings is None else str(openings.absolute())
        with self._begin() as connection:
            journal.complete_record_requests(connection, self.members)
            return place_for_records(
                connection, self.keyring, records, at=at, openings=folder, note=note, by=by, reason=reason
            )

    def cancel_request(self, client: str, *, at: datetime, by: str = "", reason: str = "") -> int:
        """Cancel the request of a client that waits; its number. See `requests.cancel`."""
        with self._begin() as connection:
            journal.complete_record_requests(connection, self.members)
            number = cancel(connection, self.members, client, Decision(by, at, reason))
        self.delete_request_details(number)
        return number

    def decide_request(
        self,
        number: int,
        kind: EventKind,
        decision: Decision,
        *,
        until: datetime | None = None,
        interim: bool = False,
    ) -> None:
        """Do to a request what somebody has decided; see `requests.decide`."""
        with self._begin() as connection:
            decide(connection, self.members, number, kind, decision, until=until, interim=interim)
        if kind in (EventKind.CANCELLED, EventKind.REFUSED):
            self.delete_request_details(number)

    def delete_request_details(self, number: int) -> None:
        """Delete what a request that was given up asked for; see `requests.delete_request_details`."""
        with self._begin() as connection:
            delete_request_details(connection, self.keyring, number)

    def readmit(self, client: str, decision: Decision) -> None:
        """Let somebody who was forgotten be a client again, under a new key; see `readmission.readmit`."""
        with self._begin() as connection:
            readmit(connection, self.keyring, client, decision)

    def note_release(self, *, digest: str, newest: int, after: str, averaged: int, to: str, at: datetime) -> int:
        """Write down that a model is given to somebody; the number of the release. See `releases.note_release`."""
        with self._begin() as connection:
            return note_release(
                connection,
                self.keyring,
                digest=digest,
                newest=newest,
                after=after,
                averaged=averaged,
                to=to,
                at=at,
            )

    def complete_record_requests(self) -> tuple[str, ...]:
        """Exclude the records of judged requests, and put their clients' new keys in use; see the journal.

        Returns:
            The clients who go on with a new key, and whose old one is not destroyed yet.

        """
        with self._connect() as connection, database.room_to_write(self.directory):
            return journal.complete_record_requests(connection, self.members)

    def note_not_held(self, request: int, said: Decision) -> None:
        """Note, once, that a client holds no such records as a request names; see `requests.note_not_held`."""
        with self._begin() as connection:
            note_not_held(connection, self.members, request, said)

    def note_word(self, request: int, word: bytes) -> None:
        """Note a client's signed word that it removed the records of a request: its digest, which names nobody.

        Proofs that are made or renewed from now on carry it. The file itself is for whoever keeps openings.

        Args:
            request: The number of a request for records, answered or not.
            word: The file; see `disavow.proof.word`.

        Raises:
            RunError: It is no such request.
            VerificationError: The word does not hold, or is about other records.

        """
        signed = SignedWord.decode(word)
        with self._begin() as connection:
            note_word(connection, self.members, request, signed)

    def rotate_keys(self) -> int:
        """Give every client a new key for the rounds recorded from now on; see `Keyring.rotate`.

        Returns:
            The new epoch.

        """
        with self._begin() as connection:  # nobody records a round meanwhile
            epoch = self.keyring.rotate()
            registry.note_generation(connection, self.keyring)
        return epoch

    def forget(self, leavers: Iterable[int]) -> None:
        """Destroy the keys of clients, durably; see `Keyring.forget`."""
        with database.room_to_write(self.directory):
            self.keyring.forget(leavers)

    def record(self, new: NewRound) -> Round:
        """Store a round and its model: all of it, or nothing. Only the next round can be recorded.

        Args:
            new: The round, with its model and the updates to keep.

        Returns:
            The round as it is stored.

        Raises:
            LedgerError: It does not follow what the ledger holds, or keeps updates where none may be kept.
            StorageError: The disk is full or fails.

        """
        if new.kept and not MECHANISMS[self.policy.mechanism].keeps_updates:
            raise LedgerError(
                f"the log of {self.directory} promises the mechanism {self.policy.mechanism!r}, under which no "
                "update is kept; nothing was recorded"
            )
        turn = new.number, new.attempt, new.before
        filled = [member for cluster in new.clusters for member in members_of(cluster.slots)]
        with self._recording(turn, new.after, filled, new.kept, compress=new.compress) as recording:
            connection = recording.connection
            record = new.recorded(recording.digest)
            rounds.insert(
                connection,
                record,
                run_id=self.run_id,
                policy=self.policy,
                by=recording.by,
                kept=recording.files,
                noted=new.noted,
            )
            if new.anchors is not None:
                registry.store_anchors(connection, self.keyring, new.anchors)
        return record

    def record_rebuilt(
        self,
        *,
        number: int,
        attempt: int,
        before: str,
        after: Vector,
        mechanism: str,
        source: int,
        epochs: int,
        slots: tuple[Slot, ...],
        kept: Mapping[bytes, Vector],
        at: datetime,
        seconds: float | None = None,
        trainer: str | None = None,
        compress: bool = True,
    ) -> Rebuilt:
        """Store a rebuilt round, its model and all contributions to it: see `domain.Rebuilt`."""
        turn = number, attempt, before
        with self._recording(turn, after, members_of(slots), kept, compress=compress) as recording:
            record = Rebuilt(number, attempt, before, recording.digest, mechanism, source, epochs, slots, at)
            noted = {"seconds": seconds, "trainer": trainer}
            rebuilt.insert(
                recording.connection,
                record,
                run_id=self.run_id,
                policy=self.policy,
                by=recording.by,
                noted=noted,
                kept=recording.files,
            )
        return record

    @contextmanager
    def _recording(
        self,
        turn: tuple[int, int, str],
        after: Vector,
        filled: Sequence[Member],
        kept: Mapping[bytes, Vector],
        *,
        compress: bool,
    ) -> Iterator[_Recording]:
        """Store the files of a round durably, then open the transaction for the rows that name them."""
        with self._connect() as connection:
            self._refuse_out_of_turn(connection, *turn)
        try:
            with database.room_to_write(self.directory):
                digest, stored_bytes = self.store.write(self.layout, after)
                by = self.members.keys_for(turn[0], turn[1], [member.client for member in filled])
                mine = {each.client: kept[each.update_digest] for each in filled if each.update_digest in kept}
                files = self.updates.write(mine, by, compress=compress)
            with self._begin() as connection:
                self._refuse_out_of_turn(connection, *turn)
                known = models.update().where(models.c.digest == digest).values(present=True, thinned=False)
                if connection.execute(known).rowcount == 0:
                    connection.execute(models.insert().values(digest=digest, stored_bytes=stored_bytes))
                yield _Recording(connection, digest, by, files)
                if self._signer is not None:
                    log.sign_head(connection, self.run_id, self._signer)
                # leaving `_begin` commits: from here on the round exists
        except BaseException:
            with suppress(DisavowError, OSError):  # then the next opening does it, and what failed first is told
                self.remove_leftovers()  # the model of a round that was not recorded must not stay
            raise

    def _refuse_out_of_turn(self, connection: sa.Connection, number: int, attempt: int, before: str) -> None:
        expected = rounds.next_round(connection)
        if (number, attempt) != expected or before != self._digest_before(connection, number):
            raise LedgerError(
                f"round {number}, attempt {attempt} does not follow what the ledger holds "
                f"(next is round {expected[0]}, attempt {expected[1]}); nothing was recorded"
            )

    def note_evaluation(self, number: int, evaluation: Evaluation) -> None:
        """Remember how well a standing round's model does.

        A metric whose name contains the id of a client is left out, with a warning: no id may stand in a run.
        """
        metrics = dict(evaluation.metrics)
        for name in evaluation.metrics:
            if name not in OWN_METRICS and registry.names_somebody(self.keyring, name):
                del metrics[name]
                warnings.warn(
                    f"the metric {name!r} names a client of {self.directory} and is not stored: no id may stand in "
                    "a run; give it another name",
                    MetricNamesClient,
                    stacklevel=2,
                )
        with self._begin() as connection:
            rounds.note_evaluation(connection, number, Evaluation(**metrics))

    def note_cosignatures(self, size: int, lines: Mapping[WitnessKey, str]) -> None:
        """Keep what witnesses have cosigned of the head of so many leaves.

        Args:
            size: How many leaves the head has.
            lines: The cosignatures as a checkpoint has them, by witness.

        """
        # not `_begin`: neither the log nor a request changes, so that the keyring has nothing to know of
        with database.room_to_write(self.directory), database.writing(self._engine, self._lock) as connection:
            cosignatures.note_cosignatures(connection, size, lines)

    def note_engine(self, choice: EngineChoice) -> None:
        """Remember which engine trains, and why no faster one does."""
        if choice != self.engine_choice():
            with self._begin() as connection:
                connection.execute(run.update().values(engine=choice.to_text()))

    def thin(self, budget: int | None) -> None:
        """Give up checkpoints until those of standing rounds take at most `budget` bytes; None keeps all.

        The initial model and the newest always stay. Models of superseded rounds are none of them: they go when the
        rebuild that replaces them commits.
        """
        if budget is None:
            return
        gone = self._read(retention.beyond_budget, budget)
        if not gone:
            return
        with self._begin() as connection:
            retention.mark_thinned(connection, gone)
        self.store.remove([self.store.name(digest) for digest in sorted(gone)])
