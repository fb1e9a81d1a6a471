"""docs/threat-model.md says which check refuses which lie, and which lies hold until somebody compares."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from disavow.proof.keys import trusted_keys
from disavow.proof.verify import CHECKS, VerificationInputs, examine
from tests.proof.vectors.valid import LEAVER
from tests.proof.world import World

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
FOLDER = ROOT / "tests" / "proof" / "vectors"
VECTORS: list[dict[str, Any]] = json.loads((FOLDER / "vectors.json").read_text(encoding="utf-8"))

NAMED = re.findall(r"check (\d+) \((\w+)\)(?:: ((?:`[\w-]+`(?:, )?)+))?", PAGE)
"""The checks that the page names, each with the vectors that it says the check refuses."""

BY_OTHERS = {
    "forked-log": "checkpoint",
    "left-out-earlier-withdrawal": "checkpoint",
    "hidden-cluster-in-a-forged-log": "receipts",
    "hidden-rebuilt-round": "receipts",
}
"""Lies that only something kept by somebody else shows, and what that is."""


def vectors_of(name: str) -> list[dict[str, Any]]:
    """The vectors with this proof, or with this serving statement."""
    return [
        each for each in VECTORS if f"{name}.json" in {Path(each["file"]).name, Path(each["serving"] or "").name}
    ]


def given_with(vector: dict[str, Any], **without: Any) -> VerificationInputs:
    """What the vector is to be verified with, or less."""

    def read(path: str | None) -> bytes | None:
        return None if path is None else (FOLDER / path).read_bytes()

    given = {
        "opening": read(vector["opening"]),
        "receipts": [(FOLDER / path).read_bytes() for path in vector["receipts"]],
        "checkpoint": read(vector["checkpoint"]),
        **without,
    }
    return VerificationInputs(
        proof=(FOLDER / vector["file"]).read_bytes(), trusted=trusted_keys(FOLDER / vector["key"]), **given
    )


def test_each_check_is_called_by_its_number_and_refuses_the_vectors_beside_it() -> None:
    assert len(NAMED) > 20
    for number, name, vectors in NAMED:
        assert CHECKS[int(number) - 1] == name
        for vector in re.findall(r"`([\w-]+)`", vectors):
            refused = [each["expected"] for each in vectors_of(vector) if isinstance(each["expected"], dict)]
            assert (int(number), name) in {(each["check"], each["name"]) for each in refused}, vector


@pytest.mark.parametrize(("name", "kept"), BY_OTHERS.items())
def test_what_somebody_else_kept_shows_a_lie_that_the_proof_alone_does_not(name: str, kept: str) -> None:
    assert f"`{name}`" in PAGE
    [vector] = [each for each in vectors_of(name) if isinstance(each["expected"], dict)]
    refused = examine(given_with(vector)).failed
    assert refused is not None
    assert refused.name == {"checkpoint": "history", "receipts": "receipts"}[kept]
    alone = examine(given_with(vector, **{kept: None if kept == "checkpoint" else ()}))
    assert alone.valid, alone.failure


def test_nothing_catches_survivors_that_were_made_up_before_the_round() -> None:
    world = World("made up")
    world.clients[2:] = [f"nobody-{number}" for number in range(2, len(world.clients))]
    heads = [world.train(1).checkpoint(), world.train(1).checkpoint()]
    made = world.leave(LEAVER).proof(LEAVER)
    receipts = [world.receipt(LEAVER, leaf) for leaf in (1, 2)]
    for head in heads:
        assert examine(made.inputs(checkpoint=head, receipts=receipts, model=world.model, client=LEAVER)).valid


def test_nothing_ties_a_run_of_another_id_to_this_one_but_the_id() -> None:
    first, second = World("first").train(2).leave(LEAVER), World("second").train(2).leave(LEAVER)
    assert examine(second.proof(LEAVER).inputs()).valid
    refused = examine(second.proof(LEAVER).inputs(checkpoint=first.checkpoint())).failed
    assert refused is not None
    assert refused.name == "history"


def test_another_promise_in_a_log_written_anew_is_seen_by_whoever_kept_a_head() -> None:
    kept = World("promises", delta=0.1).train(2).checkpoint()
    wider = World("promises", delta=0.9).train(2).leave(LEAVER).proof(LEAVER)
    assert examine(wider.inputs()).valid
    refused = examine(wider.inputs(checkpoint=kept)).failed
    assert refused is not None
    assert refused.name == "history"


def test_an_older_proof_is_refused_by_whoever_has_a_newer_head() -> None:
    world = World("replayed").train(2).leave(LEAVER)
    old = world.proof(LEAVER)
    newer = world.train(1).checkpoint()
    assert examine(old.inputs()).valid
    refused = examine(old.inputs(checkpoint=newer)).failed
    assert refused is not None
    assert refused.name == "history"


def test_files_and_tests_that_the_page_names_are_there() -> None:
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE):
        assert (ROOT / path).is_file(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
    for attack in ("Invented survivors", "Widened Δ", "Split view", "Rewritten history", "Another model served"):
        assert f"| **{attack}**" in PAGE
    for attack in ("Hidden rounds", "Replayed proof", "Back-dated proof"):
        assert f"| **{attack}**" in PAGE
