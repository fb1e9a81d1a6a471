"""`disavow prove`, `receipt`, `checkpoint` and `export`: what they write, and what they refuse."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from pathlib import Path
from typing import Any

from disavow.ledger import Ledger, fsck
from disavow.ledger.id_search import files_with
from disavow.ledger.models import from_safetensors
from tests.cli.process import write_config
from tests.cli.signed_run import LEAVER, SETTINGS, STAYER, World

# -- the way there -----------------------------------------------------------------------------------------------


def test_receipts_were_written_for_every_round_and_for_their_owner_alone(
    story: dict[str, Any], world: World
) -> None:
    paths = [world.receipts / f"receipt-{number}.json" for number in (1, 2)]
    assert story["receipt"] == {"run": str(world.run), "client": LEAVER, "receipts": [str(path) for path in paths]}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}


def test_the_erasure_left_a_proof_in_the_run_and_an_opening_outside(story: dict[str, Any], world: World) -> None:
    [request] = story["erase"]["requests"]
    assert (request["client"], request["state"], request["verdict"]) == (LEAVER, "answered", "deniable")
    assert (story["prove"]["renewed"], story["prove"]["request"]) == (False, 1)
    assert (world.run / "proofs" / "request-1.json").read_bytes() == world.proof.read_bytes()
    assert story["prove"]["kind"] == "erasure"
    assert stat.S_IMODE(world.opening.stat().st_mode) == 0o600
    assert files_with(world.run, LEAVER) == []
    assert fsck(world.run, keys=world.keys) == []
    assert world.call("fsck", world.run, "--absent", LEAVER).status == 0


def test_the_what_if_changed_nothing_and_its_opening_is_outside_the_run(
    story: dict[str, Any], world: World
) -> None:
    assert story["what-if"]["kind"] == "what-if"
    assert story["what-if"]["opening"] == str(world.what_if_opening)
    assert stat.S_IMODE(world.what_if_opening.stat().st_mode) == 0o600
    assert STAYER not in world.what_if_opening.name
    with Ledger.open(world.run, keys=world.keys) as ledger:
        assert STAYER in ledger.clients()


def test_a_checkpoint_is_printed_or_written_and_is_the_head_that_receipts_were_made_under(world: World) -> None:
    kept = json.loads((world.receipts / "receipt-1.json").read_bytes())["checkpoint"]
    assert world.checkpoint.read_text(encoding="utf-8") == kept
    ended = world.call("checkpoint", world.run)
    assert ended.status == 0
    assert ended.stdout.startswith("disavow/run/")
    assert int(ended.stdout.split("\n")[1]) == int(kept.split("\n")[1]) + 1  # the erasure came after


def test_fsck_binds_a_run_to_a_head_that_was_kept(world: World, tmp_path: Path) -> None:
    assert world.call("fsck", world.run, "--checkpoint", world.checkpoint).status == 0
    newest = tmp_path / "newest"
    assert world.call("checkpoint", world.run, "-o", newest).status == 0
    assert world.call("fsck", world.run, "--checkpoint", newest).status == 0
    # another run of the same settings, by the same server: only the head tells them apart
    other = World(world.driver, tmp_path)
    shutil.copytree(world.keys, other.keys)
    config = write_config(tmp_path / "config.toml", SETTINGS)
    other.made("train", config, "--run", other.run)
    assert world.call("fsck", other.run).status == 0
    refused = world.call("fsck", other.run, "--checkpoint", world.checkpoint)
    assert refused.status == 1
    assert "fault: table log: " in refused.stdout
    (tmp_path / "garbage").write_bytes(b"\xff")
    assert world.call("fsck", world.run, "--checkpoint", tmp_path / "garbage").status == 2
    assert world.call("fsck", world.run, "--checkpoint", tmp_path / "nowhere").status == 2


def test_the_exported_model_has_the_digest_that_it_was_told_by(story: dict[str, Any], world: World) -> None:
    assert hashlib.sha256(world.model.read_bytes()).hexdigest() == story["export"]["model"]
    assert story["export"]["mean_of"] is None


def test_an_exported_mean_is_of_the_last_models_and_says_that_proofs_do_not_name_it(world: World) -> None:
    file = world.model.with_name("mean.safetensors")
    document = world.made("export", world.run, "-o", file, "--average", "2")
    with Ledger.open(world.run, keys=world.keys) as ledger:
        mean, digests = ledger.mean_model(2)
        newest = ledger.last_round
        assert from_safetensors(ledger.layout, file.read_bytes()).tobytes() == mean.tobytes()
    assert document["mean_of"] == list(digests)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == document["model"] != digests[-1]
    said = world.call("export", world.run, "-o", file, "--average", "2")
    assert f"the mean of the models after rounds {newest - 1} to {newest}" in " ".join(said.stdout.split())
    refused = world.call("export", world.run, "-o", file, "--average", str(newest + 1))
    assert (refused.status, f"no more rounds than {newest}" in " ".join(refused.stderr.split())) == (2, True)


# -- prove and receipt refuse ------------------------------------------------------------------------------------


def test_prove_and_receipt_refuse_what_they_cannot_do(world: World, tmp_path: Path) -> None:
    for command in ("prove", "receipt"):
        ended = world.call(command, world.run, "nobody", "-o", tmp_path / "out")
        assert ended.status == 7, ended.stderr
        assert "'nobody' is not a client of this run" in ended.stderr
    ended = world.call("receipt", world.run, STAYER, "-o", tmp_path / "out", "--round", "9")
    assert ended.status == 7
    assert "was not in round 9" in ended.stderr
    ended = world.call("prove", world.run, STAYER, "-o", tmp_path / "p", "--openings", world.run / "openings")
    assert ended.status == 2
    assert "openings and receipts are never kept in the run" in ended.stderr
    assert not (tmp_path / "p").exists()
    ended = world.call("erase", world.run, STAYER, "--openings", world.run / "openings")
    assert ended.status == 2
    with Ledger.open(world.run, keys=world.keys) as ledger:
        assert STAYER in ledger.clients()


def test_without_a_key_to_sign_with_the_proof_is_given_out_as_it_was_kept(copied: World) -> None:
    config = copied.run / "config.toml"
    config.write_text(config.read_text().replace("rounds = 2", "rounds = 3"))
    assert copied.call("resume", copied.run).status == 0
    for name in ("signing.pem", "signing.pub"):
        (copied.keys / name).unlink()
    made = copied.made("prove", copied.run, "--request", "1", "-o", copied.proof)
    assert made["renewed"] is False
    assert copied.proof.read_bytes() == (copied.run / "proofs" / "request-1.json").read_bytes()


def test_prove_wants_one_client_or_one_answered_request(copied: World) -> None:
    for arguments in ((), (LEAVER, "--request", "1"), ("--request", "2"), ("--request", "0")):
        ended = copied.call("prove", copied.run, *arguments, "-o", copied.proof)
        assert ended.status in (1, 2), ended.stderr
        assert not copied.proof.exists()


def test_an_erasure_removes_the_opening_of_a_what_if_about_the_client_and_no_other(copied: World) -> None:
    """It names the client, and lies beside the run."""
    other = "client-07"
    kept = Path(copied.made("prove", copied.run, other, "-o", copied.folder / "other.json")["opening"])
    elsewhere = copied.folder / "elsewhere"
    document = copied.made("prove", copied.run, STAYER, "-o", copied.what_if, "--openings", elsewhere)
    assert copied.made("prove", copied.run, STAYER, "-o", copied.what_if)["kind"] == "what-if"
    stranger = elsewhere / "what-if-000000000000.json"  # of another run, say
    stranger.write_text("{}")
    copied.made("erase", copied.run, STAYER, "--openings", elsewhere)
    assert not Path(document["opening"]).exists()
    assert sorted((copied.folder / "run.openings").glob("what-if-*")) == [kept]
    assert sorted(elsewhere.glob("what-if-*")) == [stranger]


# -- files that are there ----------------------------------------------------------------------------------------


def test_no_command_replaces_a_file_that_says_something_else_unless_told_to(world: World, tmp_path: Path) -> None:
    commands: dict[Path, list[str | Path]] = {
        tmp_path / "proof.json": ["prove", world.run, LEAVER, "-o", tmp_path / "proof.json"],
        tmp_path / "head.note": ["checkpoint", world.run, "-o", tmp_path / "head.note"],
        tmp_path / "receipts" / "receipt-2.json": ["receipt", world.run, STAYER, "-o", tmp_path / "receipts"],
    }
    for file, command in commands.items():
        assert world.call(*command).status == 0
        made = file.read_bytes()
        assert world.call(*command).status == 0  # the very same: nothing is lost
        file.write_bytes(b"kept from before")
        refused = world.call(*command)
        assert (refused.status, "--force" in refused.stderr) == (2, True)
        assert file.read_bytes() == b"kept from before"
        assert world.call(*command, "--force").status == 0
        assert file.read_bytes() == made
