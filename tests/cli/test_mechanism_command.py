"""A run whose mechanism is FedEraser, as a person meets it: every command, after an erasure that rebuilt rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from disavow.ledger import Ledger
from tests.cli.process import write_config
from tests.kill.erasure_driver import Driver, Ended

SETTINGS: dict[str, Any] = {
    "seed": 5,
    "rounds": 5,
    "draws": "seeded",
    "data": {"clients": 9},
    "model": {"name": "lenet5"},
    "training": {"epochs": 2, "batch_size": 64},
    "clustering": {"k": 3},
    "deniability": {"x": 2},
    "mechanism": {"name": "federaser"},
}
REBUILT = "3 rounds were rebuilt approximately (not exact retraining)"


@pytest.fixture(scope="module")
def commands(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """What each command said, in the order of an erasure."""
    folder = tmp_path_factory.mktemp("world")
    run, key = folder / "run", folder / "keys" / "signing.pub"
    said: dict[str, Ended] = {}

    def call(name: str, *arguments: str | Path) -> None:
        said[name] = driver.run(*arguments, keys=folder / "keys", cwd=folder)

    call("keygen", "keygen", "--name", "fl.example.org", "--no-passphrase")
    call("train", "train", write_config(folder / "config.toml", SETTINGS), "--run", run)
    with Ledger.open(run, keys=folder / "keys") as ledger:
        pair = sorted(ledger.membership(1)[0])[:2]
        stays = next(client for client in ledger.clients() if client not in pair)
    call("dry run", "erase", run, *pair, "--dry-run")
    call("dry run json", "erase", run, *pair, "--dry-run", "--json")
    call("erase", "erase", run, *pair, "--yes")
    call("requests", "requests", run, "--json")
    call("status", "status", run)
    call("status json", "status", run, "--json")
    call("account", "account", run)
    call("account json", "account", run, "--json")
    call("fsck", "fsck", run, "--absent", pair[0])
    [opening] = (folder / "run.openings").glob("request-1-*.json")
    proof = run / "proofs" / "request-1.json"
    call("verify", "verify", proof, "--key", key, "--opening", opening)
    call("verify json", "verify", proof, "--key", key, "--opening", opening, "--json")
    call("show", "show-proof", proof, "--key", key)
    call("show json", "show-proof", proof, "--key", key, "--json")
    call("what-if", "prove", run, stays, "-o", folder / "what-if.json")
    call("receipt", "receipt", run, stays, "-o", folder / "receipts")
    for number in (1, 3):
        [receipt] = (folder / "receipts").glob(f"*{number}.json")
        call(f"receipt {number}", "verify", receipt, "--key", key)
    call("resume", "resume", run)
    call("later", "erase", run, stays, "--yes")
    call("later fsck", "fsck", run)
    return said


def test_every_command_ends_as_it_should(commands: dict[str, Ended]) -> None:
    codes = {name: ended.status for name, ended in commands.items()}
    refused = codes.pop("what-if")
    assert set(codes.values()) == {0}, {name: commands[name].stderr for name, code in codes.items() if code}
    assert refused == 1
    assert not any("Traceback" in ended.stderr for ended in commands.values())


def test_the_dry_run_says_what_is_rebuilt_and_how_many_rounds_stand(commands: dict[str, Ended]) -> None:
    assert "rollback to round 1; 3 rounds to rebuild approximately, 14 client-epochs" in commands["dry run"].stdout
    assert "3 rounds stand then" in commands["dry run"].stdout
    forecast = json.loads(commands["dry run json"].stdout)
    assert (forecast["mechanism"], forecast["approximate"], forecast["served_round"]) == ("federaser", True, 3)


def test_the_answer_says_that_it_is_approximate(commands: dict[str, Ended]) -> None:
    assert "3 rounds rebuilt approximately, 14 client-epochs" in commands["erase"].stdout
    assert "rebuilt approximately by federaser; 3 rounds stand" in commands["erase"].stdout
    assert "retrained" not in commands["erase"].stdout
    for request in json.loads(commands["requests"].stdout)["requests"]:
        assert (request["approximate"], request["cost"]["rounds"]) == (True, 3)


def test_status_and_account_name_the_rebuilt_rounds(commands: dict[str, Ended]) -> None:
    assert REBUILT in commands["status"].stdout
    assert [row["rebuilt"] for row in json.loads(commands["status json"].stdout)["rounds"]] == [False] * 5 + [
        True
    ] * 3
    assert "8 rounds executed, 5 of them superseded, 3 rebuilt without noise" in commands["account"].stdout
    assert "no figure for rebuilt rounds" in " ".join(commands["account"].stdout.split())
    account = json.loads(commands["account json"].stdout)
    assert account["rounds_rebuilt"] == 3
    assert all(claim["epsilon"] is None for claim in account["claims"])


def test_the_proof_holds_and_does_not_claim_retraining(commands: dict[str, Ended]) -> None:
    assert "VALID proof" in commands["verify"].stdout
    assert REBUILT in commands["verify"].stdout
    assert json.loads(commands["verify json"].stdout)["rebuilt_rounds"] == 3
    shown = commands["show"].stdout
    assert "rollback to round 1, rebuilt approximately from there (not exact retraining)" in shown
    assert "retrained from" not in shown
    for name in ("verify", "show"):
        assert "whoever has its directory can find out who was drawn" in commands[name].stdout
    said = json.loads(commands["show json"].stdout)
    assert said["policy"]["mechanism"] == "federaser"
    assert (said["rolled_back_to"], said["retrained_from"], said["rebuilt_rounds"]) == (1, None, 3)


def test_nothing_can_be_proved_about_a_contributor_to_rebuilt_rounds(commands: dict[str, Ended]) -> None:
    assert "is not deniable now" in commands["what-if"].stderr
    assert "round 1" in commands["what-if"].stderr


def test_a_receipt_for_a_rebuilt_round_is_valid(commands: dict[str, Ended]) -> None:
    for number in (1, 3):
        assert f"was in round {number}, slot" in commands[f"receipt {number}"].stdout


def test_training_goes_on_and_the_next_request_is_honoured(commands: dict[str, Ended]) -> None:
    assert "rollback to round 1; 4 rounds rebuilt approximately" in commands["later"].stdout


def test_with_calibrated_noise_the_settings_are_refused(driver: Driver, tmp_path: Path) -> None:
    noise = {"mode": "calibrated", "clip": 1.0, "tau": 0.1}
    path = write_config(tmp_path / "config.toml", {**SETTINGS, "noise": noise})
    ended = driver.run("train", path, "--run", tmp_path / "run", cwd=tmp_path)
    assert ended.status == 2
    assert 'mechanism.name is "federaser" with noise.mode "calibrated"' in ended.stderr
    assert not (tmp_path / "run").exists()
