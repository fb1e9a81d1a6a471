"""A server that holds its own key and changes history: it restores a backup, trains on from it, edits a round."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from disavow import config
from disavow.federation import Federation
from disavow.ledger.rows import time_to_text
from disavow.proof import canonical
from disavow.proof.keys import generate, load_signer
from disavow.proof.leaves import decode_leaf
from disavow.proof.merkle import appended, root_of
from disavow.proof.notes import Checkpoint, origin_of
from disavow.rounds.options import now
from tests.conftest import SMALL
from tests.kill.erasure_driver import Driver, Ended

HONEST, BEFORE, FORKED, REWRITTEN = "honest", "before", "forked", "rewritten"
ONE, OTHER = "client-01", "client-02"


@dataclass(frozen=True)
class LyingServer:
    """Four states of one run: of four rounds; of its first two; these trained on anew; and with round 2 edited."""

    driver: Driver
    folder: Path

    @property
    def key(self) -> Path:
        return self.folder / "keys" / "signing.pub"

    def state(self, name: str) -> Path:
        return self.folder / name / "run"

    def receipts(self, name: str) -> Path:
        """What a client was given while the server was in a state."""
        return self.folder / name / "receipts"

    def __call__(self, *arguments: str | Path) -> Ended:
        ended = self.driver.run(*arguments, keys=self.folder / "keys", cwd=self.folder)
        assert ended.status == 0, ended.stderr
        return ended

    @classmethod
    def make(cls, driver: Driver, folder: Path) -> LyingServer:
        found = cls(driver, folder)
        keys = folder / "keys"
        generate(keys, name="tests", passphrase=None, at=time_to_text(now()))
        settings = config.from_values({**SMALL, "rounds": 4}, source="tests")
        with Federation.create(found.state(HONEST), settings, keys=keys) as run:
            run.train(rounds=2)
        shutil.copytree(found.state(HONEST), found.state(BEFORE))
        found("resume", found.state(HONEST))
        for client in (ONE, OTHER):
            found("receipt", found.state(HONEST), client, "-o", found.receipts(HONEST) / client)
        shutil.copytree(found.state(HONEST), found.state(REWRITTEN))
        rewrite(found.state(REWRITTEN), keys, place=2)
        shutil.copytree(found.state(BEFORE), found.state(FORKED))
        found("keyring", "accept", found.state(FORKED))
        found("resume", found.state(FORKED))
        for name in (FORKED, REWRITTEN):
            found("receipt", found.state(name), OTHER, "-o", found.receipts(name) / OTHER)
        return found


def rewrite(run: Path, keys: Path, *, place: int) -> None:
    """Change what the log says of a round, and sign the whole of it anew."""
    signer = load_signer(keys)
    assert signer is not None
    with sqlite3.connect(run / "ledger.sqlite3") as database:
        rows = database.execute("SELECT position, leaf FROM log ORDER BY position").fetchall()
        leaves = [text for _, text in rows]
        changed = json.loads(leaves[place])
        leaves[place] = canonical.encode({**changed, "pairs_within": "0.125"}).decode()
        hashes: list[bytes] = []
        frontier: list[bytes] = []
        for position, text in enumerate(leaves):
            leaf = decode_leaf(text.encode(), "leaf")
            frontier = appended(frontier, position, leaf.hash)
            hashes.append(leaf.hash)
            head = Checkpoint(origin_of(json.loads(leaves[0])["run"]), position + 1, root_of(hashes))
            database.execute(
                "UPDATE log SET leaf = ?, hash = ?, frontier = ?, head = ? WHERE position = ?",
                (text, leaf.hash, b"".join(frontier), head.signed(signer), position),
            )
