"""What the released models say about who was drawn, and how likely each client was: over the standing rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from disavow.domain import Policy
from disavow.ledger.schema import clusters, memberships, rounds, withdrawals
from disavow.proof.bounds import log10_odds

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Odds:
    """Odds as log10, for the client that is worst off and for the median one; each a 95 % quantile.

    None where there is no Gaussian noise: then the odds have no bound. `drawn` are chances to have been drawn at
    least once. Superseded rounds do not count, though their models were released.
    """

    worst_round: float | None
    median_round: float | None
    worst_composed: float | None
    median_composed: float | None
    worst_drawn: float
    median_drawn: float


def odds(connection: sa.Connection, policy: Policy) -> Odds | None:
    """The odds and chances of the clients that are still in; None where none of them was in a standing round."""
    numbers: dict[int, int] = {}
    members, ratios, chances = [], [], []
    for round_id, tau in connection.execute(_ROUNDS).all():
        mine = connection.execute(_MEMBERS, {"round_id": round_id}).all()
        if not mine:
            continue
        members.append(np.array([numbers.setdefault(client, len(numbers)) for _, client in mine]))
        groups = connection.execute(_CLUSTERS, {"round_id": round_id}).all()
        if not groups:  # rebuilt: everybody is in it for certain, and without noise
            ratios.append(np.full(len(mine), np.inf))
            chances.append(np.ones(len(mine)))
            continue
        starts, sizes, places, weights, spreads = (np.array(column) for column in zip(*groups, strict=True))
        at = np.searchsorted(starts, [slot for slot, _ in mine], side="right") - 1
        # nobody can stand in for the only member of a cluster
        alone = np.where(sizes > 1, _over(weights * spreads / policy.representatives, tau), np.inf)
        ratios.append(alone[at])
        chances.append(np.minimum(1.0, policy.representatives / places)[at])
    if not members:
        return None
    who, ratio, chance = map(np.concatenate, (members, ratios, chances))
    composed = np.sqrt(np.bincount(who, ratio * ratio))
    with np.errstate(divide="ignore"):  # whoever is surely drawn has no chance to be left out
        drawn = 1 - np.exp(np.bincount(who, np.log1p(-chance)))
    return Odds(
        worst_round=_log10(ratio.max()),
        median_round=_log10(np.median(ratio)),
        worst_composed=_log10(composed.max()),
        median_composed=_log10(np.median(composed)),
        worst_drawn=float(drawn.max()),
        median_drawn=float(np.median(drawn)),
    )


def _over(displacement: Floats, tau: float) -> Floats:
    """Displacements in standard deviations of the noise; without noise, infinitely many."""
    if tau > 0:
        return displacement / tau
    return np.where(displacement > 0, np.inf, 0.0)


def _log10(ratio: float) -> float | None:
    return log10_odds(float(ratio)) if np.isfinite(ratio) else None


_ROUNDS = sa.select(rounds.c.id, rounds.c.tau).where(rounds.c.standing)
_CLUSTERS = (
    sa.select(clusters.c.first_slot, clusters.c.size, clusters.c.places, clusters.c.weight, clusters.c.spread)
    .where(clusters.c.round_id == sa.bindparam("round_id"))
    .order_by(clusters.c.first_slot)
)
_MEMBERS = (
    sa.select(memberships.c.slot, memberships.c.client)
    .outerjoin(
        withdrawals,
        (withdrawals.c.round_id == memberships.c.round_id) & (withdrawals.c.slot == memberships.c.slot),
    )
    .where(memberships.c.round_id == sa.bindparam("round_id"), withdrawals.c.slot.is_(None))
)
