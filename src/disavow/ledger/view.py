"""A run directory, opened: every look at what its ledger holds. Nothing here changes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import sqlalchemy as sa

from disavow.domain import Anchors, ErasureRequest, Layout, Member, Policy, Round, TrainedBy, model_name
from disavow.errors import IntegrityError, LedgerError
from disavow.ledger import anchors as anchoring
from disavow.ledger import clients as registry
from disavow.ledger import rounds, rows, updates
from disavow.ledger.creation import MODELS
from disavow.ledger.models import ModelStore, Vector, mean_of
from disavow.ledger.odds import Odds, odds
from disavow.ledger.requests import listed
from disavow.ledger.rounds import RoundSummary
from disavow.ledger.schema import models, run
from disavow.ledger.updates import UPDATES, KeptRound, UpdateStore
from disavow.privacy.events import Event


class View:
    """What an opened run tells about itself. Use it as a context manager."""

    def __init__(self, directory: Path, engine: sa.Engine) -> None:
        self.directory = directory
        self._engine = engine
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
            self.trainer = TrainedBy.from_json(row.trainer)
        except (sa.exc.NoResultFound, sa.exc.MultipleResultsFound, ValueError, TypeError) as error:
            raise LedgerError(
                f"the ledger of {directory} is damaged; `disavow fsck {directory}` says more"
            ) from error
        self.store = ModelStore(directory / MODELS)
        self.updates = UpdateStore(directory / UPDATES)

    def close(self) -> None:
        """Let go of the run. Closing twice is closing once."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Several looks at one state of the ledger."""
        with self._engine.connect() as connection:
            yield connection

    @property
    def last_round(self) -> int:
        """The number of the newest standing round; 0 before the first."""
        with self.snapshot() as connection:
            return rounds.last_round(connection)

    def next_round(self) -> tuple[int, int]:
        """The number and the attempt of the round that comes next."""
        with self.snapshot() as connection:
            return rounds.next_round(connection)

    def goes_by_a_key(self) -> bool:
        """Whether an operator's key has been used with this run: another one is refused from then on."""
        with self.snapshot() as connection:
            return connection.execute(sa.select(run.c.tombstone_key)).scalar_one() is not None

    def clients(self) -> tuple[str, ...]:
        """The ids of all clients still in, sorted."""
        with self.snapshot() as connection:
            return registry.still_in(connection)

    def anchors(self) -> Anchors | None:
        """The run's fixed clusters, with the places of all clients still in; None where none are settled yet."""
        with self.snapshot() as connection:
            return anchoring.load(connection)

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

    def mean_model(self, count: int) -> tuple[Vector, tuple[str, ...]]:
        """The mean of the models that the newest `count` standing rounds produced; their digests, oldest first."""
        with self.snapshot() as connection:
            last = rounds.last_round(connection)
            newest = range(last - count + 1, last + 1)
            digests = [rounds.standing_round(connection, number).after for number in newest]
        found = np.stack([self._recall(number, digest) for number, digest in zip(newest, digests, strict=True)])
        return mean_of(found), tuple(digests)

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

    def odds(self) -> Odds | None:
        """What the models of the standing rounds say about who was drawn; None where nobody could have been."""
        with self.snapshot() as connection:
            return odds(connection, self.policy)

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
