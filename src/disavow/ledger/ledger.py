"""The ledger of one run: what was promised, who took part in which cluster, and every model.

A round is one transaction. Its model file is durable before a row names it. Everything else reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import sqlalchemy as sa

from disavow.domain import (
    Cluster,
    ErasureRequest,
    Evaluation,
    Layout,
    Member,
    Policy,
    Rebuilt,
    Round,
    Slot,
    model_name,
)
from disavow.errors import IntegrityError, LedgerError, RunMissing
from disavow.ledger import clients as registry
from disavow.ledger import database, log, rebuilt, rounds, rows, updates
from disavow.ledger.creation import MODELS, Beginning, make
from disavow.ledger.lock import Lock
from disavow.ledger.models import ModelStore, Vector
from disavow.ledger.requests import listed, place, refuse_leavers
from disavow.ledger.rounds import RoundSummary
from disavow.ledger.schema import models, run
from disavow.ledger.taking_up import take_up
from disavow.ledger.updates import UPDATES, KeptRound, UpdateStore
from disavow.privacy.events import Event
from disavow.proof.notes import Signer

Recorded = TypeVar("Recorded", Round, Rebuilt)


class Ledger:
    """A run directory, opened. Use it as a context manager."""

    def __init__(self, directory: Path, engine: sa.Engine, lock: Lock | None, signer: Signer | None = None) -> None:
        self.directory = directory
        self._signer = signer
        self._engine = engine
        self._lock = lock
        try:
            with engine.connect() as connection:
                row = connection.execute(sa.select(run)).one()
            self.run_id: str = row.run_id
            self.created_at = datetime.fromisoformat(row.created_at)
            self.created_by: str = row.created_by
            self.policy: Policy = rows.policy_from_json(row.policy)
            self.layout = Layout.from_json(row.layout)
            self.initial_model: str = row.initial_model
            self.settings_digest: str = row.settings_digest
        except (sa.exc.NoResultFound, sa.exc.MultipleResultsFound, ValueError, TypeError) as error:
            raise LedgerError(
                f"the ledger of {directory} is damaged; `disavow fsck {directory}` says more"
            ) from error
        self.store = ModelStore(directory / MODELS)
        self.updates = UpdateStore(directory / UPDATES)

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
        signer: Signer | None = None,
    ) -> Ledger:
        """A new run, opened for writing. The directory appears whole, or not at all.

        `settings_digest` binds `config`, the text of the settings file; "" leaves it unbound. `signer` signs the
        log from its first leaf on.
        """
        start = Beginning(policy, layout, initial, clients, config, created_by, at, settings_digest, signer)
        make(directory, start)
        return cls.open(directory, write=True, signer=signer)

    @classmethod
    def open(
        cls, directory: Path, *, write: bool = False, shared: bool = False, signer: Signer | None = None
    ) -> Ledger:
        """A run that exists. For writing, it is locked, brought to the newest format and tidied.

        `signer` signs the log; a run whose log has been signed is not written without one.

        `shared` opens it for short writes beside the process that holds the lock, such as placing a request.
        """
        path = directory / database.NAME
        if not path.is_file():
            raise RunMissing(f"{directory} holds no run; `disavow train CONFIG.toml --run {directory}` starts one")
        lock = Lock(directory) if write else None
        engine = None
        try:
            found = database.check_revision(directory)
            if found != database.HEAD and not write:
                raise database.too_old(directory, found)
            engine = database.connect(path, write=write or shared)
            if found != database.HEAD:
                database.migrate(engine)
            ledger = cls(directory, engine, lock, signer)
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

    def _take_up_log(self) -> None:
        with self.snapshot() as connection:
            current = log.key_of(connection)
            ready = log.head_size(connection) > 0 and current == (self._signer.public if self._signer else None)
        if not ready:
            with self.transaction() as connection:
                take_up(connection, self._signer, at=log.time_of(datetime.now(UTC)))

    @property
    def signer(self) -> Signer | None:
        """What signs this run's log and proofs."""
        return self._signer

    def sign_head(self, connection: sa.Connection) -> None:
        """Sign what the transaction has appended to the log, if there is a key."""
        if self._signer is not None:
            log.sign_head(connection, self.run_id, self._signer)

    def remove_leftovers(self) -> None:
        """Delete model and update files that no row keeps: superseded ones, leavers', and those of rounds never
        recorded, which could be a second draw of the same round.
        """
        with self.snapshot() as connection:
            named = set(connection.execute(sa.select(models.c.digest).where(models.c.present)).scalars())
            kept = updates.named(connection)
        self.store.remove(self.store.leftovers(named))
        self.updates.remove(self.updates.leftovers(kept))

    def close(self) -> None:
        """Let go of the run. Closing twice is closing once."""
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
    def transaction(self) -> Iterator[sa.Connection]:
        """Several steps at once: all of them, or none."""
        with database.room_to_write(self.directory), database.writing(self._engine) as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Several looks at one state of the ledger."""
        with self._engine.connect() as connection:
            yield connection

    # -- writing -------------------------------------------------------------------------------------------

    def register(self, ids: Sequence[str], *, key: bytes) -> None:
        """Make clients known. Registering one twice is registering it once; a leaver is refused.

        `key` is the operator's tombstone key: only with it can a leaver be recognised.
        """
        with self.transaction() as connection:
            refuse_leavers(connection, ids, key)
            registry.register(connection, ids)

    def place_requests(
        self, ids: Sequence[str], *, key: bytes, at: datetime, stream_round: int | None = None
    ) -> tuple[int, ...]:
        """Make erasure requests wait for whoever holds the run; their numbers. See `requests.place`."""
        with self.transaction() as connection:
            return place(connection, ids, key=key, at=at, stream_round=stream_round)

    def purge(self) -> bool:
        """Make sure that deleted rows are gone from the files too, not only from the tables.

        SQLite overwrites what it deletes, but copies that page splits left behind, and the log, keep old bytes:
        so the file is written anew and the log emptied. False if a reader is in the way; then try again later.
        """
        with database.room_to_write(self.directory):
            if not self._checkpoint():
                return False
            with closing(self._engine.raw_connection()) as connection:
                connection.cursor().execute("VACUUM")
            return self._checkpoint()

    def _checkpoint(self) -> bool:
        with closing(self._engine.raw_connection()) as connection:
            busy, *_ = connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def record(
        self,
        *,
        number: int,
        attempt: int,
        before: str,
        after: Vector,
        delta: float,
        clusters_of_round: tuple[Cluster, ...],
        at: datetime,
        seconds: float | None = None,
        repeats: bool = False,
        kept: Mapping[bytes, Vector] | None = None,
    ) -> Round:
        """Store a round and its model: all of it, or nothing. Only the next round can be recorded.

        `seconds` is what it took, from broadcast to now; `kept` are the updates to keep, by their digests.
        `repeats` says that its clusters are those of the round before, less leavers: it never breaks first.
        """

        def insert(connection: sa.Connection, digest: str, sizes: Mapping[bytes, int]) -> Round:
            record = Round(number, attempt, before, digest, delta, clusters_of_round, at)
            measured = {"seconds": seconds, "repeats": repeats}
            rounds.insert(connection, record, run_id=self.run_id, policy=self.policy, sizes=sizes, noted=measured)
            return record

        return self._store((number, attempt, before), after, kept or {}, insert)

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
    ) -> Rebuilt:
        """Store a rebuilt round, its model and all contributions to it: see `domain.Rebuilt`."""

        def insert(connection: sa.Connection, digest: str, sizes: Mapping[bytes, int]) -> Rebuilt:
            record = Rebuilt(number, attempt, before, digest, mechanism, source, epochs, slots, at)
            policy = self.policy
            rebuilt.insert(connection, record, run_id=self.run_id, policy=policy, seconds=seconds, sizes=sizes)
            return record

        return self._store((number, attempt, before), after, kept, insert)

    def _store(
        self,
        turn: tuple[int, int, str],
        after: Vector,
        kept: Mapping[bytes, Vector],
        insert: Callable[[sa.Connection, str, Mapping[bytes, int]], Recorded],
    ) -> Recorded:
        """Files first, durable; then the rows that name them, in one transaction."""
        with self.snapshot() as connection:
            self._refuse_out_of_turn(connection, *turn)
        try:
            with database.room_to_write(self.directory):
                digest, stored_bytes = self.store.write(self.layout, after)
                sizes = self.updates.write(kept)
            with self.transaction() as connection:
                self._refuse_out_of_turn(connection, *turn)
                known = models.update().where(models.c.digest == digest).values(present=True, thinned=False)
                if connection.execute(known).rowcount == 0:
                    connection.execute(models.insert().values(digest=digest, stored_bytes=stored_bytes))
                record = insert(connection, digest, sizes)
                self.sign_head(connection)
        except BaseException:
            self.remove_leftovers()  # the model of a round that was not recorded must not stay
            raise
        return record

    def _refuse_out_of_turn(self, connection: sa.Connection, number: int, attempt: int, before: str) -> None:
        expected = rounds.next_round(connection)
        if (number, attempt) != expected or before != self._digest_before(connection, number):
            raise LedgerError(
                f"round {number}, attempt {attempt} does not follow what the ledger holds "
                f"(next is round {expected[0]}, attempt {expected[1]}); nothing was recorded"
            )

    def note_evaluation(self, number: int, evaluation: Evaluation) -> None:
        """Remember how well a standing round's model does."""
        with self.transaction() as connection:
            rounds.note_evaluation(connection, number, evaluation)

    # -- reading -------------------------------------------------------------------------------------------

    def next_round(self) -> tuple[int, int]:
        """The number and the attempt of the round that comes next."""
        with self.snapshot() as connection:
            return rounds.next_round(connection)

    def clients(self) -> tuple[str, ...]:
        """The ids of all clients still in, sorted."""
        with self.snapshot() as connection:
            return registry.still_in(connection)

    def strangers(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Those of these who are not clients of the run, or have been withdrawn from it."""
        with self.snapshot() as connection:
            return registry.strangers(connection, ids)

    def requests(self, numbers: Sequence[int] | None = None) -> tuple[ErasureRequest, ...]:
        """Erasure requests with what became of them: all, or those of these numbers."""
        with self.snapshot() as connection:
            return listed(connection, numbers)

    def model_before(self, number: int) -> Vector:
        """The model broadcast in a round: a standing one, or the one that comes next."""
        return self._recall(number - 1, self.digest_before(number))

    def model_after(self, number: int) -> Vector:
        """The model that a standing round produced."""
        with self.snapshot() as connection:
            digest = rounds.standing_round(connection, number).after
        return self._recall(number, digest)

    def _recall(self, number: int, digest: str) -> Vector:
        """The model that a round produced; where it was thinned, the error says so."""
        try:
            return self.store.recall(self.layout, digest)
        except IntegrityError:
            with self.snapshot() as connection:
                gone = connection.execute(sa.select(models.c.thinned).where(models.c.digest == digest)).scalar()
            if not gone:
                raise
        raise LedgerError(
            f"{model_name(number)} is no longer there: it was thinned to keep to ledger.retention, the budget for "
            "checkpoints; the newest model and the initial one always stay"
        )

    def digest_before(self, number: int) -> str:
        """The digest of the model broadcast in a round."""
        with self.snapshot() as connection:
            return self._digest_before(connection, number)

    def _digest_before(self, connection: sa.Connection, number: int) -> str:
        if number == 1:
            return self.initial_model
        after: str = rounds.standing_round(connection, number - 1).after
        return after

    def rounds_with(self, client: str) -> tuple[int, ...]:
        """The numbers of the standing rounds in which a client took part; answered from an index."""
        with self.snapshot() as connection:
            return rounds.rounds_with(connection, client)

    def membership(self, number: int) -> tuple[tuple[str, ...], ...]:
        """Who is in which cluster of a standing round, leavers left out."""
        with self.snapshot() as connection:
            return rounds.membership(connection, number)

    def newest_membership(self) -> tuple[tuple[str, ...], ...]:
        """The same of the newest standing round that has clusters: a rebuilt one has none."""
        with self.snapshot() as connection:
            return rounds.newest_membership(connection)

    def kept_rounds(self, first: int) -> list[KeptRound]:
        """The rounds whose kept updates a rebuild from `first` on goes through; see `updates.to_rebuild_from`."""
        with self.snapshot() as connection:
            return updates.to_rebuild_from(connection, first)

    def kept_update(self, member: Member) -> Vector:
        """An update that is kept."""
        return self.updates.read(self.layout.size, member.update_digest)

    def round(self, number: int) -> Round:
        """A standing round, whole."""
        with self.snapshot() as connection:
            return rounds.load(connection, number)

    def summaries(self) -> tuple[RoundSummary, ...]:
        """All recorded rounds, superseded ones too, one line each, in the order in which they were recorded."""
        with self.snapshot() as connection:
            return rounds.summaries(connection)

    def summary(self, number: int) -> RoundSummary:
        """A standing round in one line."""
        with self.snapshot() as connection:
            return rounds.summary(connection, number)

    def unevaluated(self) -> tuple[int, ...]:
        """The numbers of the standing rounds whose model has not been evaluated."""
        with self.snapshot() as connection:
            return rounds.unevaluated(connection)

    def events(self) -> tuple[Event, ...]:
        """What every executed round released, superseded ones too, in the order in which they were recorded."""
        with self.snapshot() as connection:
            return rounds.executed(connection)

    def latest_samples(self) -> dict[str, int]:
        """How many samples each participant of the round recorded last held; none before the first."""
        with self.snapshot() as connection:
            return rounds.latest_samples(connection)

    def seconds_per_round(self) -> float | None:
        """What a round took lately; None before any was measured."""
        with self.snapshot() as connection:
            return rounds.seconds_per_round(connection)

    def stored_bytes(self) -> int:
        """What the run takes on disk, SQLite's working files left out."""
        found = (path for path in self.directory.rglob("*") if not path.name.endswith(("-wal", "-shm")))
        return sum(path.stat().st_size for path in found if path.is_file())
