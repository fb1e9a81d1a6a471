"""`disavow export` states what is served, and `disavow verify --serving` holds a proof against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from disavow.errors import ConfigError, OtherModel
from disavow.federation import Federation
from disavow.proof.serving import SignedServing
from tests.cli.signed_run import STAYER, World


def exported(world: World, *more: str | Path, model: Path | None = None) -> tuple[Path, dict[str, Any]]:
    model = model or world.folder / "model.safetensors"
    document = world.made("export", world.run, "-o", model, *more)
    return model, document


def verify(world: World, proof: Path, serving: Path, *more: str | Path) -> tuple[int, dict[str, Any]]:
    command = ("verify", proof, "--key", world.key, "--serving", serving, "--json", *more)
    ended = world.call(*command)
    assert ended.stdout, ended.stderr
    return ended.status, json.loads(ended.stdout)


def result_of(report: dict[str, Any]) -> bool | None:
    [found] = [check for check in report["checks"] if check["name"] == "serving"]
    passed: bool | None = found["passed"]
    return passed


def prove(world: World) -> Path:
    proof = world.folder / "proof.json"
    world.made("prove", world.run, "--request", "1", "-o", proof)
    return proof


def test_the_statement_beside_an_export_fits_the_proof_and_the_model(copied: World) -> None:
    proof = prove(copied)
    model, document = exported(copied)
    statement = Path(document["serving"])
    assert statement == copied.folder / "model.safetensors.serving.json"
    assert SignedServing.decode(statement.read_bytes()).said.model == document["model"]
    code, report = verify(copied, proof, statement, "--model", model)
    assert (code, result_of(report)) == (3, True)
    (copied.folder / "other").write_bytes(b"another")
    code, report = verify(copied, proof, statement, "--model", copied.folder / "other")
    assert (code, result_of(report)) == (OtherModel.exit_code, False)


def test_a_proof_is_not_shown_for_a_model_that_is_served_later(copied: World) -> None:
    proof = prove(copied)
    before = json.loads(copied.call("prove", copied.run, "--request", "1", "-o", proof, "--json").stdout)["as_of"]
    train_on(copied)
    _, document = exported(copied)
    code, report = verify(copied, proof, Path(document["serving"]))
    assert (code, result_of(report)) == (OtherModel.exit_code, False)
    model, document = exported(copied, "--since", str(before))
    code, report = verify(copied, proof, Path(document["serving"]), "--model", model)
    assert (code, result_of(report)) == (3, True)
    renewed = copied.folder / "renewed.json"
    copied.made("prove", copied.run, "--request", "1", "-o", renewed)
    assert verify(copied, renewed, Path(document["serving"]))[0] == 3


def train_on(world: World) -> None:
    """Train a round beyond those of the settings, so that another model is served."""
    with Federation.open(world.run, write=True, keys=world.keys) as federation:
        federation.train_round()


def test_after_a_rollback_the_model_that_was_undone_is_not_served(copied: World) -> None:
    _, document = exported(copied)
    old = Path(document["serving"]).read_bytes()
    with Federation.open(copied.run, keys=copied.keys) as federation:
        groups = [sorted(group) for group in federation.ledger.membership(1)]
    smallest = min(groups, key=len)
    ended = copied.call("erase", copied.run, *smallest[:2], "--yes")
    assert ended.status == 0, ended.stderr
    (copied.folder / "old.json").write_bytes(old)
    proof = copied.folder / "second.json"
    copied.made("prove", copied.run, "--request", "2", "-o", proof)
    code, report = verify(copied, proof, copied.folder / "old.json")
    assert (code, result_of(report)) == (OtherModel.exit_code, False)
    _, document = exported(copied, "--force")
    assert verify(copied, proof, Path(document["serving"]))[0] == 3


def test_where_nothing_can_be_stated_the_model_is_written_all_the_same(
    copied: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exported(copied, "--no-serving")[1]["serving"] is None
    assert exported(copied, "--average", "2", model=copied.folder / "mean")[1]["serving"] is None
    assert sorted(path.name for path in copied.folder.glob("*.serving.json")) == []
    monkeypatch.delenv("DISAVOW_PASSPHRASE")
    ended = copied.call("export", copied.run, "-o", copied.folder / "locked")
    assert ended.status == 0, ended.stderr
    assert "no serving statement" in ended.stdout
    refused = copied.call("export", copied.run, "-o", copied.folder / "since", "--since", "1")
    assert refused.status == ConfigError.exit_code
    assert not (copied.folder / "since").exists()


def test_a_newer_statement_takes_the_place_of_an_older_one_and_of_nothing_else(copied: World) -> None:
    model, document = exported(copied)
    statement = Path(document["serving"])
    first = statement.read_bytes()
    exported(copied)
    assert statement.read_bytes() != first
    statement.write_text("mine")
    ended = copied.call("export", copied.run, "-o", model)
    assert ended.status == ConfigError.exit_code
    assert statement.read_text() == "mine"


def test_a_what_if_is_held_against_what_is_served_too(copied: World) -> None:
    proof = copied.folder / "what-if.json"
    copied.made("prove", copied.run, STAYER, "-o", proof, "--openings", copied.folder / "openings")
    _, document = exported(copied)
    code, report = verify(copied, proof, Path(document["serving"]), "--what-if")
    assert (code, result_of(report)) == (3, True)
