"""What the released models say about who was drawn, and how likely each client was: over the standing rounds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from disavow.domain import Policy
from disavow.ledger import pseudonyms
from disavow.ledger.members import UNKNOWN, Members
from disavow.ledger.schema import clusters, memberships, rounds, withdrawals
from disavow.proof.bounds import log10_odds


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


def odds(connection: sa.Connection, members: Members, policy: Policy) -> Odds | None:
    """The odds and chances of the clients that are still in; None where none of them was in a standing round, or
    where there is no keyring to say which slots are of one client. Every client is tried in every round.
    """
    from statistics import median  # loads decimal and fractions, which nothing else here needs

    if not members.keyring.exists:
        return None
    ratios: list[float] = []
    squares: defaultdict[int, float] = defaultdict(float)
    log_left_out: defaultdict[int, float] = defaultdict(float)
    present = list(members.keyring.present().values())
    for header in connection.execute(_ROUNDS).all():
        where, tau = members.name_of(header), header.tau
        known = {pseudonyms.token(client.at(header.epoch), where): client.number for client in present}
        filled = connection.execute(_MEMBERS, {"round_id": header.id}).all()
        groups = connection.execute(_CLUSTERS, {"round_id": header.id}).all()
        starts = [group.first_slot for group in groups]
        # a rebuilt round has no clusters: everybody is in it for certain, and without noise
        of_cluster = [_ratio_and_chance(group, tau, policy) for group in groups] or [(math.inf, -math.inf)]
        for slot, token in filled:
            client = known.get(token, UNKNOWN)
            ratio, left_out = of_cluster[max(0, bisect_right(starts, slot) - 1)]
            ratios.append(ratio)
            squares[client] += ratio * ratio
            log_left_out[client] += left_out
    if not ratios:
        return None
    composed = [math.sqrt(square) for square in squares.values()]
    drawn = [1 - math.exp(left_out) for left_out in log_left_out.values()]
    return Odds(
        worst_round=_log10(max(ratios)),
        median_round=_log10(median(ratios)),
        worst_composed=_log10(max(composed)),
        median_composed=_log10(median(composed)),
        worst_drawn=max(drawn),
        median_drawn=median(drawn),
    )


def _ratio_and_chance(group: sa.Row[Any, Any, Any, Any, Any], tau: float, policy: Policy) -> tuple[float, float]:
    """How many standard deviations of noise a member is worth, and the log of its chance not to be drawn."""
    chance = min(1.0, policy.representatives / group.places)
    left_out = math.log1p(-chance) if chance < 1 else -math.inf
    moved = group.weight * group.spread / policy.representatives
    if group.size == 1 or (tau <= 0 < moved):  # nobody can stand in for the only member of a cluster
        return math.inf, left_out
    return (moved / tau if tau > 0 else 0.0), left_out


def _log10(ratio: float) -> float | None:
    return log10_odds(ratio) if math.isfinite(ratio) else None


_ROUNDS = sa.select(rounds).where(rounds.c.standing)
_CLUSTERS = (
    sa.select(clusters.c.first_slot, clusters.c.size, clusters.c.places, clusters.c.weight, clusters.c.spread)
    .where(clusters.c.round_id == sa.bindparam("round_id"))
    .order_by(clusters.c.first_slot)
)
_MEMBERS = (
    sa.select(memberships.c.slot, memberships.c.token)
    .outerjoin(
        withdrawals,
        (withdrawals.c.round_id == memberships.c.round_id) & (withdrawals.c.slot == memberships.c.slot),
    )
    .where(memberships.c.round_id == sa.bindparam("round_id"), withdrawals.c.slot.is_(None))
)
