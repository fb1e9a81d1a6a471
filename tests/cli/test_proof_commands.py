"""Keys, receipts, proofs and their verification, from end to end, each command as a process of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from disavow.ledger import Ledger, fsck
from disavow.ledger.id_search import files_with
from disavow.ledger.models import from_safetensors
from disavow.proof import canonical
from disavow.proof.verify import CHECKS
from tests.cli import process
from tests.cli.forked import disavow
from tests.cli.process import only_error, write_config
from tests.kill.erasure_driver import Driver, Ended
from tests.ledger.making import files_of
from tests.proof.vectors.build import FOLDER as VECTORS
from tests.proof.vectors.valid import LEAVER as FORGED
from tests.proof.vectors.valid import deniable
from tests.proof.world import SERVER
from tests.proof.world import World as World_

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
        told: dict[str, Any] = json.loads(ended.stdout)
        return told


@pytest.fixture(scope="module")
def _unlocked() -> Iterator[None]:
    """Every command finds the passphrase, and no other key than its own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DISAVOW_SIGNING_KEY", "DISAVOW_SIGNING_NAME"):
            patch.delenv(name, raising=False)
        patch.setenv("DISAVOW_PASSPHRASE", SECRET)
        yield


@pytest.fixture(scope="module")
def story(_unlocked: None, driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A key, a run, receipts, a what-if, an erasure and its proof; with what each command told."""
    world = World(driver, tmp_path_factory.mktemp("world"))
    told: dict[str, Any] = {"world": world}
    told["keygen"] = world.made("keygen", "--name", "fl.example.org")
    config = write_config(world.folder / "config.toml", SETTINGS)
    told["train"] = world.made("train", config, "--run", world.run)
    told["receipt"] = world.made("receipt", world.run, LEAVER, "-o", world.receipts)
    told["what-if"] = world.made("prove", world.run, STAYER, "-o", world.what_if)
    assert world.call("checkpoint", world.run, "-o", world.checkpoint).status == 0
    told["erase"] = world.made("erase", world.run, LEAVER)
    told["prove"] = world.made("prove", world.run, LEAVER, "-o", world.proof)
    told["export"] = world.made("export", world.run, "-o", world.model)
    return told


@pytest.fixture(scope="module")
def world(story: dict[str, Any]) -> World:
    found: World = story["world"]
    return found


def checks(result: subprocess.CompletedProcess[str]) -> dict[str, bool | None]:
    found = json.loads(result.stdout)["checks"]
    assert [check["number"] for check in found] == list(range(1, 17))
    return {check["name"]: check["passed"] for check in found if check["detail"] != "not reached"}


def tampered(path: Path, target: Path, *, at: float | bytes = 0.5) -> Path:
    """A copy with one digit of its payload changed, there or behind these bytes; still in canonical form."""
    told = json.loads(path.read_bytes())
    payload = bytearray(base64.b64decode(told["payload"]))
    place = payload.index(at) + len(at) if isinstance(at, bytes) else int(len(payload) * at)
    while not chr(payload[place]).isdigit():
        place += 1
    payload[place] = ord("1") if payload[place] != ord("1") else ord("2")
    target.write_bytes(canonical.encode({**told, "payload": base64.b64encode(payload).decode()}))
    return target


# -- the way there -----------------------------------------------------------------------------------------------


def test_keygen_made_a_locked_key_and_told_its_public_half(story: dict[str, Any], world: World) -> None:
    told = story["keygen"]
    assert told["name"] == "fl.example.org"
    assert told["public"] == world.key.read_text().strip()
    assert told["replaced"] is None
    assert b"ENCRYPTED" in (world.keys / "signing.pem").read_bytes()
    assert stat.S_IMODE((world.keys / "signing.pem").stat().st_mode) == 0o600
    assert SECRET not in json.dumps(story["keygen"])


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
    assert fsck(world.run) == []
    assert world.call("fsck", world.run, "--absent", LEAVER).status == 0


def test_the_what_if_changed_nothing_and_its_opening_is_outside_the_run(
    story: dict[str, Any], world: World
) -> None:
    assert story["what-if"]["kind"] == "what-if"
    assert story["what-if"]["opening"] == str(world.what_if_opening)
    assert stat.S_IMODE(world.what_if_opening.stat().st_mode) == 0o600
    assert STAYER not in world.what_if_opening.name
    with Ledger.open(world.run) as ledger:
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
    told = world.made("export", world.run, "-o", file, "--average", "2")
    with Ledger.open(world.run) as ledger:
        mean, digests = ledger.mean_model(2)
        newest = ledger.last_round
        assert from_safetensors(ledger.layout, file.read_bytes()).tobytes() == mean.tobytes()
    assert told["mean_of"] == list(digests)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == told["model"] != digests[-1]
    said = world.call("export", world.run, "-o", file, "--average", "2")
    assert f"the mean of the models after rounds {newest - 1} to {newest}" in " ".join(said.stdout.split())
    refused = world.call("export", world.run, "-o", file, "--average", str(newest + 1))
    assert (refused.status, f"no more rounds than {newest}" in " ".join(refused.stderr.split())) == (2, True)


# -- exit 0 ------------------------------------------------------------------------------------------------------


def test_a_proof_with_its_opening_is_exit_0_and_every_check_is_told(world: World) -> None:
    result = process.disavow("verify", world.proof, "--key", world.key, "--opening", world.opening)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    lines = result.stdout.splitlines()
    assert [line.split()[1] for line in lines[:16]] == list(CHECKS)
    assert f"VALID proof about '{LEAVER}'." in lines
    assert "deniable does not mean not used" in result.stdout


def test_with_everything_given_no_check_is_left_out(world: World) -> None:
    result = disavow(
        *("verify", world.proof, "--key", world.keys / "keys.json", "--opening", world.opening),
        *("--receipts", world.receipts, "--model", world.model, "--checkpoint", world.checkpoint, "--json"),
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    told = json.loads(result.stdout)
    assert (told["valid"], told["names"], told["exit_code"]) == (True, LEAVER, 0)
    assert [check["number"] for check in told["checks"]] == list(range(1, 17))
    assert checks(result) == dict.fromkeys(CHECKS, True)
    assert told["not_claimed"]


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
    told = json.loads(result.stdout)
    assert (result.returncode, told["valid"], told["names"], told["exit_code"]) == (1, False, None, 1)
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
    told = json.loads((world.receipts / "receipt-1.json").read_bytes())
    path = tmp_path / "receipt.json"
    path.write_bytes(canonical.encode({**told, "client": STAYER}))
    result = disavow("verify", path, "--key", world.key)
    assert result.returncode == 1
    assert "does not open its slot" in only_error(result)
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
    result = disavow("verify", world.proof, "--key", tmp_path / "file")
    assert result.returncode == 2
    only_error(result)


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
        result = disavow(*arguments)
        assert result.returncode == 2
        assert str(nowhere) in only_error(result)


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
    told = json.loads(result.stdout)
    assert (result.returncode, told["valid"], told["names"], told["exit_code"]) == (3, True, None, 3)
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
    told = json.loads(disavow("show-proof", world.proof, "--json").stdout)
    assert all(float(row["log10_odds"]) > 3 for row in told["rounds"])
    assert all(row["log10_odds"] not in shown.stdout for row in told["rounds"])
    assert shown.stdout.count("no protection by noise") == len(told["rounds"])
    status = world.call("status", world.run)
    assert said in status.stdout
    assert world.made("status", world.run)["log10_odds"]["worst_composed"] > 3
    assert said in world.call("erase", world.run, LEAVER).stdout
    assert said in story["erase"]["requests"][0]["noise"]
    made = World_("calibrated", noise="calibrated", tau=5.0, clip=1.0).train(2).leave(FORGED).proof(FORGED)
    (tmp_path / "proof").write_bytes(made.proof)
    assert said not in disavow("show-proof", tmp_path / "proof").stdout


# -- show-proof --------------------------------------------------------------------------------------------------


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
    told = json.loads(disavow("show-proof", world.proof, "--json").stdout)
    assert (told["kind"], told["verdict"], told["key_trusted"]) == ("erasure", "deniable", False)
    assert told["model"] == story["train"]["rounds"][-1]["model"]
    assert [row["round"] for row in told["rounds"]] == [1, 2]
    assert min(row["survivors"] for row in told["rounds"]) >= 2
    assert told["policy"].keys() >= {"representatives", "delta", "relative_delta", "odds", "statistics"}
    drawn = 1 - math.prod(1 - 1 / row["slots"] for row in told["rounds"])
    assert told["summary"]["drawn"] == pytest.approx(drawn)
    assert told["summary"]["worst_round"] == pytest.approx(
        max(float(r["log10_odds"]) for r in told["rounds"]), rel=1e-5
    )
    assert told["summary"]["adaptive"] is True
    assert all(row["spread"] <= row["delta"] and 0 <= row["pairs_within_delta"] <= 1 for row in told["rounds"])
    assert told["signed_late"] is False
    assert told["asked_at"] <= told["judged_at"] <= told["answered_at"]
    assert (told["policy"]["draws"], told["policy"]["mechanism"]) == ("seeded", "retrain")
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
    told = " ".join(shown.stdout.split())
    assert [each for each in words if each not in told] == []
    adaptive, averaged = "adaptive Δ excludes nobody", "are means over all members of each cluster"
    assert (adaptive in told) == (vector in ("two-representatives", "odds-within-the-limit"))
    assert (averaged in told) == (vector in ("two-representatives", "relative-delta"))


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
    told = json.loads(disavow("show-proof", proof, "--key", tmp_path / "key", "--json").stdout)
    assert (told["rolled_back_to"], told["retrained_from"]) == (1, None)
    assert "the one served among them" in told["unchanged"]
    assert "WARNING: 2 rounds since" in disavow("verify", proof, "--key", tmp_path / "key").stdout


def test_show_proof_shows_nothing_of_a_proof_that_does_not_hold(world: World, tmp_path: Path) -> None:
    result = disavow("show-proof", tampered(world.proof, tmp_path / "tampered.json", at=b'"sha256":"'))
    assert result.returncode == 1
    assert "the proof does not hold: the signature of" in only_error(result)
    (tmp_path / "rubbish").write_bytes(b"rubbish")
    result = disavow("show-proof", tmp_path / "rubbish")
    assert result.returncode == 2
    only_error(result)
    result = disavow("show-proof", world.receipts / "receipt-1.json")
    assert result.returncode == 2
    assert "this is a receipt, not a proof" in only_error(result)


# -- keygen ------------------------------------------------------------------------------------------------------


def test_keygen_without_a_passphrase_or_a_terminal_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISAVOW_PASSPHRASE", raising=False)
    result = disavow("keygen", "--folder", tmp_path / "keys")
    assert result.returncode == 2
    assert "set DISAVOW_PASSPHRASE, or say --no-passphrase" in only_error(result)
    assert not (tmp_path / "keys").exists()


def test_keygen_never_overwrites_and_rotates_when_told_to(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    first = process.disavow("keygen", "--folder", keys, "--no-passphrase")
    assert (first.returncode, first.stderr) == (0, "")
    assert "(not encrypted)" in first.stdout
    before = files_of(keys)
    again = disavow("keygen", "--folder", keys, "--no-passphrase")
    assert again.returncode == 2
    assert "never overwritten; `disavow keygen --rotate` replaces the key" in only_error(again)
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
    told = json.loads(disavow("keygen", "--folder", copied.keys, "--revoke", old[:16], "--json").stdout)
    assert (told["id"], told["public"]) == (old, key)
    result = disavow("verify", proof, "--key", copied.keys / "keys.json", "--json")
    assert result.returncode == 1
    assert checks(result)["signature"] is False
    assert old[:16] in result.stdout
    alone = disavow("verify", copied.receipts / "receipt-1.json", "--key", copied.keys / "keys.json")
    assert alone.returncode == 1
    assert old[:16] in only_error(alone)


def test_keygen_encrypts_a_key_anew(copied: World) -> None:
    before = (copied.keys / "signing.pem").read_bytes()
    assert copied.made("keygen", "--rewrap")["public"] == copied.key.read_text().strip()
    assert (copied.keys / "signing.pem").read_bytes() != before
    assert copied.call("prove", copied.run, STAYER, "-o", copied.what_if).status == 0
    assert disavow("keygen", "--folder", copied.keys, "--rewrap", "--rotate").returncode == 2


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
    told = json.loads(disavow("verify", tmp_path / "proof", "--key", tmp_path / "key", "--json").stdout)
    assert len(told["warnings"]) == 1


@pytest.mark.parametrize("name", ["two words", "a+b", ""])
def test_keygen_refuses_a_name_that_no_key_can_have(tmp_path: Path, name: str) -> None:
    result = disavow("keygen", "--folder", tmp_path / "keys", "--no-passphrase", "--name", name)
    assert result.returncode == 2
    assert "a key's name has 1 to 100 of" in only_error(result)


def test_keygen_refuses_a_folder_inside_a_run(world: World) -> None:
    for folder in (world.run, world.run / "keys", world.run / "deep" / "er"):
        result = disavow("keygen", "--folder", folder, "--no-passphrase")
        assert result.returncode == 2
        assert "keys lie outside every run" in only_error(result)


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
    with Ledger.open(world.run) as ledger:
        assert STAYER in ledger.clients()


def test_a_locked_key_without_its_passphrase_stops_a_command_before_anything_is_changed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISAVOW_PASSPHRASE", raising=False)
    monkeypatch.setenv("DISAVOW_KEYS", str(world.keys))
    result = disavow("train", world.folder / "config.toml", "--run", tmp_path / "run")
    assert result.returncode == 2
    assert "is locked; set DISAVOW_PASSPHRASE to its passphrase" in only_error(result)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def copied(world: World, tmp_path: Path) -> World:
    """The same world, to be changed at will."""
    for name in ("keys", "run", "run.openings", "receipts"):
        shutil.copytree(world.folder / name, tmp_path / name)
    return World(world.driver, tmp_path)


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
    told = json.loads(disavow("verify", old, *good, "--model", copied.model, "--json").stdout)
    assert (told["outcome"], told["valid"], told["exit_code"]) == ("another model", False, 13)
    head = told["as_of"]["leaves"]
    for arguments in ((LEAVER,), ("--request", "1")):
        made = copied.made("prove", copied.run, *arguments, "-o", copied.proof)
        assert (made["kind"], made["request"], made["renewed"], made["as_of"] > head) == ("erasure", 1, True, True)
        result = disavow("verify", copied.proof, *good, "--model", copied.model, "--receipts", copied.receipts)
        assert result.returncode == 0, result.stdout
        assert f"As of head {made['as_of']} " in result.stdout
    assert fsck(copied.run) == []


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


def test_without_a_model_the_model_is_not_checked_and_said_not_to_be(world: World) -> None:
    result = disavow("verify", world.proof, "--key", world.key, "--opening", world.opening)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("16  model")]
    assert line.split()[2] == "-"
    assert "not checked" in line
    head = world.checkpoint.read_text(encoding="utf-8")
    assert "As of head " in result.stdout
    told = json.loads(disavow("verify", world.proof, "--key", world.key, "--json").stdout)
    assert (told["outcome"], told["as_of"]["leaves"]) == ("names nobody", int(head.split("\n")[1]) + 1)
    assert next(check["passed"] for check in told["checks"] if check["name"] == "model") is None


def test_an_erasure_removes_the_opening_of_a_what_if_about_the_client_and_no_other(copied: World) -> None:
    """It names the client, and lies beside the run."""
    other = "client-07"
    kept = Path(copied.made("prove", copied.run, other, "-o", copied.folder / "other.json")["opening"])
    elsewhere = copied.folder / "elsewhere"
    told = copied.made("prove", copied.run, STAYER, "-o", copied.what_if, "--openings", elsewhere)
    assert copied.made("prove", copied.run, STAYER, "-o", copied.what_if)["kind"] == "what-if"
    stranger = elsewhere / "what-if-000000000000.json"  # of another run, say
    stranger.write_text("{}")
    copied.made("erase", copied.run, STAYER, "--openings", elsewhere)
    assert not Path(told["opening"]).exists()
    assert sorted((copied.folder / "run.openings").glob("what-if-*")) == [kept]
    assert sorted(elsewhere.glob("what-if-*")) == [stranger]


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
    (tmp_path / "keys").mkdir()
    shutil.copy(world.keys / "tombstone.key", tmp_path / "keys")
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
