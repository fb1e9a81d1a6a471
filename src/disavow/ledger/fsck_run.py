"""Check a run from its stored bytes: every digest recomputed, every invariant tested, every fault named."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from disavow.config import CHANGEABLE, settings_digest
from disavow.config import load as load_settings
from disavow.domain import EngineChoice, Layout, RequestState, VerdictKind
from disavow.domain.strategies import MECHANISMS
from disavow.errors import ConfigError, IntegrityError, KeyringOutdated, LedgerError, LedgerVersion, RunError
from disavow.ledger import database, rows, updates
from disavow.ledger.backend import Objects, backend_of
from disavow.ledger.blobs import LOCATION, location_of
from disavow.ledger.creation import CONFIG
from disavow.ledger.findings import Checked, Finding, gaps, missing_rows, name_of
from disavow.ledger.fsck_log import check_kept_head, check_log, check_round_leaf, read_kept_head
from disavow.ledger.fsck_proofs import check_proofs
from disavow.ledger.fsck_rebuilt import check_interval, check_kept_rounds, check_rebuilt, check_updates
from disavow.ledger.fsck_requests import check_histories, check_releases, check_returns
from disavow.ledger.fsck_rounds import check_anchors, check_round
from disavow.ledger.keyring import Keyring, KeyringView
from disavow.ledger.keys import default_folder
from disavow.ledger.members import Members
from disavow.ledger.models import MODELS, ModelStore, from_safetensors
from disavow.ledger.proofs import PROOFS
from disavow.ledger.restored import restored
from disavow.ledger.run_files import exposed_in, unsafe_in
from disavow.ledger.schema import erasures, models, requests, rounds, run, withdrawals
from disavow.ledger.updates import UPDATES, UpdateStore

_TRIES = 20

Progress = Callable[[int, int], None]


def fsck(
    directory: Path,
    progress: Progress = lambda done, total: None,
    *,
    checkpoint: bytes | None = None,
    keys: Path | None = None,
) -> list[Finding]:
    """Everything that is wrong with a run; an empty list when nothing is. Changes nothing.

    `progress` is called with what has been checked so far and the total, in models and rounds. `checkpoint` is a
    head of the log that somebody kept: the log must go on from it. `keys` is the folder of the operator's keys:
    with the run's keyring in it, who filled which slot is checked too.
    """
    kept = None if checkpoint is None else read_kept_head(checkpoint)
    unsafe = [
        Finding(found.name, f"is {kind}, which a run never holds there") for found, kind in unsafe_in(directory)
    ]
    if unsafe:
        return unsafe  # nothing of it is read
    if not database.exists(directory):
        raise RunError(f"{directory} holds no run: there is no {database.NAME}")
    rows_of = database.of(directory)
    engine = rows_of.connect(write=False)
    try:
        with engine.connect() as connection:
            return _check(directory, connection, progress, kept, default_folder() if keys is None else keys)
    except rows_of.unreadable as error:
        if isinstance(error, LedgerVersion):
            raise
        return [Finding(rows_of.name, f"is damaged: {getattr(error, 'orig', error)}")]
    finally:
        engine.dispose()


def _check(
    directory: Path, connection: sa.Connection, progress: Progress, kept_head: str | None, keys: Path
) -> list[Finding]:
    database.check_revision(directory)
    rows_of = backend_of(connection)
    found = [Finding(where, what) for where, what in rows_of.faults(connection)]
    schema, expected = rows_of.objects(connection), rows_of.expected_objects(connection, database.HEAD)
    where = f"{rows_of.name}, schema"
    if expected is None:
        found.append(Finding(where, "was not checked: this role may not make a schema to compare", fault=False))
    else:
        found += _changed_in_schema(where, schema, expected)
    if any(finding.fault for finding in found):
        return found  # nothing read from a damaged file means anything
    if expected is not None:
        found += _added_to_schema(where, schema, expected)
    try:
        inside = location_of(directory) is None
    except LedgerError as error:
        return [*found, Finding(LOCATION, str(error))]
    if inside and not (directory / MODELS).is_dir():
        return [*found, Finding(MODELS, "the folder is missing")]
    try:
        checked = _load(directory, connection, keys)
        found += _promises(connection)
        found += _settings(directory / CONFIG, connection)
    except (LedgerError, ValueError, TypeError, KeyError) as error:
        return [*found, Finding("table run", str(error))]
    query = sa.select(models.c.digest, models.c.stored_bytes).where(models.c.present)
    digests = connection.execute(query).all()
    total = len(digests) + len(checked.rounds)
    for done, (digest, stored_bytes) in enumerate(digests):
        progress(done, total)
        found += _model(checked, str(digest), stored_bytes)
    present = {digest for digest, _ in digests}
    found += _readable("table rounds", partial(_chain, checked))
    found += _readable("table models", partial(_kept, checked, present))
    found += _readable("table erasures", partial(_erasures, checked))
    found += _readable("table request_events", partial(check_histories, checked))
    found += _readable("table releases", partial(check_releases, checked))
    found += _readable("table run", partial(_keyring, checked))
    found += _readable("keyring", partial(check_returns, checked))
    found += _readable("table anchors", partial(check_anchors, checked))
    found += _readable("table log", partial(check_log, checked))
    if kept_head is not None:
        found += _readable("table log", partial(check_kept_head, checked, kept_head))
    for done, header in enumerate(checked.rounds):
        progress(len(digests) + done, total)
        check = check_round if header.clusters else check_rebuilt
        faults = _readable(name_of(header), partial(check, checked, header))
        found += faults or _readable(name_of(header), partial(check_round_leaf, checked, header))
    found += _readable("table updates", partial(check_updates, checked))
    found += _readable("table updates", partial(check_kept_rounds, checked))
    found += _readable("table updates", partial(_due_updates, checked))
    found += _readable(PROOFS, partial(check_proofs, checked))
    found += _leftovers(checked, present)
    progress(total, total)
    return found


def _keyring(checked: Checked) -> Iterator[Finding]:
    """The keyring is whole, and no older than the run; without it, members are not checked."""
    keyring = checked.members.keyring
    if not keyring.exists:
        what = f"is not in {keyring.folder.parent.parent}: who filled which slot was not checked"
        yield Finding("keyring", what, fault=False)
        return
    for fault in keyring.faults():
        yield Finding("keyring", fault)
    if keyring.unfinished():
        what = "clients are being forgotten; where that was interrupted, the next command that writes completes it"
        yield Finding("keyring", what, fault=False)
    try:
        description = str(restored(checked.connection, checked.members))
    except KeyringOutdated as error:
        yield Finding("keyring", str(error))
        return
    if description:
        yield Finding("table log", f"the run is {description}")


def _due_updates(checked: Checked) -> Iterator[Finding]:
    """What the mechanism of the settings needs is there; settings that cannot be read are said elsewhere."""
    try:
        mechanism = load_settings(checked.directory / CONFIG).mechanism
    except ConfigError:
        return
    if MECHANISMS[mechanism.name].keeps_updates:
        yield from check_interval(checked, mechanism.interval)


def _readable(where: str, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """What a check finds; where values are not even of the right kind, or name what is not registered, that."""
    try:
        return list(check())
    except (
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        struct.error,
        AttributeError,
        ConfigError,
    ) as error:
        return [Finding(where, f"holds values that cannot be: {error}")]


def _changed_in_schema(where: str, found: Objects, expected: Objects) -> Iterator[Finding]:
    """What the format has and this ledger has not, or has otherwise: a view could stand in for a table."""
    for (kind, name), definition in expected.items():
        if (kind, name) not in found:
            yield Finding(where, f"the {kind} {name} is missing")
        elif found[kind, name] != definition:
            yield Finding(where, f"the {kind} {name} is not as the format has it")


def _added_to_schema(where: str, found: Objects, expected: Objects) -> Iterator[Finding]:
    """What this ledger has and the format has not: a trigger could keep what an erasure deletes."""
    for kind, name in found.keys() - expected.keys():
        yield Finding(where, f"the {kind} {name!a} is none of a ledger's: it may keep what erasures delete")


def _load(directory: Path, connection: sa.Connection, keys: Path) -> Checked:
    found = connection.execute(sa.select(run)).all()
    if len(found) != 1:
        raise LedgerError(f"holds {len(found)} rows instead of one")
    [row] = found
    keyring = _settled(connection, Keyring(keys, row.run_id))
    return Checked(
        directory=directory,
        connection=connection,
        run_id=row.run_id,
        policy=rows.policy_from_json(row.policy),
        layout=Layout.from_json(row.layout),
        initial_model=row.initial_model,
        store=ModelStore.of_run(directory, row.run_id),
        updates=UpdateStore.of_run(directory, row.run_id),
        members=Members(keyring, row.run_id),
        rounds=tuple(connection.execute(sa.select(rounds).order_by(rounds.c.id))),
    )


def _settled(connection: sa.Connection, keyring: Keyring) -> Keyring:
    """Take one state of the keyring, and look anew at the run as it was then: both may be at work."""
    try:
        for _ in range(_TRIES):
            view = KeyringView(keyring)
            connection.rollback()
            connection.execute(sa.select(run)).one()
            if view.is_still(keyring):
                break
    except ConfigError:
        return keyring  # there is none, or it is damaged: `_keyring` says so
    return view


def _promises(connection: sa.Connection) -> Iterator[Finding]:
    row = connection.execute(sa.select(run)).one()
    if rows.run_digest(dict(row._mapping)) != row.digest:
        yield Finding("table run", "is not what was recorded when the run was created: it has another digest")
    if row.engine is not None:
        EngineChoice.from_text(row.engine)  # what is not one is a finding of this table


def _settings(path: Path, connection: sa.Connection) -> Iterator[Finding]:
    if not path.is_file():
        yield Finding(path.name, "is missing")
        return
    bound: str = connection.execute(sa.select(run.c.settings_digest)).scalar_one()
    try:
        if bound and settings_digest(load_settings(path)) != bound:
            changeable = ", ".join(CHANGEABLE)
            yield Finding(path.name, f"was changed since the run was started (only {changeable} may be)")
    except ConfigError as error:
        if bound:
            yield Finding(path.name, f"cannot be used: {error}")


def _model(checked: Checked, digest: str, stored_bytes: int) -> Iterator[Finding]:
    where = f"model {digest[:12]}"
    try:
        vector = from_safetensors(checked.layout, checked.store.read_bytes(checked.layout, digest))
    except IntegrityError as error:
        if _still_present(checked, digest):
            yield Finding(where, str(error))
        return
    if not np.isfinite(vector).all():
        yield Finding(where, "holds numbers that are not finite")
    size = checked.store.stored_bytes(digest)
    if size is not None and size != stored_bytes:
        yield Finding(where, f"its file has {size} bytes, recorded were {stored_bytes}")


def _erasures(checked: Checked) -> Iterator[Finding]:
    """Every undone round was undone by an erasure, and every request is either waiting or part of one."""
    yield from missing_rows(checked, erasures)
    yield from missing_rows(checked, requests)
    journal = checked.connection.execute(sa.select(erasures)).all()
    targets = {row.id: row.rollback_to for row in journal}
    states = {row.id: row.state for row in journal}
    for row in journal:
        if row.broken is not None and (row.rollback_to is None or row.rollback_to >= row.broken):
            yield Finding(
                f"erasure {row.id}", f"goes back to round {row.rollback_to} for broken round {row.broken}"
            )
    for header in checked.rounds:
        if header.standing and header.superseded_by is not None:
            yield Finding(name_of(header), f"is standing, though erasure {header.superseded_by} undid it")
        first = targets.get(header.superseded_by)
        if not header.standing and (first is None or header.number < first):
            yield Finding(name_of(header), "is superseded, though no erasure undid it")
    for row in checked.connection.execute(sa.select(requests)):
        if rows.request_checksum(dict(row._mapping)) != row.checksum:
            yield Finding(f"request {row.id}", "is not what was recorded: it has another checksum")
        if states.get(row.erasure) == RequestState.ANSWERED and row.client is not None:
            yield Finding(f"request {row.id}", "is answered, though its client has not been forgotten")
        closed = row.cancelled_at is not None or row.refused_at is not None
        if closed and (row.erasure is not None or row.verdict is not None):
            yield Finding(f"request {row.id}", "is cancelled or refused, yet was judged")
        waiting = row.erasure is None and not closed
        if waiting and (row.client is None or row.verdict is not None):
            yield Finding(f"request {row.id}", "is waiting, yet has no client or has a verdict")
        if row.erasure is not None and row.verdict not in set(VerdictKind):
            yield Finding(f"request {row.id}", "was judged, yet has no verdict")
        yield from _records(checked, row)
    yield from _unpurged(checked)


def _records(checked: Checked, row: sa.Row[Any]) -> Iterator[Finding]:
    """What a request says of records goes together; once judged, the keyring has them and the client's next key."""
    where, keyring = f"request {row.id}", checked.members.keyring
    if row.records is None and (row.successor is not None or row.word is not None):
        yield Finding(where, "is of a whole client, and yet says something of its records")
    if row.records is not None and row.records < 1:
        yield Finding(where, f"names {row.records} records")
    if row.successor is not None and (row.client is None or row.erasure is None):
        yield Finding(where, "has a key to go on with for a client that was not withdrawn, or is forgotten already")
    ended = row.cancelled_at is not None or row.refused_at is not None  # then the keyring has let go of the records
    if row.records is None or row.client is None or ended or not checked.identified:
        return
    named = keyring.requested_records(row.client, row.nonce)
    known = keyring.by_number([row.client]).get(row.client)
    if known is not None and len(named) != row.records:
        yield Finding(where, f"names {row.records} records, and the keyring has {len(named)} of them")
    left = known is not None and keyring.has_left(known.id)  # then its next key may be destroyed before its old one
    if row.successor is not None and not left and not keyring.by_number([row.successor]):
        yield Finding(where, "has a client to go on with another key, which is not in the keyring")
    if row.erasure is not None and known is not None:
        excluded = keyring.exclusions([known.id])[known.id]
        if not all(map(excluded.excludes, named)):
            what = "is judged, and its records are not excluded yet; the next command that writes completes it"
            yield Finding(where, what, fault=False)


