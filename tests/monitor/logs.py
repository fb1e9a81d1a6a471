"""Logs of made-up runs that can be asked, and what their clients hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from disavow.errors import LogUnreachable
from disavow.monitor.sources import RefusesProof
from disavow.monitor.watch import SeenHead
from disavow.proof.merkle import consistency_of
from disavow.proof.verify import TrustedKey
from tests.proof.made_proofs import SERVER, client
from tests.proof.vectors.short import short
from tests.proof.world import World

TRUSTED = [TrustedKey(SERVER.public)]


class WorldLog:
    """The log of a world, as its server gives it out; `size` of its leaves, where not all."""

    name = "a world"

    def __init__(self, world: World, size: int | None = None) -> None:
        self.world, self.size = world, size

    def head(self) -> str:
        return self.world.checkpoint(self.size)

    def consistency(self, old: int, new: int) -> list[bytes]:
        hashes = self.world.hashes[: self.size]
        if not 1 <= old <= new <= len(hashes):
            raise RefusesProof
        return consistency_of(hashes[:new], old)


@dataclass
class Heard:
    """What a watch has said."""

    heads: list[int] = field(default_factory=list)
    unreachable: int = 0

    def on_head(self, seen: SeenHead, before: SeenHead | None) -> None:
        self.heads.append(seen.head.size)

    def on_unreachable(self, reason: LogUnreachable) -> None:
        self.unreachable += 1


def forked(at: int, rounds: int = 8) -> tuple[World, World]:
    """Two histories of one run, the same for so many leaves."""
    one, other = (short("monitor", clients=12) for _ in range(2))
    one.train(rounds)
    other.train(at - 1).train(rounds - at + 1, without=[client(11)])
    assert one.hashes[:at] == other.hashes[:at]
    assert one.hashes[at] != other.hashes[at]
    return one, other


def write_receipts(folder: Path, world: World, leaves: Sequence[int], *, size: int | None = None) -> Path:
    """What a client kept of rounds, under the head of each unless another is said."""
    folder.mkdir(parents=True, exist_ok=True)
    for leaf in leaves:
        (folder / f"receipt-{leaf}.json").write_bytes(world.receipt(client(0), leaf, size=size))
    return folder
