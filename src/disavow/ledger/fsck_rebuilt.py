"""The part of fsck that checks rebuilt rounds, and the updates that the run keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import sqlalchemy as sa

from disavow.errors import IntegrityError
from disavow.ledger import rows, updates
from disavow.ledger.findings import Checked, Finding, gaps, name_of
from disavow.ledger.fsck_rounds import check_event, check_members
from disavow.ledger.members import Filled
from disavow.ledger.rebuilt import model_from
from disavow.ledger.schema import rebuilt, rounds, slots, withdrawals
from disavow.ledger.schema import updates as updates_table
from disavow.privacy.events import event_of_rebuilt


def check_rebuilt(checked: Checked, header: sa.Row[Any]) -> Iterator[Finding]:
    """Everything that is wrong with one rebuilt round."""
    where = name_of(header)
    mine = sa.select(slots).where(slots.c.round_id == header.id).order_by(slots.c.slot)
    slot_rows = [dict(row._mapping) for row in checked.connection.execute(mine)]
    missing = gaps({row["slot"] for row in slot_rows}, range(header.participants))
    if missing:
        yield Finding(where, f"the row of slot {missing[0]} is missing")
        return
    made = checked.connection.execute(sa.select(rebuilt).where(rebuilt.c.round_id == header.id)).one_or_none()
    if made is None:
        yield Finding(where, "has no clusters, yet nothing says from what it was rebuilt")
        return
    if rows.rebuilt_digest(checked.run_id, dict(header._mapping), dict(made._mapping), slot_rows) != header.digest:
        yield Finding(where, "its rows are not those that were recorded: they have another digest")
        return
    source = checked.connection.execute(sa.select(rounds).where(rounds.c.id == made.source)).one()
    if source.standing or source.number < header.number or source.id >= header.id:
        yield Finding(where, f"was rebuilt from round {source.number}, which was not undone before it")
    yield from check_members(checked, header, slot_rows, where)
    event = event_of_rebuilt(checked.policy, number=header.number, attempt=header.attempt)
    yield from check_event(checked, header, event, where)
    if header.standing:
        yield from _contributions(checked, header, where)


def _contributions(checked: Checked, header: sa.Row[Any], where: str) -> Iterator[Finding]:
    """All contributions to a standing rebuilt round are kept, and make its model."""
    if not checked.identified:
        return
    query = sa.select(updates_table.c.slot).where(updates_table.c.round_id == header.id)
    kept_slots = set(checked.connection.execute(query).scalars())
    try:
        found = checked.members.of_round(checked.connection, header)
    except IntegrityError:
        return  # said of the membership itself
    if len(found) != header.participants or not found.keys() <= kept_slots:
        yield Finding(where, "stands, but not all contributions to it are kept", spare=True)
        return
    members = sorted(found.values(), key=lambda filled: filled.client.id)
    try:
        before = checked.store.read(checked.layout, header.before)
        after = checked.store.read(checked.layout, header.after)
        kept = [checked.updates.read(checked.layout.size, member) for member in members]
    except IntegrityError:
        return  # said of the file itself; or a model was thinned
    if not np.array_equal(model_from(checked.layout, before, kept, [m.samples for m in members]), after):
        yield Finding(where, "its model is not the one that the contributions to it make")


def check_updates(checked: Checked) -> Iterator[Finding]:
    """Every update that is kept has the digest that was recorded."""
    if not checked.identified:
        return
    query = sa.select(updates_table).order_by(updates_table.c.round_id, updates_table.c.slot)
    kept: defaultdict[int, list[sa.Row[Any]]] = defaultdict(list)
    for row in checked.connection.execute(query):
        kept[row.round_id].append(row)
    for header in checked.rounds:
        if header.id not in kept:
            continue
        try:
            members = checked.members.of_round(checked.connection, header)
        except IntegrityError:
            continue  # said of the membership itself
        for row in kept[header.id]:
            where = f"{name_of(header)}, the kept update of slot {row.slot}"
            if row.slot not in members:
                yield Finding(where, "is of nobody in the keyring", spare=True)
                continue
            yield from _update(checked, row, members[row.slot], where)


def _update(checked: Checked, row: sa.Row[Any], filled: Filled, where: str) -> Iterator[Finding]:
    """One update that is kept."""
    if row.name != updates.name_of(filled.key, filled.where):
        yield Finding(where, "its row names another file than its own", spare=True)
        return
    try:
        vector = checked.updates.read(checked.layout.size, filled)
    except IntegrityError as error:
        if _still_kept(checked, row.name):
            yield Finding(where, str(error), spare=True)
        return
    if not np.isfinite(vector).all():
        yield Finding(where, "holds numbers that are not finite")
    size = checked.updates.stored_bytes(filled)
    if size is not None and size != row.stored_bytes:
        yield Finding(where, f"its file has {size} bytes, recorded were {row.stored_bytes}", spare=True)


def check_kept_rounds(checked: Checked) -> Iterator[Finding]:
    """Of a round either all updates are kept or none; and no round with clusters claims to have been rebuilt."""
    clustered = sa.select(rounds).join(rebuilt, rebuilt.c.round_id == rounds.c.id).where(rounds.c.clusters > 0)
    for row in checked.connection.execute(clustered):
        yield Finding(name_of(row), "has clusters, and yet is said to have been rebuilt")
    gone = sa.select(sa.func.count()).where(withdrawals.c.round_id == rounds.c.id).scalar_subquery()
    members = rounds.c.participants - gone
    kept = sa.select(updates_table.c.round_id, sa.func.count().label("kept")).group_by(updates_table.c.round_id)
    files = kept.subquery()
    partly = (
        sa.select(rounds, members.label("members"), files.c.kept)
        .join(files, files.c.round_id == rounds.c.id)
        .where(rounds.c.standing, files.c.kept.not_in([members, rounds.c.participants]))
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


def _still_kept(checked: Checked, name: str) -> bool:
    """Whether an update ought to be there now: a run at work may have given it up since we began."""
    with checked.connection.engine.connect() as fresh:
        return name in updates.named(fresh)
