"""The ledger of one run: what was promised, who took part in which cluster, and every model.

A round is one transaction. Its model file is durable before a row names it. Everything else reads.
"""

from __future__ import annotations

import math
import secrets
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from disavow.domain import Cluster, Evaluation, Layout, Member, Policy, Round, Slot
from disavow.errors import LedgerError, LedgerVersion, RunExists, RunMissing
from disavow.ledger import database, rows
from disavow.ledger.lock import Lock
from disavow.ledger.models import ModelStore, Vector, sync_folder, write_durably
from disavow.ledger.schema import clients, clusters, evaluations, memberships, models, rounds, run, slots

CONFIG = "config.toml"
MODELS = "models"
_CLIENT_NUMBER_BITS = 63
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
        with engine.connect() as connection:
            row = connection.execute(sa.select(run)).one()
        self.run_id: str = row.run_id
        self.created_at = datetime.fromisoformat(row.created_at)
        self.created_by: str = row.created_by
        self.policy: Policy = rows.policy_from_json(row.policy)
        self.layout = Layout.from_json(row.layout)
        self.initial_model: str = row.initial_model
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
        """A new run, opened for writing. The directory appears whole, or not at all."""
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise RunExists(
                f"{directory} exists and is never overwritten; `disavow resume {directory}` continues a run"
            )
        directory.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{directory.name}.new-"
        for stale in directory.parent.glob(f"{prefix}*"):
            shutil.rmtree(stale, ignore_errors=True)
        workshop = directory.with_name(prefix + secrets.token_hex(4))
        store = ModelStore(workshop / MODELS)
        store.folder.mkdir(parents=True)
        write_durably(workshop / CONFIG, config.encode())
        digest, stored_bytes = store.write(layout, initial)
        engine = database.connect(workshop / database.NAME, write=True)
        database.migrate(engine)
        with engine.begin() as connection:
            connection.execute(models.insert().values(digest=digest, stored_bytes=stored_bytes))
            connection.execute(
                run.insert().values(
                    run_id=secrets.token_hex(16),
                    created_at=rows.time_to_text(at),
                    created_by=created_by,
                    policy=rows.policy_to_json(policy),
                    layout=layout.to_json(),
                    initial_model=digest,
                )
            )
            _register(connection, clients)
        engine.dispose()
        sync_folder(workshop)
        workshop.rename(directory)
        sync_folder(directory.parent)
        return cls.open(directory, write=True)

    @classmethod
    def open(cls, directory: Path, *, write: bool = False) -> Ledger:
        """A run that exists. For writing, it is locked, brought to the newest format and tidied."""
        path = directory / database.NAME
        if not path.is_file():
            raise RunMissing(f"{directory} holds no run; `disavow train CONFIG.toml --run {directory}` starts one")
        lock = Lock(directory) if write else None
        try:
            engine = database.connect(path, write=write)
            found = database.check_revision(engine, directory)
            if found != database.HEAD:
                if not write:
                    raise LedgerVersion(
                        f"{directory} has ledger format {found}, older than this version's {database.HEAD}; "
                        f"`disavow resume {directory}` migrates it"
                    )
                database.migrate(engine)
            ledger = cls(directory, engine, lock)
            if write:
                ledger._remove_leftovers()
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return ledger

    def _remove_leftovers(self) -> None:
        """Delete model files that no row names: they could be a second draw of the same round."""
        with self._engine.connect() as connection:
            named = set(connection.execute(sa.select(models.c.digest)).scalars())
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

    # -- writing -------------------------------------------------------------------------------------------

    def register(self, ids: Iterable[str]) -> None:
        """Make clients known. Registering one twice is registering it once."""
        with self._engine.begin() as connection:
            _register(connection, ids)

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
    ) -> Round:
        """Store a round and its model: all of it, or nothing. Only the next round can be recorded."""
        digest, stored_bytes = self.store.write(self.layout, after)
        record = Round(number, attempt, before, digest, delta, clusters_of_round, at)
        with self._engine.begin() as connection:
            expected = _next(connection)
            if (number, attempt) != expected or before != self._digest_before(connection, number):
                raise LedgerError(
                    f"round {number}, attempt {attempt} does not follow what the ledger holds "
                    f"(next is round {expected[0]}, attempt {expected[1]}); nothing was recorded"
                )
            known = sa.select(models.c.digest).where(models.c.digest == digest)
            if connection.execute(known).scalar() is None:
                connection.execute(models.insert().values(digest=digest, stored_bytes=stored_bytes))
            self._insert(connection, record)
        return record

    def _insert(self, connection: sa.Connection, record: Round) -> None:
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
        }
        header["digest"] = rows.round_digest(self.run_id, header, parts["clusters"], parts["slots"])
        round_id = connection.execute(rounds.insert().values(header).returning(rounds.c.id)).scalar_one()
        for table in (clusters, slots, memberships):
            connection.execute(table.insert(), [{"round_id": round_id, **row} for row in parts[table.name]])

    def note_evaluation(self, number: int, evaluation: Evaluation) -> None:
        """Remember how well a standing round's model does."""
        with self._engine.begin() as connection:
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
        with self._engine.connect() as connection:
            return tuple(connection.execute(sa.select(clients.c.id).order_by(clients.c.id)).scalars())

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
        """What the run takes on disk, all files together."""
        return sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())


def _summary_query() -> sa.Select[tuple[object, ...]]:
    spread = sa.select(sa.func.max(clusters.c.spread)).where(clusters.c.round_id == rounds.c.id)
    return (
        sa.select(rounds, spread.scalar_subquery().label("spread"), evaluations.c.accuracy, evaluations.c.loss)
        .outerjoin(evaluations, evaluations.c.round_id == rounds.c.id)
        .order_by(rounds.c.id)
    )


def _summary(row: sa.Row[tuple[object, ...]]) -> RoundSummary:
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


def _standing(connection: sa.Connection, number: int) -> sa.Row[tuple[object, ...]]:
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


def _load(connection: sa.Connection, header: sa.Row[tuple[object, ...]]) -> Round:
    members = (
        sa.select(slots.c.neighbours, clients.c.id, memberships.c.samples, memberships.c.update_digest)
        .outerjoin(memberships, (memberships.c.round_id == slots.c.round_id) & (memberships.c.slot == slots.c.slot))
        .outerjoin(clients, clients.c.number == memberships.c.client)
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
