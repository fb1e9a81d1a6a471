"""The part of fsck that checks the log: every leaf against the rows it logs, the signed heads, the replay."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import sqlalchemy as sa

from disavow.errors import Unreadable, VerificationError
from disavow.ledger import log
from disavow.ledger.findings import Checked, Finding, clusters_and_slots, gaps
from disavow.ledger.leaves import cluster_leaves, leaf_of_rebuilt, leaf_of_round, promises
from disavow.ledger.schema import cosignatures, erasures, rebuilt, requests, run
from disavow.ledger.schema import log as log_table
from disavow.ledger.withdrawals import withdrawn_by
from disavow.proof.commitment import commit_client
from disavow.proof.cosignatures import Cosignature, WitnessKey
from disavow.proof.history import History, replay
from disavow.proof.leaves import (
    KeyLeaf,
    Leaf,
    PurgeLeaf,
    RebuiltLeaf,
    RollbackLeaf,
    RoundLeaf,
    WithdrawalLeaf,
    commit_rounds,
    decode_leaf,
)
from disavow.proof.merkle import Growing, appended, root_of
from disavow.proof.notes import KeyIndex, PublicKey, open_checkpoint, open_with_any, origin_of, read_note
from disavow.proof.validation import day_of
from disavow.proof.withdrawal_slots import slots_root, write_slots

_WHERE = "table log"
_KEPT = "the checkpoint that was kept"


def check_log(checked: Checked) -> Iterator[Finding]:
    """Everything that is wrong with the log as a whole."""
    logged = checked.connection.execute(sa.select(log_table).order_by(log_table.c.position)).all()
    if not logged:
        yield Finding(_WHERE, "is empty; the next command that writes to the run fills it", fault=False)
        return
    missing = gaps({row.position for row in logged}, range(len(logged)))
    if missing:
        yield Finding(_WHERE, f"leaf {missing[0]} is missing")
        return
    try:
        leaves = [decode_leaf(row.leaf.encode(), f"leaf {row.position}") for row in logged]
        history = replay(leaves)
    except VerificationError as error:
        yield Finding(_WHERE, str(error))
        return
    frontier: list[bytes] = []
    for row, leaf in zip(logged, leaves, strict=True):
        frontier = appended(frontier, row.position, leaf.hash)
        if leaf.hash != row.hash:
            yield Finding(_WHERE, f"leaf {row.position} does not have the hash that was recorded")
        elif b"".join(frontier) != row.frontier:
            yield Finding(_WHERE, f"leaf {row.position} does not continue the tree before it")
    yield from _heads(checked, logged, history)
    yield from _cosigned(checked, logged)
    yield from _beginning(checked, history)
    yield from _standing(checked, logged, history)
    yield from _erasures(checked, logged, leaves)


def _heads(checked: Checked, logged: Sequence[sa.Row[Any]], history: History) -> Iterator[Finding]:
    """Every head that was signed is one of this log, by the key of its time; and the last of them is signed."""
    tree, key = Growing(), history.promised.key
    for row, leaf in zip(logged, history.leaves, strict=True):
        tree.add(row.hash)
        if isinstance(leaf, KeyLeaf):
            key = leaf.key
        if row.head is not None:
            yield from _head(checked, row, key, tree)
    if history.key is not None and logged[-1].head is None:
        yield Finding(_WHERE, "its newest head is not signed")


def _cosigned(checked: Checked, logged: Sequence[sa.Row[Any]]) -> Iterator[Finding]:
    """Every cosignature is its witness's, of the head whose last leaf it names."""
    for row in checked.connection.execute(sa.select(cosignatures).order_by(cosignatures.c.position)):
        name = row.witness.partition("+")[0]
        try:
            head = read_note(logged[row.position].head or "", "the head").head
            holds = Cosignature.parse(row.line).holds(WitnessKey.parse(row.witness), head)
        except (Unreadable, IndexError):
            holds = False
        if not holds:
            what = f"the one of {name} at leaf {row.position} is no cosignature of the head there"
            yield Finding("table cosignatures", what)


