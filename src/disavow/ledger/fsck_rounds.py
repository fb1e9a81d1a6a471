"""The part of fsck that checks recorded rounds (rows, digest, clusters, members) and fixed clusters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from disavow.domain import Policy, RequestState, size_class
from disavow.domain.strategies import CLUSTERINGS
from disavow.errors import IntegrityError, LedgerError
from disavow.ledger import clients, pseudonyms, rows
from disavow.ledger.findings import Checked, Finding, clusters_and_slots, gaps, name_of
from disavow.ledger.keyring import ClientKey
from disavow.ledger.rounds import membership
from disavow.ledger.schema import (
    anchors,
    erasures,
    events,
    memberships,
    requests,
    withdrawals,
)
from disavow.privacy.events import Event
from disavow.proof.commitment import commit
from disavow.proof.noise import logged_tau

_ANCHORS = "table anchors"
_TOLERANCE = 1e-9


def check_round(checked: Checked, header: sa.Row[Any]) -> Iterator[Finding]:
    """Everything that is wrong with one recorded round."""
    where = name_of(header)
    groups, slot_rows = clusters_and_slots(checked, header.id)
    complete = True
    for missing in gaps({row["position"] for row in groups}, range(header.clusters)):
        complete = False
        yield Finding(where, f"the row of cluster {missing} is missing")
    for missing in gaps({row["slot"] for row in slot_rows}, range(header.participants)):
        complete = False
        yield Finding(where, f"the row of slot {missing} is missing")
    if not complete:
        return
    if rows.round_digest(checked.run_id, dict(header._mapping), groups, slot_rows) != header.digest:
        yield Finding(where, "its rows are not those that were recorded: they have another digest")
        return
    yield from _clusters(checked.policy, header, groups, where)
    yield from check_members(checked, header, slot_rows, where)
    yield from _weights(checked, header, groups, where)
    yield from check_event(
        checked, header, rows.event_of_round(dict(header._mapping), groups, checked.policy), where
    )
    yield from _repeats(checked, header, where)


def _repeats(checked: Checked, header: sa.Row[Any], where: str) -> Iterator[Finding]:
    """A round that repeats the clusters of the one before has the same survivors in them as long as both stand."""
    if not header.repeats or not header.standing or not checked.identified:
        return
    # rebuilt rounds have no clusters; what stands before them is what is repeated
    earlier = (_survivors(checked, number) for number in range(header.number - 1, 0, -1))
    before = next((found for found in earlier if found != set()), set())
    if before not in (None, _survivors(checked, header.number)):
        yield Finding(where, "is said to repeat the clusters of the round before it, but has others")


@lru_cache(maxsize=2)  # a round, and the one before it
def _survivors(checked: Checked, number: int) -> set[frozenset[str]] | None:
    """Who is left in each cluster of a round; None where no such round stands, which is a gap and named as such."""
    try:
        return {frozenset(group) for group in membership(checked.connection, checked.members, number) if group}
    except LedgerError:
        return None


def check_event(checked: Checked, header: sa.Row[Any], released: Event, where: str) -> Iterator[Finding]:
    """A round's event is the one that is due."""
    found = checked.connection.execute(sa.select(events).where(events.c.round_id == header.id)).one_or_none()
    if found is None:
        yield Finding(where, "its event, from which the privacy account is computed, is missing")
        return
    row = dict(found._mapping)
    due = rows.event_row(released, header.id)
    for column in rows.EVENT:
        if row[column] != due[column]:
            yield Finding(where, f"its event has {column} {row[column]}, its clusters and the policy {due[column]}")
    if row["checksum"] != rows.event_checksum(row):
        yield Finding(where, "its event is not what was recorded: it has another checksum")


def _clusters(policy: Policy, header: sa.Row[Any], groups: list[rows.Row], where: str) -> Iterator[Finding]:
    expected = 0
    for row in groups:
        if not _size_can_be(policy, row):
            gaps = f" in {row['capacity']} places" if row["capacity"] != row["size"] else ""
            yield Finding(where, f"cluster {row['position']} has {row['size']} members{gaps}; k is {policy.k}")
        if row["first_slot"] != expected:
            yield Finding(where, f"cluster {row['position']} starts at slot {row['first_slot']}, not {expected}")
        if not (math.isfinite(row["spread"]) and row["spread"] >= 0):
            yield Finding(where, f"cluster {row['position']} has a spread of {row['spread']}")
        expected += row["size"]
    if header.spread != max((row["spread"] for row in groups), default=None):
        yield Finding(where, f"is said to have a largest spread of {header.spread}, its clusters have another")
    if expected != header.participants:
        yield Finding(where, f"its clusters hold {expected} slots, its participants were {header.participants}")
    total = sum(row["weight"] for row in groups)
    # fixed clusters that nobody is left in keep their weight, and are in no round
    if total - 1 > _TOLERANCE or (not policy.anchored and 1 - total > _TOLERANCE):
        yield Finding(where, "the weights of its clusters do not sum to 1")
    due = policy.delta_at(header.update_norm)
    if due is None:
        due = max(row["spread"] for row in groups)
    if header.delta != due:
        yield Finding(where, f"Δ is {header.delta}, the policy makes it {due}")
    tau = logged_tau(policy, [(row["weight"], row["spread"]) for row in groups])
    if header.tau != tau:
        yield Finding(where, f"its noise is said to be {header.tau}; its clusters and the policy make it {tau}")
    if not (header.update_norm >= 0 and 0 <= header.pairs_within <= 1):
        yield Finding(where, "the norm of its updates, or the share of pairs within Δ, cannot be")


