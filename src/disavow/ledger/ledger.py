"""The ledger of one run: what was promised, who took part in which cluster, and every model.

A round is one transaction. Its model file is durable before a row names it. What only reads is in `reader`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from disavow.domain import (
    OWN_CODE,
    Anchors,
    EngineChoice,
    Evaluation,
    Layout,
    Policy,
    Rebuilt,
    Round,
    Slot,
    TrainedBy,
)
from disavow.domain.strategies import MECHANISMS
from disavow.errors import DisavowError, LedgerError, RunMissing
from disavow.ledger import clients as registry
from disavow.ledger import database, log, rebuilt, retention, rounds, updates
from disavow.ledger.creation import Beginning, make
from disavow.ledger.keys import participation_key, tombstone, tombstone_key
from disavow.ledger.lock import Lock
from disavow.ledger.models import Vector
from disavow.ledger.proofs import ProofStore
from disavow.ledger.reader import Reader, RunRecord
from disavow.ledger.requests import bind_key, cancel, check_key, place, refuse_leavers
from disavow.ledger.rounds import NewRound
from disavow.ledger.run_files import make_private, refuse_unsafe
from disavow.ledger.schema import models, requests, run
from disavow.ledger.tombstones import RESTORED, Restored, listed, remember, restored
from disavow.ledger.transaction import Snapshot, Transaction
from disavow.proof.notes import Signer


class Ledger(Reader):
    """A run directory, opened. Use it as a context manager."""

    def __init__(
        self,
        directory: Path,
        engine: sa.Engine,
        lock: Lock | None,
        signer: Signer | None = None,
        keys: Path | None = None,
        patience: float | None = None,
    ) -> None:
        self._lock, self._signer, self._keys = lock, signer, keys
        self._patience = database.BUSY_SECONDS if patience is None else patience
        self.restored = Restored()
        """Whom this run had forgotten when it was opened for writing; see `tombstones`."""
        self._engine = engine
        super().__init__(RunRecord.load(directory, engine))

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
    ) -> Ledger:
        """A new run, opened for writing. The directory appears whole, or not at all.

        `settings_digest` binds `config`, the text of the settings file; "" leaves it unbound. `trainer` says what
        trains the run: the caller's own code, unless told otherwise. `data` is the SHA-256 of what each client
        holds, where a task trains the run. `signer` signs the log from its first leaf on.
        """
        start = Beginning(
            policy, layout, initial, clients, config, created_by, at, settings_digest, trainer, signer, data
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
        patience: float | None = None,
    ) -> Ledger:
        """A run that exists. For writing, it is locked and tidied.

        `signer` signs the log; a run whose log has been signed is not written without one.

        `keys` is the folder of the operator's keys, in which tombstones are kept and looked up: for whoever left
        this run and is in it again, because it was restored from a backup, a request is placed. Without `keys` none
        are kept, as is right for a copy that is only tried out.

        `shared` opens it for short writes beside the process that holds the lock, such as placing a request.

        `patience` is how many seconds a purge waits for processes that read the run; None for a while.
        """
        path = directory / database.NAME
        refuse_unsafe(directory)
        if not path.exists():
            raise RunMissing(f"{directory} holds no run; `disavow train CONFIG.toml --run {directory}` starts one")
        lock = Lock(directory) if write else None
        engine = None
        try:
            if write:
                make_private(directory)
            database.check_revision(directory)
            engine = database.connect(path, write=write or shared)
            ledger = cls(directory, engine, lock, signer, keys, patience)
            if write:
                ledger._take_up_log()
                ledger.remove_leftovers()
            if write or shared:
                ledger._take_up_tombstones()
        except BaseException:
            if engine is not None:
                engine.dispose()
            if lock is not None:
                lock.release()
            raise
        return ledger

    def allow_short_writes(self, keys: Path) -> None:
        """Let a ledger that was opened for reading write beside the process that holds the lock, as `shared` does.

        Args:
            keys: The folder of the operator's keys; see `open`.

        """
        self._engine.dispose()
        self._engine, self._keys = database.connect(self.directory / database.NAME, write=True), keys
        self._take_up_tombstones()

    @property
    def writable(self) -> bool:
        """Whether this process holds the run's lock."""
        return self._lock is not None

    @contextmanager
    def locked(self, signer: Signer | None, *, patience: float | None = None) -> Iterator[None]:
        """Hold the lock of a run that is open for short writes, as `open` with `write` does.

        Raises:
            RunInUse: Another process holds it.

        """
        if self._lock is not None:
            yield
            return
        self._lock, self._signer = Lock(self.directory), signer
        self._patience = database.BUSY_SECONDS if patience is None else patience
        try:
            make_private(self.directory)
            self._take_up_log()
            self.remove_leftovers()
            self._take_up_tombstones()
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

    def _take_up_tombstones(self) -> None:
        """Let everybody ask again who left and is in the run again; and list who left while nobody kept a list."""
        if self._keys is None:
            return
        with self._connect() as connection:
            self.restored = restored(connection, self._keys, directory=self.directory, write=True)
        if self.restored.clients:
            key = tombstone_key(self._keys, run=self.directory)
            self.place_requests(self.restored.clients, key=key, at=datetime.now(UTC), note=RESTORED)
        if not self._judged_tombstones()[1].keys() <= self._listed_tombstones():  # the keys are older, or others
            self.keep_tombstones()

    def keep_tombstones(self) -> None:
        """List the tombstones of all who are withdrawn beside the operator's keys, durably."""
        key, stones = self._judged_tombstones()
        if self._keys is not None:
            remember(self._keys, self.run_id, key, list(stones))

    def _judged_tombstones(self) -> tuple[str, dict[bytes, None]]:
        """The fingerprint of the tombstone key, and the tombstones of all who are withdrawn, in order."""
        with self._connect() as connection:
            key = connection.execute(sa.select(run.c.tombstone_key)).scalar_one()
            judged = sa.select(requests.c.tombstone).where(requests.c.erasure.is_not(None)).order_by(requests.c.id)
            return key, dict.fromkeys(connection.execute(judged).scalars())

    @property
    def signer(self) -> Signer | None:
        """What signs this run's log and proofs."""
        return self._signer

    def remove_leftovers(self) -> None:
        """Delete model and update files that no row keeps: superseded ones, leavers', and those of rounds never
        recorded, which could be a second draw of the same round. And proofs that were half written.

        A commit that failed may have reached SQLite's log all the same, and a recovery then brings its rows back,
        with the files they name. The next commit that succeeds takes its place in the log: so there is one first.
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

    def _leftovers(self) -> tuple[list[Path], list[Path]]:
        """Model files and update files that no row keeps."""
        with self._connect() as connection:
            named = set(connection.execute(sa.select(models.c.digest).where(models.c.present)).scalars())
            kept = updates.named(connection)
        return self.store.leftovers(named), self.updates.leftovers(kept)

    def close(self) -> None:
        """Let go of the run and of its lock. Closing twice is closing once."""
        self._engine.dispose()
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
        with database.room_to_write(self.directory), database.writing(self._engine) as connection:
            yield connection

    # -- writing -------------------------------------------------------------------------------------------

    def register(self, ids: Sequence[str], *, key: bytes) -> None:
        """Make clients known. Registering one twice is registering it once; a leaver is refused.

        `key` is the operator's tombstone key: only with it can a leaver be recognised.
        """
        with self._begin() as connection:
            refuse_leavers(connection, ids, key, listed=self._listed_tombstones())
            registry.register(connection, ids)

    def keep_anchors(self, told: Anchors) -> None:
        """Keep the fixed clusters of this run; places of clients who are not in it are left out."""
        with self._begin() as connection:
            registry.store_anchors(connection, told)

    def has_left(self, client: str, *, key: bytes) -> bool:
        """Whether a client is listed beside the operator's keys as having left this run."""
        return tombstone(key, self.run_id, client) in self._listed_tombstones()

    def _listed_tombstones(self) -> frozenset[bytes]:
        return frozenset() if self._keys is None else frozenset(listed(self._keys, self.run_id)[1])

    def place_requests(
        self,
        ids: Sequence[str],
        *,
        key: bytes,
        at: datetime,
        stream_round: int | None = None,
        openings: Path | None = None,
        note: str = "",
    ) -> tuple[int, ...]:
        """Make erasure requests wait for whoever holds the run; their numbers. See `requests.place`."""
        folder = None if openings is None else str(openings.absolute())
        with self._begin() as connection:
            return place(connection, ids, key=key, at=at, stream_round=stream_round, openings=folder, note=note)

    def cancel_request(self, client: str, *, at: datetime) -> int:
        """Cancel the request of a client that waits; its number. See `requests.cancel`."""
        with self._begin() as connection:
            return cancel(connection, client, at=at)

    def participation_key(self, key: bytes) -> bytes:
        """Derive the key that decides who takes part from the operator's key; see `keys.participation_key`.

        The run goes by that key from then on. One that is open for reading checks it and remembers nothing.
        """
        if self._lock is None:
            with self._connect() as connection:
                return participation_key(key, check_key(connection, key))
        with self._begin() as connection:
            return participation_key(key, bind_key(connection, key))

    def purge(self) -> bool:
        """Make sure that deleted rows are gone from the files too, not only from the tables.

        SQLite overwrites what it deletes, but copies that page splits left behind, and the log, keep old bytes:
        so the file is written anew and the log emptied. False if a reader is in the way; then try again later.
        """
        deadline = time.monotonic() + self._patience
        with database.room_to_write(self.directory):
            if not self._truncate_wal(deadline):
                return False
            with closing(self._engine.raw_connection()) as connection:
                connection.cursor().execute("VACUUM")
            return self._truncate_wal(deadline)

    def _truncate_wal(self, deadline: float) -> bool:
        """Empty the log into the file; False where somebody reads until the deadline."""
        with (
            closing(self._engine.raw_connection()) as connection,
            database.busy_for(connection, deadline - time.monotonic()) as cursor,
        ):
            busy, *_ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

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
        with self._recording(turn, new.after, new.kept, compress=new.compress) as (connection, digest, sizes):
            record = new.recorded(digest)
            rounds.insert(connection, record, run_id=self.run_id, policy=self.policy, sizes=sizes, noted=new.noted)
            if new.anchors is not None:
                registry.store_anchors(connection, new.anchors)
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
        with self._recording(turn, after, kept, compress=compress) as (connection, digest, sizes):
            record = Rebuilt(number, attempt, before, digest, mechanism, source, epochs, slots, at)
            noted = {"seconds": seconds, "trainer": trainer}
            rebuilt.insert(connection, record, run_id=self.run_id, policy=self.policy, noted=noted, sizes=sizes)
        return record

    @contextmanager
    def _recording(
        self, turn: tuple[int, int, str], after: Vector, kept: Mapping[bytes, Vector], *, compress: bool
    ) -> Iterator[tuple[sa.Connection, str, Mapping[bytes, int]]]:
        """Store the files of a round durably, then open the transaction for the rows that name them.

        Yields its connection, the digest of the model, and the bytes that each update takes.
        """
        with self._connect() as connection:
            self._refuse_out_of_turn(connection, *turn)
        try:
            with database.room_to_write(self.directory):
                digest, stored_bytes = self.store.write(self.layout, after)
                sizes = self.updates.write(kept, compress=compress)
            with self._begin() as connection:
                self._refuse_out_of_turn(connection, *turn)
                known = models.update().where(models.c.digest == digest).values(present=True, thinned=False)
                if connection.execute(known).rowcount == 0:
                    connection.execute(models.insert().values(digest=digest, stored_bytes=stored_bytes))
                yield connection, digest, sizes
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
        """Remember how well a standing round's model does."""
        with self._begin() as connection:
            rounds.note_evaluation(connection, number, evaluation)

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
        self.store.remove([self.store.path(digest) for digest in sorted(gone)])