def _unpurged(checked: Checked) -> Iterator[Finding]:
    """Whose first standing round is noted is in that round, and whoever has a withdrawn slot somewhere is noted."""
    standing = {header.id: header.number for header in checked.rounds if header.standing}
    query = sa.select(withdrawals.c.erasure, withdrawals.c.round_id).distinct()
    touched: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for row in checked.connection.execute(query):
        if row.round_id in standing:
            touched[row.erasure][row.round_id] = standing[row.round_id]
    noted: defaultdict[int, list[int]] = defaultdict(list)
    for row in checked.connection.execute(sa.select(requests).where(requests.c.first_round.is_not(None))):
        if row.first_round not in touched[row.erasure]:
            yield Finding(f"request {row.id}", "is said to be in a round that it is not withdrawn from")
            continue
        if row.purged_at is not None:
            yield Finding(f"request {row.id}", "is said to be purged, and a round of it stands")
        noted[row.erasure].append(standing[row.first_round])
    for erasure, found in touched.items():
        if min(found.values(), default=None) != min(noted[erasure], default=None):
            yield Finding(f"erasure {erasure}", "withdrew slots of standing rounds for which no request is noted")


def _still_present(checked: Checked, digest: str) -> bool:
    """Whether a model ought to be there now: a run at work may have given it up since we began."""
    with checked.connection.engine.connect() as fresh:
        query = sa.select(models.c.present).where(models.c.digest == digest)
        return bool(fresh.execute(query).scalar())


