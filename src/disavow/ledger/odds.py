"""What the released models say about who was drawn, and how likely each client was: over the standing rounds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from disavow.domain import Policy
from disavow.ledger import pseudonyms
from disavow.ledger.evidence import start_of
from disavow.ledger.members import UNKNOWN, Members, has_tokens, selected
from disavow.ledger.schema import clusters, memberships, rounds, withdrawals
from disavow.proof.bounds import log10_odds


@dataclass(frozen=True)
class Odds:
    """Odds as log10, for the client that is worst off and for the median one; each a 95 % quantile.

    None where there is no Gaussian noise: then the odds have no bound. `drawn` are chances to have been drawn at
    least once. Superseded rounds do not count, though their models were released. `sampled` says of how many
    clients, drawn at random, all of this is where looking at every one in every round would take too long; None:
    of all.
    """

    worst_round: float | None
    median_round: float | None
    worst_composed: float | None
    median_composed: float | None
    worst_drawn: float
    median_drawn: float
    sampled: int | None = None


@dataclass(frozen=True)
class _Filled:
    """A slot that a client filled in a standing round."""

    client: int
    ratio: float
    left_out: float


def odds(connection: sa.Connection, members: Members, policy: Policy) -> Odds | None:
    """The odds and chances of the clients that are still in; None where none of them was in a standing round, or
    where there is no keyring to say which slots are of one client. Every client is tried in every round; of large
    runs, some clients.
    """
    from statistics import median  # loads decimal and fractions, which nothing else here needs

    if not members.keyring.exists:
        return None
    count = max(1, connection.execute(_COUNT).scalar_one())
    clients, few = members.keyring.count(), max(_FEWEST, _SAMPLED // count)
    everybody = clients * count <= _TRIED or clients <= few
    found = list(
        _of_all(connection, members, policy)
        if everybody
        else _of_some(connection, members, policy, members.keyring.some(few))
    )
    if not found:
        return None
    squares: defaultdict[int, float] = defaultdict(float)
    log_left_out: defaultdict[int, float] = defaultdict(float)
    for each in found:
        squares[each.client] += each.ratio * each.ratio
        log_left_out[each.client] += each.left_out
    ratios = [each.ratio for each in found]
    composed = [math.sqrt(square) for square in squares.values()]
    drawn = [1 - math.exp(left_out) for left_out in log_left_out.values()]
    return Odds(
        worst_round=_log10(max(ratios)),
        median_round=_log10(median(ratios)),
        worst_composed=_log10(max(composed)),
        median_composed=_log10(median(composed)),
        worst_drawn=max(drawn),
        median_drawn=median(drawn),
        sampled=None if everybody else few,
    )


def _of_all(connection: sa.Connection, members: Members, policy: Policy) -> Iterator[_Filled]:
    """Every slot; those of clients who are not in the keyring count for one client."""
    present = list(members.keyring.present().values())
    for header in connection.execute(_ROUNDS).all():
        context = pseudonyms.token_context(members.name_of(header))
        known = {pseudonyms.token_in(context, client.at(header.epoch)): client.number for client in present}
        groups = connection.execute(_CLUSTERS, {"round_id": header.id}).all()
        starts = [group.first_slot for group in groups]
        of_cluster = [_ratio_and_chance(group, header.tau, policy) for group in groups] or [_REBUILT]
        for slot, token in connection.execute(_MEMBERS, {"round_id": header.id}).all():
            at = of_cluster[max(0, bisect_right(starts, slot) - 1)]
            yield _Filled(known.get(token, UNKNOWN), *at)


def _of_some(
    connection: sa.Connection, members: Members, policy: Policy, clients: Iterable[int]
) -> Iterator[_Filled]:
    """The slots of these clients."""
    found = members.tokens_of(connection, list(clients))
    client_of = {token: client for client, tokens in found.items() for token in tokens}
    for row in selected(connection, _OF_CLIENT, list(client_of)):
        at = _REBUILT if row.size is None else _ratio_and_chance(row, row.tau, policy)
        yield _Filled(client_of[row.token], *at)


def _ratio_and_chance(group: Any, tau: float, policy: Policy) -> tuple[float, float]:
    """How many standard deviations of noise a member is worth, and the log of its chance not to be drawn."""
    chance = min(1.0, policy.representatives / group.capacity)
    left_out = math.log1p(-chance) if chance < 1 else -math.inf
    moved = group.weight * group.spread / policy.representatives
    if group.size == 1 or (tau <= 0 < moved):  # nobody can stand in for the only member of a cluster
        return math.inf, left_out
    return (moved / tau if tau > 0 else 0.0), left_out


def _log10(ratio: float) -> float | None:
    return log10_odds(ratio) if math.isfinite(ratio) else None


_TRIED = 200_000
"""Clients times rounds that are looked at one by one."""
_SAMPLED, _FEWEST = 50_000, 20
"""The same where clients are sampled, and how many are at least."""
_REBUILT = (math.inf, -math.inf)
"""A rebuilt round has no clusters: everybody is in it for certain, and without noise."""

_COUNT = sa.select(sa.func.count()).select_from(rounds).where(rounds.c.standing)
_ROUNDS = sa.select(rounds).where(rounds.c.standing)
_CLUSTERS = (
    sa.select(clusters.c.first_slot, clusters.c.size, clusters.c.capacity, clusters.c.weight, clusters.c.spread)
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
_OF_CLIENT = (
    sa.select(
        memberships.c.token,
        rounds.c.tau,
        clusters.c.size,
        clusters.c.capacity,
        clusters.c.weight,
        clusters.c.spread,
    )
    .join_from(memberships, rounds, rounds.c.id == memberships.c.round_id)
    .outerjoin(
        clusters,
        (clusters.c.round_id == memberships.c.round_id) & (clusters.c.first_slot == start_of(memberships)),
    )
    .outerjoin(
        withdrawals,
        (withdrawals.c.round_id == memberships.c.round_id) & (withdrawals.c.slot == memberships.c.slot),
    )
    .where(rounds.c.standing, withdrawals.c.slot.is_(None), has_tokens())
)
