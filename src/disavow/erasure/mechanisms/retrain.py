"""Retrain: run the superseded rounds again with the survivors. Exact, and needs nothing but the ledger.

From the first broken round, or from scratch: from the initial model, whichever round broke. The latter is what the
paper compares with, over plain federated averaging (`clustering.k = 1`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disavow.config import participants_of
from disavow.erasure.mechanisms.mechanism import Mechanism, Step, Work
from disavow.ledger import Ledger, Reader
from disavow.rounds.options import RoundOptions, participants_ahead, room_for

if TYPE_CHECKING:
    from disavow.rounds.local_training import Engine


@dataclass(frozen=True)
class Retrain(Mechanism):
    """See `Mechanism`. What was built before the first broken round stands."""

    name = "retrain"

    def ahead(
        self,
        reader: Reader,
        options: RoundOptions,
        *,
        first: int,
        last: int,
        leavers: Collection[str] = (),
        renewed: Collection[str] = (),
        most: int | None = None,
    ) -> Work:
        """All those rounds again. Fewer than k participants make no cluster, and fixed clusters that everybody left
        no round. Every round that is run again is released again, and costs what it cost the first time, or more.
        """
        del renewed  # they take part
        wanted = last - first + 1 if most is None else min(most, last - first + 1)
        if wanted < 1:
            return Work()
        survivors = reader.count_survivors(leavers)
        participants = participants_of(survivors, options.fraction, options.at_least) if survivors else 0
        if reader.policy.anchored:
            participants = survivors  # whole clusters take part, gaps and all
        if participants < reader.policy.k:
            return Work(obstacle=f"{participants} participants are left, fewer than k = {reader.policy.k}")
        room = room_for(reader, options, first, wanted, leavers)
        if not reader.policy.anchored:
            return Work((Step(participants, options.epochs),) * room.rounds, room.obstacle)
        counts = participants_ahead(reader, options, range(first, first + room.rounds), leavers)
        return Work(tuple(Step(count, options.epochs) for count in counts), room.obstacle)

    def rebuild_next(self, ledger: Ledger, engine: Engine, options: RoundOptions) -> None:
        """A round like any other; only its attempt is higher, so that its secret draws are new."""
        from disavow.rounds.round import run_round

        run_round(ledger, engine, options)


@dataclass(frozen=True)
class RetrainFromScratch(Retrain):
    """The same, from the initial model."""

    name = "retrain-from-scratch"

    def goes_back_to(self, broken: int) -> int:  # noqa: ARG002
        """Nothing that was built stands."""
        return 1
