"""`disavow witness`: cosign heads of logs; nothing that trains or opens a ledger is imported."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from disavow.cli.output import print_json, results
from disavow.cli.passphrase import ask_passphrase, new_passphrase
from disavow.errors import ConfigError
from disavow.proof.keys import PASSPHRASE_VARIABLE
from disavow.proof.witness_keys import generate_witness_key, load_witness_signer, public_path
from disavow.witness.answers import KnownLog, Witness
from disavow.witness.heads import SeenHeads
from disavow.witness.serving import serve as serve_witness


def new_key(path: Path, name: str, *, no_passphrase: bool, as_json: bool) -> None:
    """Make the key of a witness and print its verifier key."""
    passphrase = None if no_passphrase else os.environ.get(PASSPHRASE_VARIABLE) or new_passphrase()
    if not passphrase and not no_passphrase:
        raise ConfigError(
            f"a key needs a passphrase: set {PASSPHRASE_VARIABLE}, or say --no-passphrase to do without one"
        )
    made = generate_witness_key(path, name=name, passphrase=passphrase)
    if as_json:
        print_json({"name": made.name, "id": made.id, "public": str(made), "private": str(path)})
        return
    results().print(
        f"private key   {path}{'' if passphrase else '  (not encrypted)'}\n"
        f"verifier key  {public_path(path)}\n\n"
        f"{made}\n\n"
        "Publish the verifier key: servers ask this witness under it, and whoever verifies a proof gives it with "
        "--witness."
    )


def serve(path: Path, state: Path, logs: Sequence[str], *, host: str, port: int, as_json: bool) -> None:
    """Serve until told to stop."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    known = [KnownLog.parse(each) for each in logs]
    signer = load_witness_signer(path, ask_passphrase)
    heads = SeenHeads(state)

    def on_start(url: str) -> None:
        if as_json:
            print_json({"url": url, "key": str(signer.public), "logs": [log.origin for log in known]})
        else:
            results().print(f"witness {signer.public}\nat {url}, with the heads of {len(heads)} logs in {state}")
        sys.stdout.flush()

    try:
        serve_witness(Witness(signer, heads, known), host=host, port=port, on_start=on_start)
    finally:
        heads.close()
