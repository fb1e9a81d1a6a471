"""The ledger of one run: what was promised, who took part in which cluster, and every model.

A round is one transaction. Its model file is durable before a row names it. Everything else reads.
"""

from __future__ import annotations

import glob
import math
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from disavow.domain import Cluster, ErasureRequest, Evaluation, Layout, Member, Policy, Round, Slot
from disavow.errors import LedgerError, RunError, RunExists, RunMissing
from disavow.ledger import database, rows
from disavow.ledger.lock import Lock
from disavow.ledger.models import ModelStore, Vector, sync_folder, write_durably
from disavow.ledger.requests import listed, place, refuse_leavers
from disavow.ledger.schema import (
    clients,
    clusters,
    evaluations,
    memberships,
    models,
    requests,
    rounds,
    run,
    slots,
    withdrawals,
)

CONFIG = "config.toml"
MODELS = "models"
_CLIENT_NUMBER_BITS = 63
_RECENT = 10
_BATCH = 500
"""How many values one statement may carry; SQLite allows at least 999."""


@dataclass(frozen=True)
class RoundSummary:
    """A recorded round in one line: what a table of rounds shows."""

    number: int
    attempt: int
    standing: bool
    participants: int
    clusters: int
    delta: float
    spread: float
    after: str
    recorded_at: datetime
    evaluation: Evaluation | None


