"""A signed run, made by commands alone: key, training, receipts, a what-if, an erasure and its proof."""

from __future__ import annotations

import base64
import json
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disavow.proof import canonical
from disavow.proof.envelope import PAYLOAD_TYPE, Envelope
from disavow.proof.verify import CHECKS
from tests.kill.erasure_driver import Driver, Ended

SETTINGS: dict[str, Any] = {
    "seed": 5,
    "rounds": 2,
    "draws": "seeded",
    "data": {"clients": 8},
    "model": {"name": "convnet"},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3},
    "deniability": {"x": 2},
}
"""Two sticky clusters: anybody alone is deniable, and two of one cluster of three go back to round 1."""


LEAVER = "client-03"


STAYER = "client-06"


SECRET = "correct horse"


@dataclass(frozen=True)
class World:
    """Everything that was made by commands, in the order of the fields."""

    driver: Driver
    folder: Path

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    @property
    def key(self) -> Path:
        return self.keys / "signing.pub"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def proof(self) -> Path:
        return self.folder / "proof.json"

    @property
    def opening(self) -> Path:
        [path] = (self.folder / "run.openings").glob("request-1-*.json")
        return path

    @property
    def receipts(self) -> Path:
        return self.folder / "receipts"

    @property
    def what_if(self) -> Path:
        return self.folder / "what-if.json"

    @property
    def what_if_opening(self) -> Path:
        [path] = (self.folder / "run.openings").glob("what-if-*.json")
        return path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def model(self) -> Path:
        return self.folder / "model.safetensors"

    def call(self, *arguments: str | Path) -> Ended:
        return self.driver.run(*arguments, keys=self.keys, cwd=self.folder)

    def made(self, *arguments: str | Path) -> dict[str, Any]:
        """What a command that must succeed tells as JSON."""
        ended = self.call(*arguments, "--json")
        assert ended.status == 0, ended.stderr
        document: dict[str, Any] = json.loads(ended.stdout)
        return document


def checks(result: subprocess.CompletedProcess[str]) -> dict[str, bool | None]:
    found = json.loads(result.stdout)["checks"]
    assert [check["number"] for check in found] == list(range(1, len(CHECKS) + 1))
    return {check["name"]: check["passed"] for check in found if check["detail"] != "not reached"}


def tampered(path: Path, target: Path, *, at: float | bytes = 0.5) -> Path:
    """A copy with one digit of its statement changed, there or behind these bytes; still packed and canonical."""
    envelope = json.loads(path.read_bytes())
    payload = bytearray(Envelope.decode(path.read_bytes()).statement)
    place = payload.index(at) + len(at) if isinstance(at, bytes) else int(len(payload) * at)
    while not chr(payload[place]).isdigit():
        place += 1
    payload[place] = ord("1") if payload[place] != ord("1") else ord("2")
    packed = payload if envelope["payloadType"] == PAYLOAD_TYPE else zlib.compress(payload)
    target.write_bytes(canonical.encode({**envelope, "payload": base64.b64encode(packed).decode()}))
    return target