def _size_can_be(policy: Policy, row: rows.Row) -> bool:
    """Clusters are as large as their method says; anchored ones have at least k places, some of them gaps."""
    least, most = CLUSTERINGS[policy.clustering].sizes(policy.k)
    full = row["capacity"] >= max(policy.k, row["size"]) if policy.anchored else row["capacity"] == row["size"]
    return bool(full and least <= row["size"] and (most is None or row["size"] <= most))


def check_members(
    checked: Checked, header: sa.Row[Any], slot_rows: list[rows.Row], where: str
) -> Iterator[Finding]:
    """Every slot has a membership; where there is a keyring, that of whoever was recorded, or of a leaver."""
    query = sa.select(memberships).where(memberships.c.round_id == header.id)
    found = {row.slot: row for row in checked.connection.execute(query)}
    for slot in gaps(found.keys(), range(header.participants)):
        yield Finding(where, f"the membership row of slot {slot} is missing")
    if not checked.identified:
        return
    known = _known(checked, header)
    withdrawn = _withdrawn(checked, header.id)
    for place in slot_rows:
        row, slot = found.get(place["slot"]), place["slot"]
        if row is None:
            continue
        client = known.get(row.token)
        if client is None:
            if slot not in withdrawn:
                yield Finding(where, f"slot {slot} is of nobody in the keyring, and was never withdrawn")
        elif withdrawn.get(slot) == RequestState.ANSWERED:
            yield Finding(where, f"slot {slot} was withdrawn, but its client is still in the keyring")
        elif not _as_recorded(checked, header, place, client, row):
            yield Finding(where, f"the membership row of slot {slot} is not the one that was recorded")


def _known(checked: Checked, header: sa.Row[Any]) -> dict[bytes, ClientKey]:
    """The clients in the keyring by their pseudonyms in a round."""
    context = pseudonyms.token_context(checked.members.name_of(header))
    return {
        pseudonyms.token_in(context, client.at(header.epoch)): client
        for client in checked.members.keyring.present().values()
    }


def _weights(checked: Checked, header: sa.Row[Any], groups: list[rows.Row], where: str) -> Iterator[Finding]:
    if checked.policy.anchored or not checked.identified:
        return  # their weights are those of the anchors as they were then
    try:
        members = checked.members.of_round(checked.connection, header)
    except IntegrityError:
        return  # `check_members` says so
    if len(members) < header.participants:
        return  # weights can be recomputed only while every member's samples are there
    if any(member.samples < 1 for member in members.values()):
        yield Finding(where, "a member is said to have held no samples")
        return
    classes = {slot: size_class(member.samples) for slot, member in members.items()}
    total = sum(classes.values())
    for row in groups:
        first, size = row["first_slot"], row["size"]
        share = sum(classes[slot] for slot in range(first, first + size)) / total
        if abs(share - row["weight"]) > _TOLERANCE:
            yield Finding(
                where, f"cluster {row['position']} has weight {row['weight']}, its members' shares {share}"
            )


def _as_recorded(
    checked: Checked, header: sa.Row[Any], place: rows.Row, client: ClientKey, row: sa.Row[Any]
) -> bool:
    """Whether what a client brought can be opened, and fits the commitment of its slot."""
    try:
        filled = checked.members.opened(client, header, row)
    except IntegrityError:
        return False
    due = commit(
        run_id=checked.run_id,
        round_number=header.number,
        salt=filled.salt,
        client=client.id,
        update_digest=filled.update_digest,
    )
    return bool(due == place["commitment"])


def _withdrawn(checked: Checked, round_id: int) -> dict[int, str]:
    """The withdrawn slots of a round, with how far their erasure has come."""
    query = (
        sa.select(withdrawals.c.slot, erasures.c.state)
        .join(erasures, erasures.c.id == withdrawals.c.erasure)
        .where(withdrawals.c.round_id == round_id)
    )
    return {row.slot: row.state for row in checked.connection.execute(query)}


def check_anchors(checked: Checked) -> Iterator[Finding]:
    """Borders in order, places and shares enough for all who are in, and no more gaps than clients have left."""
    found = checked.connection.execute(sa.select(anchors).order_by(anchors.c.number)).all()
    placed = (
        clients.known_in_fixed_clusters(checked.connection, checked.members.keyring) if checked.identified else []
    )
    if not checked.policy.anchored:
        if found or placed:
            yield Finding(_ANCHORS, "holds anchors, though clusters are not fixed")
        return
    if not found and any(header.clusters for header in checked.rounds):
        yield Finding(_ANCHORS, "holds no anchors, though rounds were recorded")
        return
    for missing in gaps({row.number for row in found}, range(max((row.number for row in found), default=-1) + 1)):
        yield Finding(_ANCHORS, f"the row of cluster {missing} is missing")
    for row in found:
        if rows.anchor_checksum(dict(row._mapping)) != row.checksum:
            yield Finding(_ANCHORS, f"cluster {row.number} is not what was recorded: it has another checksum")
        mine = [client for client in placed if client.anchor == row.number]
        shares = sum(client.share for client in mine if client.share is not None)
        if row.capacity < max(checked.policy.k, len(mine)) or int(row.share) < shares:
            yield Finding(_ANCHORS, f"cluster {row.number} has less than its {len(mine)} clients need")
    borders = [row.until for row in found]
    if borders and (borders[-1] is not None or None in borders[:-1]):
        yield Finding(_ANCHORS, "the last cluster alone has no upper border, and another one has none")
    elif any(one >= two for one, two in pairwise(borders[:-1])):
        yield Finding(_ANCHORS, "borders are not in order")
    left = sa.select(sa.func.count()).select_from(requests).where(requests.c.erasure.is_not(None))
    gone = checked.connection.execute(left.where(requests.c.client.is_(None))).scalar_one()
    if checked.identified and sum(row.capacity for row in found) - len(placed) > gone:
        yield Finding(_ANCHORS, "there are more gaps than clients have left")