class Ledger:
    """A run directory, opened. Use it as a context manager."""

    def __init__(self, directory: Path, engine: sa.Engine, lock: Lock | None) -> None:
        self.directory = directory
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
        except (sa.exc.SQLAlchemyError, ValueError, TypeError) as error:
            raise LedgerError(
                f"the ledger of {directory} is damaged; `disavow fsck {directory}` says more"
            ) from error
        self.store = ModelStore(directory / MODELS)

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
    ) -> Ledger:
        """A new run, opened for writing. The directory appears whole, or not at all.

        In a directory that was there, empty, the ledger file appears last.
        """
        refuse_existing(directory)
        directory = directory.resolve()
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{directory} cannot be made: {error.strerror}") from None
        prefix = f".{directory.name}.new-"
        for stale in directory.parent.glob(f"{glob.escape(prefix)}*"):
            shutil.rmtree(stale, ignore_errors=True)
        workshop = directory.with_name(prefix + secrets.token_hex(4))
        try:
            with database.room_to_write(directory):
                cls._furnish(workshop, policy, layout, initial, clients, config, created_by, at)
            if directory.exists():
                # an empty directory stays the one it is, or whoever stands in it would be left nowhere
                for name in (CONFIG, MODELS, database.NAME):
                    (workshop / name).rename(directory / name)
                workshop.rmdir()
            else:
                workshop.rename(directory)
        except BaseException:
            shutil.rmtree(workshop, ignore_errors=True)
            raise
        sync_folder(directory.parent)
        return cls.open(directory, write=True)

    @staticmethod
    def _furnish(
        workshop: Path,
        policy: Policy,
        layout: Layout,
        initial: Vector,
        ids: Iterable[str],
        config: str,
        created_by: str,
        at: datetime,
    ) -> None:
        """Everything a new run starts with, durable, in a folder that nobody looks at yet."""
        store = ModelStore(workshop / MODELS)
        store.folder.mkdir(parents=True)
        write_durably(workshop / CONFIG, config.encode())
        digest, stored_bytes = store.write(layout, initial)
        row: rows.Row = {
            "run_id": secrets.token_hex(16),
            "created_at": rows.time_to_text(at),
            "created_by": created_by,
            "policy": rows.policy_to_json(policy),
            "layout": layout.to_json(),
            "initial_model": digest,
        }
        engine = database.connect(workshop / database.NAME, write=True)
        try:
            database.migrate(engine)
            with engine.begin() as connection:
                connection.execute(models.insert().values(digest=digest, stored_bytes=stored_bytes))
                connection.execute(run.insert().values(**row, digest=rows.run_digest(row)))
                _register(connection, ids)
        finally:
            engine.dispose()
        sync_folder(workshop)

    @classmethod
    def open(cls, directory: Path, *, write: bool = False, shared: bool = False) -> Ledger:
        """A run that exists. For writing, it is locked, brought to the newest format and tidied.

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
            ledger = cls(directory, engine, lock)
            if write:
                ledger.remove_leftovers()
        except BaseException:
            if engine is not None:
                engine.dispose()
            if lock is not None:
                lock.release()
            raise
        return ledger

    def remove_leftovers(self) -> None:
        """Delete model files that no row keeps: superseded ones, and those of rounds never recorded.

        The latter could be a second draw of the same round.
        """
        with self._engine.connect() as connection:
            named = set(connection.execute(sa.select(models.c.digest).where(models.c.present)).scalars())
        self.store.remove(self.store.leftovers(named))

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
        with database.room_to_write(self.directory), self._engine.begin() as connection:
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
            _register(connection, ids)

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
    ) -> Round:
        """Store a round and its model: all of it, or nothing. Only the next round can be recorded.

        `seconds` is what it took, from broadcast to now.
        """
        with self._engine.connect() as connection:
            self._refuse_out_of_turn(connection, number, attempt, before)
        with database.room_to_write(self.directory):
            digest, stored_bytes = self.store.write(self.layout, after)
        record = Round(number, attempt, before, digest, delta, clusters_of_round, at)
        try:
            with self.transaction() as connection:
                self._refuse_out_of_turn(connection, number, attempt, before)
                known = models.update().where(models.c.digest == digest).values(present=True)
                if connection.execute(known).rowcount == 0:
                    connection.execute(models.insert().values(digest=digest, stored_bytes=stored_bytes))
                self._insert(connection, record, seconds)
        except BaseException:
            self.remove_leftovers()  # the model of a round that was not recorded must not stay
            raise
        return record

    def _refuse_out_of_turn(self, connection: sa.Connection, number: int, attempt: int, before: str) -> None:
        expected = _next(connection)
        if (number, attempt) != expected or before != self._digest_before(connection, number):
            raise LedgerError(
                f"round {number}, attempt {attempt} does not follow what the ledger holds "
                f"(next is round {expected[0]}, attempt {expected[1]}); nothing was recorded"
            )

    def _insert(self, connection: sa.Connection, record: Round, seconds: float | None) -> None:
        members = [slot.member.client for slot in record.slots if slot.member is not None]
        parts = rows.rows_of(record, run_id=self.run_id, numbers=_numbers(connection, members))
        header: rows.Row = {
            "number": record.number,
            "attempt": record.attempt,
            "before": record.before,
            "after": record.after,
            "delta": record.delta,
            "participants": len(record.slots),
            "clusters": len(record.clusters),
            "recorded_at": rows.time_to_text(record.recorded_at),
            "standing": True,
            "seconds": seconds,
        }
        header["digest"] = rows.round_digest(self.run_id, header, parts["clusters"], parts["slots"])
        round_id = connection.execute(rounds.insert().values(header).returning(rounds.c.id)).scalar_one()
        for table in (clusters, slots, memberships):
            connection.execute(table.insert(), [{"round_id": round_id, **row} for row in parts[table.name]])

    def note_evaluation(self, number: int, evaluation: Evaluation) -> None:
        """Remember how well a standing round's model does."""
        with self.transaction() as connection:
            round_id = _standing(connection, number).id
            connection.execute(evaluations.delete().where(evaluations.c.round_id == round_id))
            loss = evaluation.loss if math.isfinite(evaluation.loss) else None
            connection.execute(
                evaluations.insert().values(round_id=round_id, accuracy=evaluation.accuracy, loss=loss)
            )

    # -- reading -------------------------------------------------------------------------------------------

    def next_round(self) -> tuple[int, int]:
        """The number and the attempt of the round that comes next."""
        with self._engine.connect() as connection:
            return _next(connection)

    def clients(self) -> tuple[str, ...]:
        """The ids of all clients still in, sorted."""
        query = sa.select(clients.c.id).where(clients.c.number.not_in(_gone())).order_by(clients.c.id)
        with self._engine.connect() as connection:
            return tuple(connection.execute(query).scalars())

    def strangers(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Those of these who are not clients of the run, or have been withdrawn from it."""
        with self._engine.connect() as connection:
            known = _numbers(connection, ids)
            gone: set[int] = set(connection.execute(_gone()).scalars())
        return tuple(client for client in ids if client not in known or known[client] in gone)

    def requests(self, numbers: Sequence[int] | None = None) -> tuple[ErasureRequest, ...]:
        """Erasure requests with what became of them: all, or those of these numbers."""
        with self._engine.connect() as connection:
            return listed(connection, numbers)

    def seconds_per_round(self) -> float | None:
        """What a round took lately: the mean over the last ten that were measured."""
        last = sa.select(rounds.c.seconds).where(rounds.c.seconds.is_not(None)).order_by(rounds.c.id.desc())
        with self._engine.connect() as connection:
            found = list(connection.execute(last.limit(_RECENT)).scalars())
        return sum(found) / len(found) if found else None

    def model_before(self, number: int) -> Vector:
        """The model broadcast in a round: a standing one, or the one that comes next."""
        return self.store.read(self.layout, self.digest_before(number))

    def model_after(self, number: int) -> Vector:
        """The model that a standing round produced."""
        with self._engine.connect() as connection:
            digest = _standing(connection, number).after
        return self.store.read(self.layout, digest)

    def digest_before(self, number: int) -> str:
        """The digest of the model broadcast in a round."""
        with self._engine.connect() as connection:
            return self._digest_before(connection, number)

    def _digest_before(self, connection: sa.Connection, number: int) -> str:
        if number == 1:
            return self.initial_model
        after: str = _standing(connection, number - 1).after
        return after

    def rounds_with(self, client: str) -> tuple[int, ...]:
        """The numbers of the standing rounds in which a client took part; answered from an index."""
        query = (
            sa.select(rounds.c.number)
            .join_from(clients, memberships, clients.c.number == memberships.c.client)
            .join(rounds, rounds.c.id == memberships.c.round_id)
            .where(clients.c.id == client, rounds.c.standing)
            .order_by(rounds.c.number)
        )
        with self._engine.connect() as connection:
            return tuple(connection.execute(query).scalars())

    def membership(self, number: int) -> tuple[tuple[str, ...], ...]:
        """Who is in which cluster of a standing round, leavers left out."""
        return tuple(cluster.clients for cluster in self.round(number).clusters)

    def round(self, number: int) -> Round:
        """A standing round, whole."""
        with self._engine.connect() as connection:
            return _load(connection, _standing(connection, number))

    def summaries(self) -> tuple[RoundSummary, ...]:
        """All recorded rounds, superseded ones too, one line each, in the order in which they were recorded."""
        with self._engine.connect() as connection:
            return tuple(_summary(row) for row in connection.execute(_summary_query()))

    def summary(self, number: int) -> RoundSummary:
        """A standing round in one line."""
        with self._engine.connect() as connection:
            round_id = _standing(connection, number).id
            return _summary(connection.execute(_summary_query().where(rounds.c.id == round_id)).one())

    def unevaluated(self) -> tuple[int, ...]:
        """The numbers of the standing rounds whose model has not been evaluated."""
        query = (
            sa.select(rounds.c.number)
            .outerjoin(evaluations, evaluations.c.round_id == rounds.c.id)
            .where(rounds.c.standing, evaluations.c.round_id.is_(None))
            .order_by(rounds.c.number)
        )
        with self._engine.connect() as connection:
            return tuple(connection.execute(query).scalars())

    def stored_bytes(self) -> int:
        """What the run takes on disk, SQLite's working files left out."""
        found = (path for path in self.directory.rglob("*") if not path.name.endswith(("-wal", "-shm")))
        return sum(path.stat().st_size for path in found if path.is_file())


def _gone() -> sa.Select[int]:
    """The numbers of clients who are withdrawn, but not deleted yet."""
    return sa.select(requests.c.client).where(requests.c.client.is_not(None), requests.c.erasure.is_not(None))


def refuse_existing(directory: Path) -> None:
    """A run starts in a directory that does not exist yet, or is empty."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RunExists(
            f"{directory} exists and is never overwritten; `disavow resume {directory}` continues a run"
        )


def _summary_query() -> sa.Select[Any]:
    spread = sa.select(sa.func.max(clusters.c.spread)).where(clusters.c.round_id == rounds.c.id)
    return (
        sa.select(rounds, spread.scalar_subquery().label("spread"), evaluations.c.accuracy, evaluations.c.loss)
        .outerjoin(evaluations, evaluations.c.round_id == rounds.c.id)
        .order_by(rounds.c.id)
    )


def _summary(row: sa.Row[Any]) -> RoundSummary:
    return RoundSummary(
        number=row.number,
        attempt=row.attempt,
        standing=row.standing,
        participants=row.participants,
        clusters=row.clusters,
        delta=row.delta,
        spread=row.spread,
        after=row.after,
        recorded_at=datetime.fromisoformat(row.recorded_at),
        evaluation=None if row.accuracy is None else Evaluation(row.accuracy, _number(row.loss)),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _next(connection: sa.Connection) -> tuple[int, int]:
    last = connection.execute(sa.select(sa.func.max(rounds.c.number)).where(rounds.c.standing)).scalar() or 0
    attempts = sa.select(sa.func.count()).select_from(rounds).where(rounds.c.number == last + 1)
    return last + 1, connection.execute(attempts).scalar_one() + 1


def _standing(connection: sa.Connection, number: int) -> sa.Row[Any]:
    query = sa.select(rounds).where(rounds.c.number == number, rounds.c.standing)
    found = connection.execute(query).one_or_none()
    if found is None:
        raise LedgerError(f"the ledger holds no standing round {number}")
    return found


def _register(connection: sa.Connection, ids: Iterable[str]) -> None:
    wanted = sorted(set(ids))
    if any(not client for client in wanted):
        raise LedgerError("a client id is a text of at least one character")
    missing = sorted(set(wanted) - _numbers(connection, wanted).keys())
    if missing:
        new = [{"number": secrets.randbits(_CLIENT_NUMBER_BITS), "id": client} for client in missing]
        connection.execute(clients.insert(), new)


def _numbers(connection: sa.Connection, ids: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(ids), _BATCH):
        query = sa.select(clients.c.id, clients.c.number).where(clients.c.id.in_(ids[start : start + _BATCH]))
        found.update((row.id, row.number) for row in connection.execute(query))
    return found


def _load(connection: sa.Connection, header: sa.Row[Any]) -> Round:
    members = (
        sa.select(slots.c.neighbours, clients.c.id, memberships.c.samples, memberships.c.update_digest)
        .outerjoin(memberships, (memberships.c.round_id == slots.c.round_id) & (memberships.c.slot == slots.c.slot))
        .outerjoin(withdrawals, (withdrawals.c.round_id == slots.c.round_id) & (withdrawals.c.slot == slots.c.slot))
        .outerjoin(clients, (clients.c.number == memberships.c.client) & withdrawals.c.slot.is_(None))
        .where(slots.c.round_id == header.id)
        .order_by(slots.c.slot)
    )
    loaded = [
        Slot(
            None if row.id is None else Member(row.id, row.samples, row.update_digest),
            rows.unpack_slots(row.neighbours, header.participants),
        )
        for row in connection.execute(members)
    ]
    groups = sa.select(clusters).where(clusters.c.round_id == header.id).order_by(clusters.c.position)
    return Round(
        number=header.number,
        attempt=header.attempt,
        before=header.before,
        after=header.after,
        delta=header.delta,
        clusters=tuple(
            Cluster(row.weight, row.spread, tuple(loaded[row.first_slot : row.first_slot + row.size]))
            for row in connection.execute(groups)
        ),
        recorded_at=datetime.fromisoformat(header.recorded_at),
    )