def _chain(checked: Checked) -> Iterator[Finding]:
    """Rounds are numbered without gaps, and each starts from the model that the one before it produced."""
    yield from missing_rows(checked, rounds)
    attempts: defaultdict[int, list[int]] = defaultdict(list)
    for header in checked.rounds:
        attempts[header.number].append(header.attempt)
    for number, found in sorted(attempts.items()):
        if found != list(range(1, len(found) + 1)):
            yield Finding(f"round {number}", f"its attempts are {found}, not counted from 1")
    standing = sorted((h for h in checked.rounds if h.standing), key=lambda header: header.number)
    numbers = [header.number for header in standing]
    for number in gaps(set(numbers), range(1, max(numbers, default=0) + 1)):
        yield Finding(f"round {number}", "no standing round has this number: there is a gap")
    if standing and standing[0].number == 1 and standing[0].before != checked.initial_model:
        yield Finding("round 1", "does not start from the initial model")
    for one, two in pairwise(standing):
        if two.number == one.number + 1 and two.before != one.after:
            yield Finding(f"round {two.number}", f"does not start from the model of round {one.number}")


def _kept(checked: Checked, present: set[str]) -> Iterator[Finding]:
    """The initial model and the newest are there, and those of the other standing rounds unless thinned."""
    thinned = set(checked.connection.execute(sa.select(models.c.digest).where(models.c.thinned)).scalars())
    standing = sorted((h for h in checked.rounds if h.standing), key=lambda header: header.number)
    if checked.initial_model not in present:
        yield Finding("table models", "the initial model is marked as deleted")
    for header in standing:
        if not {header.before, header.after} <= present | thinned:
            yield Finding(name_of(header), "is standing, but its model is marked as deleted")
    if standing and standing[-1].after in thinned:
        yield Finding(name_of(standing[-1]), "is the newest, but its model is marked as thinned")
    for digest in sorted(present & thinned):
        yield Finding(f"model {digest[:12]}", "is marked as thinned, and as there")


def _leftovers(checked: Checked, named: set[str]) -> Iterator[Finding]:
    kept = updates.named(checked.connection)
    leftovers = [f"{MODELS}/{name}" for name in checked.store.leftovers(named)]
    for name in [*leftovers, *(f"{UPDATES}/{name}" for name in checked.updates.leftovers(kept))]:
        what = "no row names this file; the next command that writes to the run removes it"
        yield Finding(name, what, fault=False)
    exposed = exposed_in(checked.directory)
    if exposed:
        more = f", like {len(exposed) - 1} more files" if len(exposed) > 1 else ""
        what = f"is open to others than its owner{more}; the next command with which the owner writes ends that"
        yield Finding(exposed[0], what, fault=False)
    strangers = [f"{MODELS}/{name}" for name in checked.store.strangers()]
    for name in [*strangers, *(f"{UPDATES}/{name}" for name in checked.updates.strangers())]:
        what = "is no file of a run; no command reads or removes it"
        yield Finding(name, what, fault=False)
