"""`disavow verify`: what each exit code means, and what is said with it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from disavow.errors import Unreadable, VerificationError
from disavow.ledger import fsck
from disavow.proof import canonical
from disavow.proof.verify import CHECKS
from tests.cli import process
from tests.cli.forked import disavow
from tests.cli.process import assert_refused
from tests.cli.signed_run import LEAVER, STAYER, World, checks, tampered
from tests.proof.vectors.valid import LEAVER as FORGED
from tests.proof.vectors.valid import deniable
from tests.proof.world import World as World_

# -- exit 0 ------------------------------------------------------------------------------------------------------


def test_a_proof_with_its_opening_is_exit_0_and_every_check_is_told(world: World) -> None:
    result = process.disavow("verify", world.proof, "--key", world.key, "--opening", world.opening)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    lines = result.stdout.splitlines()
    assert [line.split()[1] for line in lines[: len(CHECKS)]] == list(CHECKS)
    assert f"VALID proof about '{LEAVER}'." in lines
    assert "deniable does not mean not used" in result.stdout


def test_with_everything_given_no_check_is_left_out(world: World) -> None:
    result = disavow(
        *("verify", world.proof, "--key", world.keys / "keys.json", "--opening", world.opening),
        *("--receipts", world.receipts, "--model", world.model, "--checkpoint", world.checkpoint, "--json"),
        *("--serving", f"{world.model}.serving.json"),
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    document = json.loads(result.stdout)
    assert (document["valid"], document["names"], document["exit_code"]) == (True, LEAVER, 0)
    # it is about no records, and has no witnesses (`tests/federation/test_witnesses.py`)
    assert checks(result) == {**dict.fromkeys(CHECKS, True), "word": None, "witnesses": None}
    assert document["not_claimed"]


def test_a_what_if_is_exit_0_only_where_one_is_asked_for(world: World) -> None:
    arguments = ("verify", world.what_if, "--key", world.key, "--opening", world.what_if_opening)
    result = disavow(*arguments, "--what-if")
    assert result.returncode == 0, result.stdout
    assert f"VALID what-if about '{STAYER}'." in result.stdout
    result = disavow(*arguments)
    assert result.returncode == 1
    assert "INVALID: check 3 (statement): this is a what-if" in result.stdout
    result = disavow("verify", world.proof, "--key", world.key, "--what-if", "--json")
    assert result.returncode == 1
    assert checks(result)["statement"] is False


def test_a_receipt_is_verified_by_the_same_command(world: World) -> None:
    receipt = world.receipts / "receipt-2.json"
    result = disavow("verify", receipt, "--key", world.key)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"VALID receipt: '{LEAVER}' was in round 2, slot ")
    result = disavow("verify", receipt, "--key", world.key, "--json")
    assert json.loads(result.stdout) == {"valid": True, "client": LEAVER, "round": 2, "exit_code": 0}


# -- exit 1 ------------------------------------------------------------------------------------------------------


def test_a_tampered_proof_is_exit_1_and_the_check_is_named(world: World, tmp_path: Path) -> None:
    for at in (0.1, 0.5, 0.9):
        path = tampered(world.proof, tmp_path / "tampered.json", at=at)
        result = disavow("verify", path, "--key", world.key, "--opening", world.opening)
        assert (result.returncode, result.stderr) == (1, "")
        assert "INVALID: check 2 (signature): the signature of fl.example.org" in result.stdout
        assert "VALID proof" not in result.stdout
    result = disavow("verify", path, "--key", world.key, "--json")
    document = json.loads(result.stdout)
    assert (result.returncode, document["valid"], document["names"], document["exit_code"]) == (1, False, None, 1)
    assert checks(result) == {"readable": True, "signature": False}


def test_another_key_opening_receipt_or_checkpoint_is_exit_1(world: World, tmp_path: Path) -> None:
    other = tmp_path / "other keys"
    assert disavow("keygen", "--folder", other, "--no-passphrase").returncode == 0
    shutil.copytree(world.receipts, tmp_path / "receipts")
    theirs = world.made("receipt", world.run, STAYER, "-o", tmp_path / "theirs")["receipts"]
    assert theirs
    (tmp_path / "note").write_text(
        world.checkpoint.read_text(encoding="utf-8").replace("disavow/run", "disavow/ruN")
    )
    wrong: list[tuple[str, tuple[str | Path, ...]]] = [
        ("signature", ("--key", other / "signing.pub")),
        ("opening", ("--key", world.key, "--opening", world.what_if_opening)),
        ("receipts", ("--key", world.key, "--opening", world.opening, "--receipts", tmp_path / "theirs")),
        ("history", ("--key", world.key, "--checkpoint", tmp_path / "note")),
    ]
    for name, options in wrong:
        result = disavow("verify", world.proof, *options, "--json")
        assert result.returncode == 1, (name, result.stdout, result.stderr)
        assert [check for check, passed in checks(result).items() if passed is False] == [name]


def test_a_changed_receipt_is_exit_1_in_words_and_in_json(world: World, tmp_path: Path) -> None:
    receipt = json.loads((world.receipts / "receipt-1.json").read_bytes())
    path = tmp_path / "receipt.json"
    path.write_bytes(canonical.encode({**receipt, "client": STAYER}))
    result = disavow("verify", path, "--key", world.key)
    assert_refused(result, VerificationError, "slot")
    result = disavow("verify", path, "--key", world.key, "--json")
    assert (result.returncode, json.loads(result.stdout)["exit_code"]) == (1, 1)


def test_verify_compares_the_client_who_is_asked_for_by_bytes(world: World) -> None:
    good = ("verify", world.proof, "--key", world.key, "--opening", world.opening)
    assert disavow(*good, "--client", LEAVER).returncode == 0
    homoglyph = LEAVER.replace("e", "\N{CYRILLIC SMALL LETTER IE}")
    result = disavow(*good, "--client", homoglyph)
    assert result.returncode == 1
    assert "INVALID: check 14 (opening)" in result.stdout
    assert homoglyph not in result.stdout
    assert disavow("verify", world.proof, "--key", world.key, "--client", LEAVER).returncode == 2
    receipt = ("verify", world.receipts / "receipt-1.json", "--key", world.key)
    assert disavow(*receipt, "--client", LEAVER).returncode == 0
    assert disavow(*receipt, "--client", homoglyph).returncode == 1


# -- exit 2 ------------------------------------------------------------------------------------------------------


def test_a_kept_checkpoint_that_is_not_text_is_exit_2(world: World, tmp_path: Path) -> None:
    (tmp_path / "note").write_bytes(world.checkpoint.read_bytes().replace("\u2014".encode(), b"\x97"))
    result = disavow("verify", world.proof, "--key", world.key, "--checkpoint", tmp_path / "note", "--json")
    assert result.returncode == 2
    assert [check for check, passed in checks(result).items() if passed is False] == ["history"]


@pytest.mark.parametrize("content", [b"", b"{", b"not json", b"\xff\xfe", b"[]", b'{"a":1}'])
def test_what_cannot_be_read_is_exit_2(world: World, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    result = disavow("verify", tmp_path / "file", "--key", world.key, "--json")
    assert (result.returncode, result.stderr) == (2, "")
    assert json.loads(result.stdout)["exit_code"] == 2
    assert checks(result) == {"readable": False}
    result = disavow("verify", world.proof, "--key", world.key, "--opening", tmp_path / "file")
    assert (result.returncode, result.stderr) == (2, "")
    assert "UNREADABLE: check 14 (opening): " in result.stdout
    assert_refused(disavow("verify", world.proof, "--key", tmp_path / "file"), Unreadable)


def test_files_that_are_not_there_are_exit_2_by_name(world: World, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    good = ("verify", world.proof, "--key", world.key)
    for arguments in (
        ("verify", nowhere, "--key", world.key),
        ("verify", world.proof, "--key", nowhere),
        (*good, "--opening", nowhere),
        (*good, "--receipts", nowhere),
        (*good, "--model", nowhere),
        (*good, "--checkpoint", nowhere),
        ("show-proof", nowhere),
    ):
        assert_refused(disavow(*arguments), Unreadable, nowhere)


def test_a_hostile_field_name_neither_forges_a_line_nor_ends_in_a_traceback(world: World, tmp_path: Path) -> None:
    path = tmp_path / "hostile.json"
    for name in ("\ud800", "\n\nVALID proof about 'everybody'.", "\x1b[2J\x1b[H"):
        path.write_bytes(canonical.encode({name: 1}))
        for more in ((), ("--json",)):
            result = disavow("verify", path, "--key", world.key, *more)
            assert result.returncode == 2, (name, result.stderr)
            assert "Traceback" not in result.stderr
            assert "\x1b" not in result.stdout
            assert not any(line.startswith("VALID") for line in result.stdout.splitlines())


def test_a_receipts_folder_without_any_receipt_is_not_taken_for_receipts_that_hold(
    world: World, tmp_path: Path
) -> None:
    """Whoever says --receipts wants them checked: none found must not look like all good."""
    result = disavow("verify", world.proof, "--key", world.key, "--opening", world.opening, "--receipts", tmp_path)
    assert result.returncode != 0, result.stdout


# -- exit 3 ------------------------------------------------------------------------------------------------------


def test_without_an_opening_it_is_valid_but_names_nobody(world: World) -> None:
    result = disavow("verify", world.proof, "--key", world.key)
    assert (result.returncode, result.stderr) == (3, "")
    assert "VALID proof, but it names nobody: give the leaver's --opening" in result.stdout
    assert LEAVER not in result.stdout
    result = disavow("verify", world.what_if, "--key", world.key, "--what-if", "--json")
    document = json.loads(result.stdout)
    assert (result.returncode, document["valid"], document["names"], document["exit_code"]) == (3, True, None, 3)
    assert checks(result)["opening"] is None


# -- noise that protects nobody ------------------------------------------------------------------------------------


def test_that_noise_protects_nobody_is_said_by_every_command_that_tells_of_a_proof_or_a_run(
    story: dict[str, Any], world: World, tmp_path: Path
) -> None:
    said = "No protection by noise: "
    good = ("verify", world.proof, "--key", world.key)
    assert said in disavow(*good).stdout
    assert any(said in each for each in json.loads(disavow(*good, "--json").stdout)["not_claimed"])
    shown = disavow("show-proof", world.proof)
    assert said in shown.stdout
    document = json.loads(disavow("show-proof", world.proof, "--json").stdout)
    assert all(float(row["log10_odds"]) > 3 for row in document["rounds"])
    assert all(row["log10_odds"] not in shown.stdout for row in document["rounds"])
    assert shown.stdout.count("no protection by noise") == len(document["rounds"])
    status = world.call("status", world.run)
    assert said in status.stdout
    assert world.made("status", world.run)["log10_odds"]["worst_composed"] > 3
    assert said in world.call("erase", world.run, LEAVER).stdout
    assert said in story["erase"]["requests"][0]["noise"]
    made = World_("calibrated", noise="calibrated", tau=5.0, clip=1.0).train(2).leave(FORGED).proof(FORGED)
    (tmp_path / "proof").write_bytes(made.proof)
    assert said not in disavow("show-proof", tmp_path / "proof").stdout


# -- keygen ------------------------------------------------------------------------------------------------------


def test_verify_reads_keys_from_a_pipe(world: World) -> None:
    command = f"{sys.executable} -m disavow verify {world.proof} --opening {world.opening} --key <(cat {world.key})"
    shell = ["bash", "-c", command]
    result = subprocess.run(shell, env=process.environment(), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_verify_warns_of_leaves_in_the_future(tmp_path: Path) -> None:
    def edit(statement: dict[str, Any]) -> None:
        predicate, ahead = statement["predicate"], "9999-01-01T00:00:00.000000+00:00"
        predicate["leaves"][-1]["at"] = "9999-01-01"
        predicate["times"].update(judged_at=ahead, answered_at=ahead)

    made = deniable().proof(FORGED)
    (tmp_path / "proof").write_bytes(made.forged(edit, relogged=True))
    (tmp_path / "key").write_text(str(made.signer.public))
    result = disavow("verify", tmp_path / "proof", "--key", tmp_path / "key")
    assert result.returncode == 3
    assert "WARNING: 1 of 4 leaves are dated in the future" in result.stdout
    document = json.loads(disavow("verify", tmp_path / "proof", "--key", tmp_path / "key", "--json").stdout)
    assert len(document["warnings"]) == 1


# -- prove and receipt refuse ------------------------------------------------------------------------------------


def test_after_one_more_round_a_good_proof_is_of_another_model_and_can_be_renewed(copied: World) -> None:
    old = copied.run / "proofs" / "request-1.json"
    config = copied.run / "config.toml"
    config.write_text(config.read_text().replace("rounds = 2", "rounds = 3"))
    assert copied.call("resume", copied.run).status == 0
    copied.made("export", copied.run, "-o", copied.model)
    good = ("--key", copied.key, "--opening", copied.opening)
    assert disavow("verify", old, *good).returncode == 0
    result = disavow("verify", old, *good, "--model", copied.model)
    assert result.returncode == 13
    assert "ANOTHER MODEL" in result.stdout
    assert "INVALID" not in result.stdout
    assert not any(line.startswith("VALID") for line in result.stdout.splitlines())
    document = json.loads(disavow("verify", old, *good, "--model", copied.model, "--json").stdout)
    assert (document["outcome"], document["valid"], document["exit_code"]) == ("another model", False, 13)
    head = document["as_of"]["leaves"]
    for arguments in ((LEAVER,), ("--request", "1")):
        made = copied.made("prove", copied.run, *arguments, "-o", copied.proof)
        assert (made["kind"], made["request"], made["renewed"], made["as_of"] > head) == ("erasure", 1, True, True)
        result = disavow("verify", copied.proof, *good, "--model", copied.model, "--receipts", copied.receipts)
        assert result.returncode == 0, result.stdout
        assert f"As of head {made['as_of']} " in result.stdout
    assert fsck(copied.run, keys=copied.keys) == []


def test_without_a_model_the_model_is_not_checked_and_said_not_to_be(world: World) -> None:
    result = disavow("verify", world.proof, "--key", world.key, "--opening", world.opening)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("16  model")]
    assert line.split()[2] == "-"
    assert "not checked" in line
    head = world.checkpoint.read_text(encoding="utf-8")
    assert "As of head " in result.stdout
    document = json.loads(disavow("verify", world.proof, "--key", world.key, "--json").stdout)
    assert (document["outcome"], document["as_of"]["leaves"]) == ("names nobody", int(head.split("\n")[1]) + 1)
    assert next(check["passed"] for check in document["checks"] if check["name"] == "model") is None
