"""`disavow show-proof`: in words and as JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from disavow.errors import Unreadable, VerificationError
from tests.cli import process
from tests.cli.forked import disavow
from tests.cli.process import assert_refused
from tests.cli.signed_run import LEAVER, World, tampered
from tests.proof.made_proofs import SERVER
from tests.proof.vectors.build import FOLDER as VECTORS


def test_show_proof_says_in_words_what_the_proof_says(world: World) -> None:
    result = process.disavow("show-proof", world.proof, "--key", world.key)
    assert (result.returncode, result.stderr) == (0, "")
    for words in (
        "verdict    deniable",
        "k = 3, x = 2, 1 drawn of each cluster, Δ adaptive, noise paper",
        "2 stand",
        "odds: worst round",
        "likeness: widest cluster",
        "adaptive Δ excludes nobody",
        "deniable does not mean not used",
    ):
        assert words in result.stdout
    assert LEAVER not in result.stdout
    assert "the key that the log itself names" not in result.stdout
    result = disavow("show-proof", world.proof)
    assert result.returncode == 0
    assert "Signed by the key that the log itself names; `disavow verify --key` checks it" in result.stdout


def test_show_proof_tells_the_same_as_json(story: dict[str, Any], world: World) -> None:
    document = json.loads(disavow("show-proof", world.proof, "--json").stdout)
    assert (document["kind"], document["verdict"], document["key_trusted"]) == ("erasure", "deniable", False)
    assert document["model"] == story["train"]["rounds"][-1]["model"]
    assert [row["round"] for row in document["rounds"]] == [1, 2]
    assert min(row["survivors"] for row in document["rounds"]) >= 2
    assert document["policy"].keys() >= {"representatives", "delta", "relative_delta", "odds", "statistics"}
    drawn = 1 - math.prod(1 - 1 / row["slots"] for row in document["rounds"])
    assert document["summary"]["drawn"] == pytest.approx(drawn)
    assert document["summary"]["worst_round"] == pytest.approx(
        max(float(r["log10_odds"]) for r in document["rounds"]), rel=1e-5
    )
    assert document["summary"]["adaptive"] is True
    assert all(row["spread"] <= row["delta"] and 0 <= row["pairs_within_delta"] <= 1 for row in document["rounds"])
    assert document["signed_late"] is False
    assert document["asked_at"] <= document["judged_at"] <= document["answered_at"]
    assert (document["policy"]["draws"], document["policy"]["mechanism"]) == ("seeded", "retrain")
    what_if = json.loads(disavow("show-proof", world.what_if, "--json").stdout)
    assert (what_if["kind"], what_if["asked_at"], what_if["answered_at"]) == ("what-if", None, None)


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ("two-representatives", ["k = 4, x = 2, 2 drawn of each cluster", "with a chance of 70.0%"]),
        ("relative-delta", ["Δ 0.4x the median update norm"]),
        ("odds-within-the-limit", ["over the 2 rounds that stand 1.46 (95 % quantiles)"]),
        ("never-present", ["It does not say that the client never took part"]),
    ],
)
def test_show_proof_says_what_each_policy_promises(vector: str, words: list[str]) -> None:
    shown = disavow("show-proof", VECTORS / "proofs" / f"{vector}.json", "--key", VECTORS / "keys" / "server.pub")
    assert shown.returncode == 0, shown.stderr
    text = " ".join(shown.stdout.split())
    assert [each for each in words if each not in text] == []
    adaptive, averaged = "adaptive Δ excludes nobody", "are means over all members of each cluster"
    assert (adaptive in text) == (vector in ("two-representatives", "odds-within-the-limit"))
    assert (averaged in text) == (vector in ("two-representatives", "relative-delta"))


def test_a_proof_of_the_version_before_is_refused_as_unreadable() -> None:
    proof, key = VECTORS / "proofs" / "version-2.json", VECTORS / "keys" / "server.pub"
    for command in ("verify", "show-proof"):
        result = disavow(command, proof, "--key", key)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr


def test_a_rollback_to_the_very_models_it_undid_is_not_called_retrained(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(str(SERVER.public))
    proof = VECTORS / "proofs" / "rollback-to-the-same-models.json"
    shown = disavow("show-proof", proof, "--key", tmp_path / "key")
    assert shown.returncode == 0
    assert (
        "rollback to round 1; 2 rounds since the rollback end in the very models that were undone" in shown.stdout
    )
    assert "retrained from" not in shown.stdout
    document = json.loads(disavow("show-proof", proof, "--key", tmp_path / "key", "--json").stdout)
    assert (document["rolled_back_to"], document["retrained_from"]) == (1, None)
    assert "the one served among them" in document["unchanged"]
    assert "WARNING: 2 rounds since" in disavow("verify", proof, "--key", tmp_path / "key").stdout


def test_show_proof_shows_nothing_of_a_proof_that_does_not_hold(world: World, tmp_path: Path) -> None:
    altered = tampered(world.proof, tmp_path / "tampered.json", at=b'"sha256":"')
    assert_refused(disavow("show-proof", altered), VerificationError, "signature")
    (tmp_path / "rubbish").write_bytes(b"rubbish")
    assert_refused(disavow("show-proof", tmp_path / "rubbish"), Unreadable)
    assert_refused(disavow("show-proof", world.receipts / "receipt-1.json"), Unreadable, "receipt")
