"""Logs of made-up leaves for witnesses to cosign, and witnesses that answer for them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.proof.cosignatures import WitnessKey, WitnessSigner
from disavow.proof.merkle import consistency_of, leaf_hash, root_of
from disavow.proof.notes import Checkpoint, Signer, TrustedKey
from disavow.proof.validation import to_base64
from disavow.proof.witness_client import Witness as Client
from disavow.proof.witness_keys import generate_witness_key
from disavow.witness.answers import KnownLog, Witness
from disavow.witness.heads import SeenHeads
from disavow.witness.serving import listen
from tests.cli.process import COMMAND, environment

LOG = Signer("fl.example.org", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
WITNESS = WitnessSigner("witness.example.net", Ed25519PrivateKey.from_private_bytes(bytes(32)))
ORIGIN = "disavow/run/first"


@dataclass
class MadeLog:
    """A log of which every leaf is known."""

    leaves: list[bytes] = field(default_factory=list)
    origin: str = ORIGIN
    signer: Signer = LOG

    def grown(self, count: int, story: str = "") -> MadeLog:
        """The same with more leaves, which tell a story."""
        more = [leaf_hash(f"{story} {len(self.leaves) + each}".encode()) for each in range(count)]
        return MadeLog([*self.leaves, *more], self.origin, self.signer)

    def cut(self, size: int) -> MadeLog:
        """The first leaves."""
        return MadeLog(self.leaves[:size], self.origin, self.signer)

    @property
    def head(self) -> Checkpoint:
        return Checkpoint(self.origin, len(self.leaves), root_of(self.leaves))

    @property
    def note(self) -> str:
        return self.head.signed(self.signer)

    def proof(self, old: int) -> list[bytes]:
        return consistency_of(self.leaves, old) if 0 < old < len(self.leaves) else []

    def request(self, old: int, proof: list[bytes] | None = None) -> bytes:
        """The body of add-checkpoint."""
        lines = "".join(f"{to_base64(each)}\n" for each in (self.proof(old) if proof is None else proof))
        return f"old {old}\n{lines}\n{self.note}".encode()


def witness_at(folder: Path, clock: int = 1_767_225_600) -> tuple[Witness, SeenHeads]:
    """A witness of all runs of a server."""
    heads = SeenHeads(folder)
    return Witness(WITNESS, heads, [KnownLog("disavow/run/*", (TrustedKey(LOG.public),))], lambda: clock), heads


@dataclass(frozen=True)
class Serving:
    """A witness that can be asked over HTTP."""

    url: str
    key: WitnessKey

    @property
    def client(self) -> Client:
        return Client(self.url, self.key)

    @property
    def setting(self) -> dict[str, str]:
        """As the settings of a run name it."""
        return {"url": self.url, "key": str(self.key)}


@contextmanager
def served(witness: Witness, port: int = 0) -> Iterator[Serving]:
    """Serve a witness from a thread."""
    server, url = listen(witness, host="127.0.0.1", port=port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield Serving(url, witness.signer.public)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def process(folder: Path, key: str, *, name: str = "witness") -> Iterator[tuple[Serving, subprocess.Popen[str]]]:
    """A witness as somebody runs it: the command, in a process of its own; its state outlives it."""
    private = folder / f"{name}.pem"
    if not private.exists():
        folder.mkdir(exist_ok=True)
        generate_witness_key(private, name=f"{name}.example.net", passphrase=None)
    arguments = ["witness", "--key", str(private), "--state", str(folder / name), "--port", "0", "--json"]
    started = subprocess.Popen(
        [*COMMAND, *arguments, "--log", f"disavow/run/*={key}"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield _started(started), started
    finally:
        started.kill()
        started.communicate()


def _started(process: subprocess.Popen[str]) -> Serving:
    import json

    assert process.stdout is not None
    text = ""
    while line := process.stdout.readline():
        text += line
        if line.startswith("}"):
            break
    started = json.loads(text)
    return Serving(started["url"], WitnessKey.parse(started["key"]))
