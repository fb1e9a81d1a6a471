"""FedEraser: rebuild from the updates that were kept, with a fraction of the training. Approximate.

G. Liu, X. Ma, Y. Yang, C. Wang and J. Liu, "FedEraser: Enabling Efficient Client-Level Data Removal from Federated
Learning Models" (2021). The run keeps its clients' updates u_i of every Δt-th round. After a rollback the kept
rounds are gone through in order. The first aggregates the survivors' updates as they are; in each later one every
survivor trains a few epochs from the new model, which gives û_i, and contributes ‖u_i‖·û_i/‖û_i‖: as long as its
update was then, in the direction in which it would go now.

What a rebuilt round was made from is kept in its turn, so that a later erasure can go through it again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from disavow.config import MechanismSettings
from disavow.domain import Member, Slot
from disavow.erasure.mechanisms.mechanism import Mechanism, Step, Work
from disavow.errors import IntegrityError, RoundRefused
from disavow.ledger import Ledger, Reader
from disavow.ledger.models import Vector
from disavow.ledger.rebuilt import model_from
from disavow.ledger.updates import KeptRound, digest_of
from disavow.rounds.options import RoundOptions

if TYPE_CHECKING:
    from disavow.rounds.broadcast import Broadcast
    from disavow.rounds.local_training import Engine

NO_ACCOUNT = "a rebuilt round is released without noise, so no privacy budget allows it"


@dataclass(frozen=True)
class FedEraser(Mechanism):
    """See `Mechanism`. `calibration` is the share of a round's local epochs that a calibration takes."""

    name = "federaser"
    exact = False
    keeps_updates = True
    needs_every_survivor = True

    calibration: float = 0.5

    def configured(self, settings: MechanismSettings) -> Self:
        """See `Mechanism`."""
        return replace(self, calibration=settings.calibration)

    def epochs(self, options: RoundOptions) -> int:
        """Local epochs of a calibration: the share, rounded up, so at least one."""
        return math.ceil(self.calibration * options.epochs)

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
        """One round for each that was kept, up to the first that too few survivors are left of."""
        if first > last:
            return Work()
        if options.budget is not None:
            return Work(obstacle=NO_ACCOUNT)
        survivors = reader.count_survivors(leavers)
        if survivors < reader.policy.k:
            return Work(obstacle=f"{survivors} clients are left, fewer than k = {reader.policy.k}")
        kept, fresh = reader.kept_rounds(first, most), _fresh(reader, first)
        if fresh and not kept:
            return Work(obstacle=f"no updates are kept of rounds {first} to {last}")
        steps: list[Step] = []
        withdrawn = {*leavers, *renewed}
        for each in kept:
            left = [member for member in each.members if member.client not in withdrawn]
            if len(left) < reader.policy.k:
                few = f"updates of {len(left)} survivors are kept of round {each.number}"
                return Work(tuple(steps), f"{few}, fewer than k = {reader.policy.k}")
            steps.append(Step(len(left), 0 if fresh and not steps else self.epochs(options)))
        return Work(tuple(steps))

    def rebuild_next(self, ledger: Ledger, engine: Engine, options: RoundOptions) -> None:
        """Go through the next kept round; the first after a rollback takes no training."""
        import torch

        from disavow.rounds.broadcast import broadcast
        from disavow.rounds.local_training import refuse_overflow
        from disavow.rounds.vectors import Model

        opening = broadcast(ledger, options.clock())
        [source] = ledger.kept_rounds(opening.number, most=1)
        epochs = 0 if _fresh(ledger, opening.number) else self.epochs(options)
        kept = _kept(ledger, source, opening.number)
        made = _calibrated(ledger, engine, opening, source, kept, epochs) if epochs else _as_they_are(source, kept)
        members, contributions, trainer = made
        before = opening.model.vector.numpy()
        after = model_from(ledger.layout, before, contributions, [member.samples for member in members])
        refuse_overflow(Model(ledger.layout, torch.from_numpy(after)), round_number=opening.number)
        # shuffled, so that a slot's number says nothing about who is behind it
        order = options.secrets.stream(opening.number, opening.attempt, "slots").permutation(len(members))
        at = options.clock()
        ledger.record_rebuilt(
            number=opening.number,
            attempt=opening.attempt,
            before=opening.digest,
            after=after,
            mechanism=self.name,
            source=source.round_id,
            epochs=epochs,
            slots=tuple(Slot(members[i]) for i in order),
            kept={member.update_digest: each for member, each in zip(members, contributions, strict=True)},
            at=at,
            seconds=(at - opening.opened_at).total_seconds(),
            trainer=trainer,
            compress=options.compress,
        )


def _kept(ledger: Ledger, source: KeptRound, number: int) -> list[Vector]:
    """The updates that are kept of a round. A damaged one does not keep a request from being honoured."""
    try:
        return ledger.kept_updates(source)
    except IntegrityError as error:
        message = f"round {number} cannot be rebuilt: {error}"
        raise RoundRefused(message, nameless=message) from None


Made = tuple[Sequence[Member], Sequence[Vector], str | None]
"""Who contributes, in id order, what, and what trained it; None where nothing was trained."""


def _as_they_are(source: KeptRound, kept: Sequence[Vector]) -> Made:
    return source.members, kept, None


def _calibrated(
    ledger: Ledger, engine: Engine, opening: Broadcast, source: KeptRound, kept: Sequence[Vector], epochs: int
) -> Made:
    """Every survivor trains from the new model: the norm of what it contributed then, the direction of now."""
    from disavow.rounds.local_training import accept
    from disavow.rounds.vectors import on_cpu

    clients = tuple(member.client for member in source.members)
    fresh = accept(
        engine.train(opening.model, clients, opening.number, epochs=epochs),
        layout=ledger.layout,
        k=ledger.policy.k,
        strangers=ledger.strangers(clients),
        round_number=opening.number,
    )
    contributions = [calibrate(then, now) for then, now in zip(kept, on_cpu(fresh.vectors).numpy(), strict=True)]
    members = [
        Member(client, samples, digest_of(contribution))
        for client, samples, contribution in zip(fresh.clients, fresh.samples, contributions, strict=True)
    ]
    return members, contributions, fresh.trainer


def calibrate(then: Vector, now: Vector) -> Vector:
    """‖u‖·û/‖û‖, in float64. Where û is zero it has no direction to go in: such a client is content with the model
    as it is, so it contributes zero, and its share of the data holds the others back as in any average.
    """
    import numpy as np

    direction = now.astype(np.float64)
    length = float(np.linalg.norm(direction))
    if length == 0:
        return np.zeros_like(then)
    return (float(np.linalg.norm(then.astype(np.float64))) / length * direction).astype(np.float32)


def _fresh(reader: Reader, first: int) -> bool:
    """Whether nothing has been rebuilt yet since the rollback to `first`, or one to a round that still stands."""
    if first <= reader.last_round:
        return True
    open_one = reader.rebuilding()
    return open_one is not None and open_one.newest == first
