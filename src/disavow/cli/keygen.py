"""`disavow keygen`: a key to sign logs and proofs with."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from disavow.cli.output import print_json, results
from disavow.cli.passphrase import new_passphrase
from disavow.errors import ConfigError
from disavow.proof.keys import LIST, PASSPHRASE_VARIABLE, PRIVATE, PUBLIC, generate

_LEDGER = "ledger.sqlite3"


def keygen(folder: Path | None, *, name: str, rotate: bool, no_passphrase: bool, as_json: bool) -> None:
    """Make a signing key, or replace the one there is."""
    folder = folder or Path(os.environ.get("DISAVOW_KEYS") or Path.home() / ".disavow" / "keys")
    for above in (folder.resolve(), *folder.resolve().parents):
        if (above / _LEDGER).exists():
            raise ConfigError(f"{folder} lies inside the run {above}; keys lie outside every run")
    passphrase = None if no_passphrase else os.environ.get(PASSPHRASE_VARIABLE) or new_passphrase()
    if not passphrase and not no_passphrase:
        raise ConfigError(
            f"a key needs a passphrase: set {PASSPHRASE_VARIABLE}, or say --no-passphrase to do without one"
        )
    at = datetime.now(UTC).isoformat(timespec="microseconds")
    made = generate(folder, name=name, passphrase=passphrase, at=at, rotate=rotate)
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
        "Publish the public key: whoever verifies a proof needs it. Runs are signed with this key from now on."
    )
    if made.replaced:
        console.print(f"Key {made.replaced.id[:16]} is retired; its proofs stay valid under {folder / LIST}.")
