"""A copy of a run, to try something on; the run itself may be at work meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.errors import IntegrityError, RunMissing
from disavow.ledger import database
from disavow.ledger.blobs import Blobs
from disavow.ledger.creation import CONFIG, refuse_existing
from disavow.ledger.files import PRIVATE_FOLDER
from disavow.ledger.keyring import Keyring
from disavow.ledger.ledger import Ledger
from disavow.ledger.models import MODELS, ModelStore
from disavow.ledger.run_files import make_private, refuse_unsafe
from disavow.ledger.run_state import state_of
from disavow.ledger.schema import models, run
from disavow.ledger.updates import UPDATES, UpdateStore
from disavow.ledger.updates import named as kept_updates
from disavow.proof.notes import Signer

_TRIES = 5
"""Rollbacks that may delete models while the copy is made, before one of them is taken for missing."""


@contextmanager
def scratch_copy(directory: Path, scratch: Path, *, keys: Path) -> Iterator[Ledger]:
    """Copy a run, open the copy for writing, and delete it in the end.

    Its log is signed with a key that exists nowhere else: a copy answers for nobody, and a run whose log is signed
    is copied without the key that signs it.

    Args:
        directory: The run.
        scratch: A folder for the copy alone; what an interruption left there is deleted.
        keys: The folder of the operator's keys, with the run's keyring.

    Returns:
        The copy.

    """
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        copy_run(directory, scratch / "run", keys=keys, target_keys=scratch / "keys")
        signer = Signer(scratch.name, Ed25519PrivateKey.generate())
        with Ledger.open(scratch / "run", write=True, signer=signer, keys=scratch / "keys") as ledger:
            yield ledger
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def copy_run(directory: Path, target: Path, *, keys: Path, target_keys: Path) -> None:
    """Copy one state of the ledger, and the files it names, into a directory that does not exist yet.

    Proofs stay behind: a copy answers for nobody. Wherever the run has its models and its rows, the copy has them
    in its directory.

    Args:
        directory: The run.
        target: Where the copy goes.
        keys: The folder of the operator's keys, with the run's keyring.
        target_keys: The folder for a copy of that keyring: what is forgotten in the copy stays known in the run.

    """
    refuse_existing(target)
    refuse_unsafe(directory)
    if not database.exists(directory):
        raise RunMissing(f"{directory} holds no run; there is nothing to copy")
    database.check_revision(directory)
    target.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
    make_private(target)
    (target / MODELS).mkdir(mode=PRIVATE_FOLDER)
    shutil.copyfile(directory / CONFIG, target / CONFIG)
    run_id = run_id_of(directory)
    keyring = Keyring(keys, run_id)
    here, there = ModelStore.of_run(directory, run_id), ModelStore(target / MODELS)
    kept, copied = UpdateStore.of_run(directory, run_id), UpdateStore(target / UPDATES)
    for tries_left in reversed(range(_TRIES)):
        named, updates = _copy_ledger(directory, target)
        there.remove(there.leftovers(named))
        copied.remove(copied.leftovers(updates))
        wanted = [(here.blobs, there.path(digest)) for digest in named]
        wanted += [(kept.blobs, copied.folder / name) for name in updates]
        missing = [place for source, place in wanted if not _copy_file(source, place)]
        if not missing:
            make_private(target)
            _copy_keyring(keyring, target, target_keys)
            return
        if not tries_left:
            raise IntegrityError(f"{missing[0].relative_to(target)} of {directory} is missing")


def _copy_keyring(keyring: Keyring, target: Path, keys: Path) -> None:
    """Copy the keyring as it is now, for the state of the run that was copied: it must not take it for restored."""
    engine = database.connect(target, write=False)
    try:
        with engine.connect() as connection:
            state = state_of(connection)
    finally:
        engine.dispose()
    copied = keyring.copy(keys)
    copied.adopt(state)
    copied.close()
    keyring.close()


def run_id_of(directory: Path) -> str:
    """Read the id of a run."""
    engine = database.connect(directory, write=False)
    try:
        with engine.connect() as connection:
            found: str = connection.execute(sa.select(run.c.run_id)).scalar_one()
            return found
    finally:
        engine.dispose()


def _copy_ledger(directory: Path, target: Path) -> tuple[set[str], set[str]]:
    """Copy the rows in the state of one moment; the models that they name, and the files of updates."""
    database.copy_rows(directory, target)
    copied = database.connect(target, write=False)
    try:
        with copied.connect() as connection:
            named = connection.execute(sa.select(models.c.digest).where(models.c.present)).scalars()
            return set(named), kept_updates(connection)
    finally:
        copied.dispose()


def _copy_file(source: Blobs, target: Path) -> bool:
    """Whether the file is there to be copied. Files are immutable: one that was copied before is the same."""
    if not target.exists():
        target.parent.mkdir(exist_ok=True, mode=PRIVATE_FOLDER)
        try:
            target.write_bytes(source.read(target.name))
        except FileNotFoundError:
            return False
    return True
