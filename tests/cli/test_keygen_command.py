"""`disavow keygen`, and what commands do with a key, a locked one, another one and none."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from disavow.errors import ConfigError, Unreadable, VerificationError
from tests.cli import process
from tests.cli.forked import disavow
from tests.cli.process import assert_refused, write_config
from tests.cli.signed_run import LEAVER, SECRET, SETTINGS, STAYER, World, checks
from tests.ledger.making import files_of

# -- the way there -----------------------------------------------------------------------------------------------


def test_keygen_made_a_locked_key_and_told_its_public_half(story: dict[str, Any], world: World) -> None:
    generated = story["keygen"]
    assert generated["name"] == "fl.example.org"
    assert generated["public"] == world.key.read_text().strip()
    assert generated["replaced"] is None
    assert b"ENCRYPTED" in (world.keys / "signing.pem").read_bytes()
    assert stat.S_IMODE((world.keys / "signing.pem").stat().st_mode) == 0o600
    assert SECRET not in json.dumps(story["keygen"])


# -- keygen ------------------------------------------------------------------------------------------------------


def test_keygen_without_a_passphrase_or_a_terminal_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISAVOW_PASSPHRASE", raising=False)
    result = disavow("keygen", "--folder", tmp_path / "keys")
    assert_refused(result, ConfigError, "DISAVOW_PASSPHRASE", "--no-passphrase")
    assert not (tmp_path / "keys").exists()


def test_keygen_never_overwrites_and_rotates_when_told_to(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    first = process.disavow("keygen", "--folder", keys, "--no-passphrase")
    assert (first.returncode, first.stderr) == (0, "")
    assert "(not encrypted)" in first.stdout
    before = files_of(keys)
    again = disavow("keygen", "--folder", keys, "--no-passphrase")
    assert_refused(again, ConfigError, keys, "disavow keygen --rotate")
    assert files_of(keys) == before
    rotated = disavow("keygen", "--folder", keys, "--no-passphrase", "--rotate")
    assert rotated.returncode == 0
    assert "its proofs stay valid under" in rotated.stdout
    assert len(json.loads((keys / "keys.json").read_bytes())["keys"]) == 2
    assert files_of(keys).keys() == before.keys()
    assert before["signing.pem"] not in files_of(keys).values()


def test_keygen_revokes_a_replaced_key_and_verify_refuses_what_it_signed_by_name(copied: World) -> None:
    key = json.loads((copied.keys / "keys.json").read_bytes())["keys"][0]["key"]
    refused = disavow("keygen", "--folder", copied.keys, "--revoke", "0123456789abcdef")
    assert refused.returncode == 2
    old = copied.made("keygen", "--rotate")["replaced"]
    proof = copied.run / "proofs" / "request-1.json"
    assert disavow("verify", proof, "--key", copied.keys / "keys.json").returncode == 3
    document = json.loads(disavow("keygen", "--folder", copied.keys, "--revoke", old[:16], "--json").stdout)
    assert (document["id"], document["public"]) == (old, key)
    result = disavow("verify", proof, "--key", copied.keys / "keys.json", "--json")
    assert result.returncode == 1
    assert checks(result)["signature"] is False
    assert old[:16] in result.stdout
    alone = disavow("verify", copied.receipts / "receipt-1.json", "--key", copied.keys / "keys.json")
    assert_refused(alone, VerificationError, old[:16])


def test_keygen_encrypts_a_key_anew(copied: World) -> None:
    before = (copied.keys / "signing.pem").read_bytes()
    assert copied.made("keygen", "--rewrap")["public"] == copied.key.read_text().strip()
    assert (copied.keys / "signing.pem").read_bytes() != before
    assert copied.call("prove", copied.run, STAYER, "-o", copied.what_if).status == 0
    assert disavow("keygen", "--folder", copied.keys, "--rewrap", "--rotate").returncode == 2


@pytest.mark.parametrize("name", ["two words", "a+b", ""])
def test_keygen_refuses_a_name_that_no_key_can_have(tmp_path: Path, name: str) -> None:
    result = disavow("keygen", "--folder", tmp_path / "keys", "--no-passphrase", "--name", name)
    assert_refused(result, Unreadable, repr(name), 100)


def test_keygen_refuses_a_folder_inside_a_run(world: World) -> None:
    for folder in (world.run, world.run / "keys", world.run / "deep" / "er"):
        result = disavow("keygen", "--folder", folder, "--no-passphrase")
        assert_refused(result, ConfigError, folder, world.run)


# -- prove and receipt refuse ------------------------------------------------------------------------------------


def test_a_locked_key_without_its_passphrase_stops_a_command_before_anything_is_changed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISAVOW_PASSPHRASE", raising=False)
    monkeypatch.setenv("DISAVOW_KEYS", str(world.keys))
    result = disavow("train", world.folder / "config.toml", "--run", tmp_path / "run")
    assert_refused(result, ConfigError, world.keys, "DISAVOW_PASSPHRASE")
    assert not (tmp_path / "run").exists()


def test_after_a_rotation_old_and_new_proofs_hold_under_the_list_of_keys(copied: World) -> None:
    copied.made("keygen", "--rotate")
    copied.made("erase", copied.run, STAYER)
    for number, client in ((1, LEAVER), (2, STAYER)):
        proof = copied.run / "proofs" / f"request-{number}.json"
        [opening] = (copied.folder / "run.openings").glob(f"request-{number}-*.json")
        result = disavow("verify", proof, "--key", copied.keys / "keys.json", "--opening", opening)
        assert result.returncode == 0, result.stdout
        assert f"about '{client}'" in result.stdout
    alone = disavow("verify", copied.run / "proofs" / "request-1.json", "--key", copied.key)
    assert alone.returncode == 1


def test_a_what_if_that_is_made_right_after_a_rotation_holds_or_is_refused(copied: World) -> None:
    """The log still names the old key then: a what-if signed with the new one would be worthless."""
    copied.made("keygen", "--rotate")
    ended = copied.call("prove", copied.run, STAYER, "-o", copied.what_if)
    if ended.status == 0:
        result = disavow(
            *("verify", copied.what_if, "--key", copied.keys / "keys.json", "--what-if"),
            *("--opening", copied.what_if_opening),
        )
        assert result.returncode == 0, result.stdout


def test_a_run_without_a_key_is_proved_late_once_there_is_one(world: World, tmp_path: Path) -> None:
    young = World(world.driver, tmp_path)
    config = write_config(young.folder / "config.toml", SETTINGS)
    young.made("train", config, "--run", young.run)
    ended = young.call("erase", young.run, LEAVER)
    assert ended.status == 0, ended.stderr
    assert "proof: not signed, there is no key (`disavow keygen`, then `disavow prove`)" in ended.stdout
    ended = young.call("prove", young.run, LEAVER, "-o", young.proof)
    assert ended.status == 2
    assert "there is no key to sign with; `disavow keygen` makes one" in ended.stderr
    assert not young.proof.exists()
    young.made("keygen")
    young.made("prove", young.run, LEAVER, "-o", young.proof)
    result = disavow("verify", young.proof, "--key", young.key, "--opening", young.opening)
    assert result.returncode == 0, result.stdout
    assert "signed late: no key bound the server when the run began" in result.stdout
    assert disavow("show-proof", young.proof).returncode == 1  # it names no key of its own
    assert "signed late" in disavow("show-proof", young.proof, "--key", young.key).stdout
    result = disavow("verify", young.proof, "--key", young.keys / "keys.json", "--opening", young.opening)
    assert result.returncode == 0, result.stdout


def test_the_key_may_come_from_the_environment_alone(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(world.keys / "keyring", tmp_path / "keys" / "keyring")
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("DISAVOW_PASSPHRASE", SECRET)
    monkeypatch.setenv("DISAVOW_SIGNING_KEY", (world.keys / "signing.pem").read_text())
    monkeypatch.setenv("DISAVOW_SIGNING_NAME", "fl.example.org")
    result = process.disavow(
        "prove", world.run, STAYER, "-o", tmp_path / "what-if.json", "--openings", tmp_path / "openings", "--json"
    )
    assert result.returncode == 0, result.stderr
    opening = json.loads(result.stdout)["opening"]
    result = disavow("verify", tmp_path / "what-if.json", "--key", world.key, "--what-if", "--opening", opening)
    assert result.returncode == 0, result.stdout
