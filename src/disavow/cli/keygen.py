"""`disavow keygen`: a key to sign logs and proofs with."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from disavow.cli.output import print_json, results
from disavow.cli.passphrase import ask_passphrase, new_passphrase
from disavow.errors import ConfigError
from disavow.proof import keys
from disavow.proof.keys import LIST, PASSPHRASE_VARIABLE, PRIVATE, PUBLIC, generate
from disavow.proof.notes import PublicKey
from disavow.proof.pkcs8 import ITERATIONS

_LEDGERS = ("ledger.sqlite3", "database.json")


def keygen(folder: Path | None, *, name: str, rotate: bool, no_passphrase: bool, as_json: bool) -> None:
    """Make a signing key, or replace the one there is."""
    folder = _folder(folder)
    for above in (folder.resolve(), *folder.resolve().parents):
        if any((above / name).exists() for name in _LEDGERS):
            raise ConfigError(f"{folder} lies inside the run {above}; keys lie outside every run")
    passphrase = None if no_passphrase else os.environ.get(PASSPHRASE_VARIABLE) or new_passphrase()
    if not passphrase and not no_passphrase:
        raise ConfigError(
            f"a key needs a passphrase: set {PASSPHRASE_VARIABLE}, or say --no-passphrase to do without one"
        )
    made = generate(folder, name=name, passphrase=passphrase, at=_now(), rotate=rotate)
    if as_json:
        print_json(
            {
                "name": made.public.name,
                "id": made.public.id,
                "public": str(made.public),
                "folder": str(folder),
                "replaced": made.replaced.id if made.replaced else None,
            }
        )
        return
    console = results()
    console.print(
        f"private key   {folder / PRIVATE}{'' if passphrase else '  (not encrypted)'}\n"
        f"public key    {folder / PUBLIC}\n"
        f"list of keys  {folder / LIST}\n"
        f"key id        {made.public.id}\n\n"
        f"{made.public}\n\n"
        "Publish the public key: whoever verifies a proof needs it. New runs are signed with this key; a "
        "run that is there already takes it up with `disavow resume`."
    )
    if made.replaced:
        console.print(
            f"Key {made.replaced.id[:16]} is retired and its private half destroyed; its proofs stay valid under "
            f"{folder / LIST}. Destroy copies in backups too: whoever finds one can sign with dates of the past."
        )


def rewrap(folder: Path | None, *, as_json: bool) -> None:
    """Encrypt the private key anew."""
    folder = _folder(folder)
    key = keys.rewrap(folder, ask_passphrase)
    _tell(key, folder, f"{folder / PRIVATE} is encrypted anew, with {ITERATIONS:,} iterations.", as_json=as_json)


def revoke(folder: Path | None, key_id: str, *, as_json: bool) -> None:
    """Mark a replaced key as revoked."""
    folder = _folder(folder)
    key = keys.revoke(folder, key_id, at=_now())
    words = (
        f"Key {key.id[:16]} is revoked in {folder / LIST}: nothing that it signed is accepted under this list any "
        "more.\nPublish the list anew. `disavow prove RUN --request N` makes proofs with the key in use now."
    )
    _tell(key, folder, words, as_json=as_json)


def _tell(key: PublicKey, folder: Path, words: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"name": key.name, "id": key.id, "public": str(key), "folder": str(folder)})
    else:
        results().print(words)


def _folder(given: Path | None) -> Path:
    return given or Path(os.environ.get("DISAVOW_KEYS") or Path.home() / ".disavow" / "keys")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