def _head(checked: Checked, row: sa.Row[Any], key: PublicKey | None, tree: Growing) -> Iterator[Finding]:
    where = f"the head at leaf {row.position}"
    if key is None:
        yield Finding(_WHERE, f"{where} is signed, though no key is named")
        return
    try:
        head = open_checkpoint(row.head, key, where)
    except VerificationError as error:
        yield Finding(_WHERE, str(error))
        return
    if (head.origin, head.size, head.root) != (origin_of(checked.run_id), tree.size, tree.root):
        yield Finding(_WHERE, f"{where} is not that of these leaves")


def _beginning(checked: Checked, history: History) -> Iterator[Finding]:
    row = checked.connection.execute(sa.select(run)).one()
    if promises(row, history.promised.key) != history.promised:
        yield Finding(_WHERE, "leaf 0 promises something else than the table run")


def _standing(checked: Checked, logged: Sequence[sa.Row[Any]], history: History) -> Iterator[Finding]:
    """Every round has its leaf, and those stand that the log says stand."""
    positions = {row.round_id: row.position for row in logged if row.round_id is not None}
    if set(positions) != {header.id for header in checked.rounds}:
        yield Finding(_WHERE, "does not have one leaf for each recorded round")
        return
    for header in checked.rounds:
        if header.standing != (positions[header.id] in set(history.standing)):
            yield Finding(
                _WHERE, f"round {header.number}, attempt {header.attempt}: stands in one, not in the other"
            )


def _erasures(checked: Checked, logged: Sequence[sa.Row[Any]], leaves: Sequence[Leaf]) -> Iterator[Finding]:
    """Every erasure has its withdrawal, whose entries are the withdrawn slots, and its rollback; or its purge."""
    latest = list(accumulate((leaf.time for leaf in leaves), max))
    withdrawal = {
        row.erasure: (row.position, leaf)
        for row, leaf in zip(logged, leaves, strict=True)
        if isinstance(leaf, WithdrawalLeaf)
    }
    purge = {row.erasure: leaf for row, leaf in zip(logged, leaves, strict=True) if isinstance(leaf, PurgeLeaf)}
    for erasure in checked.connection.execute(sa.select(erasures).order_by(erasures.c.id)):
        if erasure.purge:
            logged_purge = purge.pop(erasure.id, None)
            if logged_purge is None or logged_purge.to != erasure.rollback_to:
                yield Finding(_WHERE, f"the purge of erasure {erasure.id} is not the one in the log")
            continue
        found = withdrawal.pop(erasure.id, None)
        if found is None:
            yield Finding(_WHERE, f"erasure {erasure.id} has no withdrawal in it")
            continue
        place, leaf = found
        gone = withdrawn_by(checked.connection, erasure.id)
        at = max(day_of(erasure.opened_at), *(request.asked_at for request in leaf.requests))
        due = slots_root([each.inner for each in gone]), write_slots(gone, place)
        if (*due, log.not_before(at, latest[place - 1])) != (leaf.root, leaf.slots, leaf.at):
            yield Finding(_WHERE, f"leaf {place} is not the withdrawal of erasure {erasure.id}")
        following = leaves[place + 1] if place + 1 < len(leaves) else None
        if erasure.rollback_to != (following.to if isinstance(following, RollbackLeaf) else None):
            yield Finding(_WHERE, f"the rollback of erasure {erasure.id} is not the one in the log")
        yield from _requests(checked, erasure.id, leaf, place)
    for erasure_id in purge:
        yield Finding(_WHERE, f"it has a purge of erasure {erasure_id}, which is none")
    for erasure_id, (place, _) in withdrawal.items():
        yield Finding(_WHERE, f"leaf {place} is the withdrawal of erasure {erasure_id}, which is not there")


