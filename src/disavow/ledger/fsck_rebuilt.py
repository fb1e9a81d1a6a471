"""The part of fsck that checks rebuilt rounds, and the updates that the run keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sqlalchemy as sa

from disavow.errors import IntegrityError
from disavow.ledger import rows, updates
from disavow.ledger.findings import Checked, Finding, gaps, name_of
from disavow.ledger.fsck_rounds import check_event, check_members, members_of
from disavow.ledger.rebuilt import model_from
from disavow.ledger.schema import clients, memberships, rebuilt, rounds, slots
from disavow.ledger.schema import updates as updates_table
from disavow.privacy.events import event_of_rebuilt


def check_rebuilt(checked: Checked, header: sa.Row[Any]) -> Iterator[Finding]:
    """Everything that is wrong with one rebuilt round."""
    where = name_of(header)
    mine = sa.select(slots).where(slots.c.round_id == header.id).order_by(slots.c.slot)
    places = [dict(row._mapping) for row in checked.connection.execute(mine)]
    missing = gaps({row["slot"] for row in places}, range(header.participants))
    if missing:
        yield Finding(where, f"the row of slot {missing[0]} is missing")
        return
    made = checked.connection.execute(sa.select(rebuilt).where(rebuilt.c.round_id == header.id)).one_or_none()
    if made is None:
        yield Finding(where, "has no clusters, yet nothing says from what it was rebuilt")
        return
    if rows.rebuilt_digest(checked.run_id, dict(header._mapping), dict(made._mapping), places) != header.digest:
        yield Finding(where, "its rows are not those that were recorded: they have another digest")
        return
    source = checked.connection.execute(sa.select(rounds).where(rounds.c.id == made.source)).one()
    if source.standing or source.number < header.number or source.id >= header.id:
        yield Finding(where, f"was rebuilt from round {source.number}, which was not undone before it")
    yield from check_members(checked, header, places, members_of(checked, header), where)
    event = event_of_rebuilt(checked.policy, number=header.number, attempt=header.attempt)
    yield from check_event(checked, header, event, where)
    if header.standing:
        yield from _contributions(checked, header, where)


def _contributions(checked: Checked, header: sa.Row[Any], where: str) -> Iterator[Finding]:
    """All contributions to a standing rebuilt round are kept, and make its model."""
    query = (
        sa.select(clients.c.id, memberships, updates_table.c.slot.label("kept"))
        .join_from(memberships, clients, clients.c.number == memberships.c.client)
        .outerjoin(
            updates_table,
            (updates_table.c.round_id == memberships.c.round_id) & (updates_table.c.slot == memberships.c.slot),
        )
        .where(memberships.c.round_id == header.id)
        .order_by(clients.c.id)
    )
    members = checked.connection.execute(query).all()
    if len(members) != header.participants or any(member.kept is None for member in members):
        yield Finding(where, "stands, but not all contributions to it are kept", spare=True)
        return
    try:
        before = checked.store.read(checked.layout, header.before)
        after = checked.store.read(checked.layout, header.after)
        kept = [checked.updates.read(checked.layout.size, member.update_digest) for member in members]
    except IntegrityError:
        return  # said of the file itself; or a model was thinned
    if not np.array_equal(model_from(checked.layout, before, kept, [m.samples for m in members]), after):
        yield Finding(where, "its model is not the one that the contributions to it make")


def check_updates(checked: Checked) -> Iterator[Finding]:
    """Every update that is kept has the digest that was recorded."""
    same = (updates_table.c.round_id == memberships.c.round_id) & (updates_table.c.slot == memberships.c.slot)
    query = (
        sa.select(rounds, memberships.c.slot, memberships.c.update_digest, updates_table.c.stored_bytes)
        .join_from(updates_table, memberships, same)
        .join(rounds, rounds.c.id == updates_table.c.round_id)
        .order_by(rounds.c.id, memberships.c.slot)
    )
    for row in checked.connection.execute(query).all():
        where = f"{name_of(row)}, the kept update of slot {row.slot}"
        try:
            vector = checked.updates.read(checked.layout.size, row.update_digest)
        except IntegrityError as error:
            if _still_kept(checked, row.update_digest):
                yield Finding(where, str(error), spare=True)
            continue
        if not np.isfinite(vector).all():
            yield Finding(where, "holds numbers that are not finite")
        size = checked.updates.stored_bytes(row.update_digest)
        if size is not None and size != row.stored_bytes:
            yield Finding(where, f"its file has {size} bytes, recorded were {row.stored_bytes}", spare=True)


def check_kept_rounds(checked: Checked) -> Iterator[Finding]:
    """Of a round either all updates are kept or none; and no round with clusters claims to have been rebuilt."""
    clustered = sa.select(rounds).join(rebuilt, rebuilt.c.round_id == rounds.c.id).where(rounds.c.clusters > 0)
    for row in checked.connection.execute(clustered):
        yield Finding(name_of(row), "has clusters, and yet is said to have been rebuilt")
    held = sa.select(memberships.c.round_id, sa.func.count().label("members")).group_by(memberships.c.round_id)
    kept = sa.select(updates_table.c.round_id, sa.func.count().label("kept")).group_by(updates_table.c.round_id)
    members, files = held.subquery(), kept.subquery()
    partly = (
        sa.select(rounds, members.c.members, files.c.kept)
        .join(files, files.c.round_id == rounds.c.id)
        .join(members, members.c.round_id == rounds.c.id)
        .where(rounds.c.standing, files.c.kept != members.c.members)
    )
    for row in checked.connection.execute(partly):
        yield Finding(name_of(row), f"keeps {row.kept} of {row.members} updates", spare=True)


def check_interval(checked: Checked, interval: int) -> Iterator[Finding]:
    """A run that keeps updates keeps those of every so many rounds."""
    kept = sa.select(updates_table.c.round_id)
    due = (rounds.c.number - 1) % interval == 0
    for row in checked.connection.execute(
        sa.select(rounds).where(rounds.c.standing, due, rounds.c.id.not_in(kept))
    ):
        yield Finding(name_of(row), "should keep its updates, and keeps none", spare=True)


def _still_kept(checked: Checked, digest: bytes) -> bool:
    """Whether an update ought to be there now: a run at work may have given it up since we began."""
    with checked.connection.engine.connect() as fresh:
        return digest in updates.named(fresh)
