"""How a run directory comes into being: whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from disavow.domain import Layout, Policy, TrainedBy
from disavow.errors import (
    BucketRefused,
    BucketUnreachable,
    DisavowError,
    LedgerError,
    MissingExtra,
    RunError,
    RunExists,
)
from disavow.ledger import database, log, rows
from disavow.ledger.blobs import LOCATION, keep_location, location_of
from disavow.ledger.bucket import Location
from disavow.ledger.clients import register
from disavow.ledger.files import PRIVATE_FILE, PRIVATE_FOLDER, kind_of, sync_folder, write_durably
from disavow.ledger.keyring import Keyring
from disavow.ledger.lock import NAME as LOCK
from disavow.ledger.lock import Lock
from disavow.ledger.models import MODELS, ModelStore, Vector
from disavow.ledger.run_state import new_history, state_of
from disavow.ledger.schema import models, run
from disavow.proof.notes import Signer

CONFIG = "config.toml"


@dataclass(frozen=True, eq=False)
class Beginning:
    """What a run starts with."""

    policy: Policy
    layout: Layout
    initial: Vector
    clients: Iterable[str]
    config: str
    created_by: str
    at: datetime
    settings_digest: str
    trainer: TrainedBy
    keys: Path
    signer: Signer | None = None
    data: Mapping[str, str] | None = None
    models_at: Location | None = None
    database: str | None = None


def refuse_existing(directory: Path) -> None:
    """A run starts in a directory that does not exist yet, or is empty."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RunExists(
            f"{directory} exists and is never overwritten; `disavow resume {directory}` continues a run"
        )


def make(directory: Path, beginning: Beginning) -> None:
    """Furnish a new run beside its place and move it there; its keyring comes first.

    In a directory that was there, empty, the ledger file appears last, or the one that names the database.
    """
    refuse_existing(directory)
    database.refuse_unreachable(database.chosen(beginning.database), directory)  # before there is a keyring
    directory = directory.resolve()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{directory} cannot be made: {error.strerror}") from None
    workshop = directory.with_name(f".{directory.name}.new-{secrets.token_hex(4)}")
    _remove_stale(directory)
    run_id = secrets.token_hex(16)
    with Keyring.being_made(beginning.keys, run_id) as keyring:
        try:
            workshop.mkdir(mode=PRIVATE_FOLDER)
            with Lock(workshop), database.room_to_write(directory):
                _furnish(workshop, beginning, keyring)
                keyring.put_in_place()  # before the run: a run without its keyring names nobody
                _move(workshop, directory)
        except OSError as error:
            _give_up(workshop, keyring)
            refuse_existing(directory)  # somebody else was faster
            raise RunError(f"{directory} cannot be made: {error.strerror}") from None
        except BaseException:
            _give_up(workshop, keyring)
            raise
    sync_folder(directory.parent)


def _give_up(workshop: Path, keyring: Keyring) -> None:
    """Remove what was made of a run; its keyring only as long as nothing of the run is in its place."""
    keyring.close()
    with contextlib.suppress(DisavowError):
        _remove_rows(workshop)
    if (workshop / CONFIG).exists():  # what is moved first
        shutil.rmtree(keyring.folder, ignore_errors=True)
        try:
            _remove_objects(workshop)
        except BucketUnreachable:
            return  # the folder says where they are: the next attempt at this run removes both
    shutil.rmtree(workshop, ignore_errors=True)


def _remove_stale(directory: Path) -> None:
    """Delete what a killed process left half furnished; whoever is still at work there holds a lock."""
    ours = re.compile(rf"\.{re.escape(directory.name)}\.new-[0-9a-f]{{8}}")
    with contextlib.suppress(OSError):
        for stale in directory.parent.iterdir():
            if ours.fullmatch(stale.name) and kind_of(stale) == "a folder":
                # where its bucket or its database cannot be reached now, the folder stays, to name them next time
                with contextlib.suppress(DisavowError, OSError), Lock(stale):
                    _remove_objects(stale)
                    _remove_rows(stale)
                    shutil.rmtree(stale, ignore_errors=True)


def _remove_objects(workshop: Path) -> None:
    """Delete the models of a run that was never in its place, where they are not in its directory.

    Raises:
        BucketUnreachable: They may be there still.

    """
    if workshop.lstat().st_uid != os.geteuid():
        return  # not made by us: it may name anybody's models
    with contextlib.suppress(BucketRefused, LedgerError, MissingExtra):
        location = location_of(workshop)
        if location is not None:
            blobs = ModelStore.of_run(workshop, location.run_id).blobs
            blobs.remove(blobs.names())


def _remove_rows(workshop: Path) -> None:
    """Remove the ledger of a run that did not come into being, where it is not in its folder."""
    if workshop.lstat().st_uid == os.geteuid() and database.exists(workshop):
        database.of(workshop).remove()


def _move(workshop: Path, directory: Path) -> None:
    """Put a furnished run in its place. Nothing that is there is ever replaced."""
    if not directory.exists():
        workshop.rename(directory)  # fails where somebody else has put a run meanwhile
        return
    # an empty directory stays the one it is, or whoever stands in it would be left nowhere
    with Lock(directory):
        if {path.name for path in directory.iterdir()} != {LOCK}:
            raise RunExists(f"{directory} is no longer empty; nothing was overwritten")
        models_at = MODELS if location_of(workshop) is None else LOCATION
        ledger = database.NAME if (workshop / database.NAME).exists() else database.ADDRESS
        for name in (CONFIG, models_at, ledger):
            (workshop / name).rename(directory / name)
        sync_folder(directory)
    shutil.rmtree(workshop)


def _furnish(workshop: Path, beginning: Beginning, keyring: Keyring) -> None:
    """Everything a new run starts with, durable, in a folder that nobody looks at yet."""
    write_durably(workshop / CONFIG, beginning.config.encode(), mode=PRIVATE_FILE)
    if beginning.models_at is not None:  # before anything is there: what a crash leaves can be found
        keep_location(workshop, beginning.models_at.of_run(keyring.run_id))
        sync_folder(workshop.parent)
    store = ModelStore.of_run(workshop, keyring.run_id)
    store.blobs.make()
    digest, stored_bytes = store.write(beginning.layout, beginning.initial)
    row: rows.Row = {
        "run_id": keyring.run_id,
        "created_at": rows.time_to_text(beginning.at),
        "created_by": beginning.created_by,
        "policy": rows.policy_to_json(beginning.policy),
        "layout": beginning.layout.to_json(),
        "initial_model": digest,
        "settings_digest": beginning.settings_digest,
        "trainer": beginning.trainer.to_json(),
    }
    rows_of = database.new(workshop, database.chosen(beginning.database), keyring.run_id)
    database.make_empty(rows_of)
    engine = rows_of.connect(write=True)
    try:
        with database.writing(engine) as connection:
            connection.execute(models.insert().values(digest=digest, stored_bytes=stored_bytes))
            state = {"keyring": 0, "history": new_history(), "commits": 0}
            connection.execute(run.insert().values(**row, digest=rows.run_digest(row), **state))
            register(connection, keyring, beginning.clients, beginning.data or {})
            log.begin(connection, beginning.signer.public if beginning.signer else None)
            if beginning.signer:
                log.sign_head(connection, keyring.run_id, beginning.signer)
            keyring.begin(state_of(connection))
    finally:
        engine.dispose()
    sync_folder(workshop)