def _requests(checked: Checked, erasure: int, leaf: WithdrawalLeaf, place: int) -> Iterator[Finding]:
    query = sa.select(requests).where(requests.c.erasure == erasure).order_by(requests.c.id)
    found = checked.connection.execute(query).all()
    in_leaf = [(request.asked_at, request.verdict, request.records is not None) for request in leaf.requests]
    kept = [(day_of(request.asked_at), request.verdict, request.records is not None) for request in found]
    if kept != in_leaf:
        yield Finding(_WHERE, f"leaf {place} tells of other requests than those of erasure {erasure}")
        return
    for request, logged in zip(found, leaf.requests, strict=True):
        client = checked.members.ids_of([request.client]).get(request.client) if request.client else None
        if client is None:
            continue
        salts = checked.members.request_salts(request.client, request.nonce)
        positions = log.rounds_of(checked.connection, checked.members, request.client)
        where = commit_rounds(salts.rounds, [each for each in positions if each < place])
        who = commit_client(run_id=checked.run_id, salt=salts.client, client=client)
        what = log.commit_requested_records(checked.members, request, salts)
        if (logged.rounds, logged.client, logged.records) != (where, who, what):
            yield Finding(f"request {request.id}", "does not open its commitments in the log")


def read_kept_head(note: bytes) -> str:
    """The text of a checkpoint that somebody kept; `Unreadable` where it is none."""
    try:
        text = note.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable(f"{_KEPT} is not UTF-8") from None
    read_note(text, _KEPT, cosigned=True)
    return text


def check_kept_head(checked: Checked, note: str) -> Iterator[Finding]:
    """A head that somebody kept was signed by a key of this log, and its leaves are the first ones of it."""
    hashes = log.hashes_of(checked.connection)
    try:
        kept = open_with_any(note, KeyIndex(log.keys_of(checked.connection)), _KEPT, cosigned=True)
    except VerificationError:
        yield Finding(_WHERE, f"{_KEPT} is not signed by a key of this log")
        return
    if kept.origin != origin_of(checked.run_id):
        yield Finding(_WHERE, f"{_KEPT} is of another run's log")
    elif kept.size > len(hashes):
        yield Finding(_WHERE, f"{_KEPT} has {kept.size} leaves, this log only {len(hashes)}: it was cut short")
    elif root_of(hashes[: kept.size]) != kept.root:
        yield Finding(_WHERE, f"its first {kept.size} leaves are not those of {_KEPT}: it was rewritten")


def check_round_leaf(checked: Checked, header: sa.Row[Any]) -> Iterator[Finding]:
    """A round's leaf is that of its rows."""
    connection = checked.connection
    row = connection.execute(sa.select(log_table).where(log_table.c.round_id == header.id)).one_or_none()
    if row is None:
        return  # `check_log` says so
    groups, slot_rows = clusters_and_slots(checked, header.id)
    where = f"the leaf of round {header.number}, attempt {header.attempt}"
    if header.clusters == 0:
        mechanism = connection.execute(
            sa.select(rebuilt.c.mechanism).where(rebuilt.c.round_id == header.id)
        ).scalar()
        yield from _compare(checked, row, leaf_of_rebuilt(dict(header._mapping), str(mechanism), slot_rows), where)
        return
    made = cluster_leaves(groups, slot_rows)
    if b"".join(leaf.hash for leaf in made) != row.clusters:
        yield Finding(_WHERE, f"{where} keeps other clusters than those recorded")
    yield from _compare(checked, row, leaf_of_round(dict(header._mapping), made), where)


def _compare(checked: Checked, row: sa.Row[Any], due: RoundLeaf | RebuiltLeaf, where: str) -> Iterator[Finding]:
    try:
        before = log.latest_before(checked.connection, row.position)
    except VerificationError:
        return  # `check_log` says so
    if before is None:
        return  # `check_log` says so
    due = replace(due, at=log.not_before(due.at, before))
    if due.to_json() != json.loads(row.leaf):
        yield Finding(_WHERE, f"{where} is not that of its rows")
