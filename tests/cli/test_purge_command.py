"""`disavow purge`, run as a person runs it: from the dry run to the second proof."""

from __future__ import annotations

import json
from pathlib import Path

from disavow.errors import ConfigError, NotConfirmed, PurgeRefused
from disavow.ledger import Ledger, fsck
from tests.cli.erasing import Command, contents
from tests.cli.signed_run import LEAVER, World


def test_from_the_dry_run_to_the_second_proof(copied: World) -> None:
    run = copied.run
    before = contents(run)
    words = copied.call("purge", run, "--dry-run")
    assert words.status == 0, words.stderr
    assert "1 leaver is removed from the model, from round 1 on" in words.stdout
    assert words.stdout.endswith("Nothing was changed.\n")
    document = copied.made("purge", run, "--dry-run")
    assert (document["unpurged"], document["due"], document["forecast"]["requests"]) == (1, None, [1])
    assert contents(run) == before
    status = copied.call("status", run).stdout
    assert "1 leaver's updates may be in the model that is served; `disavow purge` removes them" in status

    refused = copied.call("purge", run)
    assert refused.status == NotConfirmed.exit_code
    assert NotConfirmed.code in refused.stderr
    assert contents(run) == before

    done = copied.made("purge", run, "--yes")
    assert [request["number"] for request in done["requests"]] == [1]
    assert done["requests"][0]["purged_at"] is not None
    assert done["cost"] == {**document["forecast"]["cost"], "seconds": done["cost"]["seconds"]}
    assert done["unpurged"] == 0
    assert "may be in the model" not in copied.call("status", run).stdout
    second = run / "proofs" / "request-1.purged.json"
    opening = next((copied.folder / "run.openings").glob("request-1-*.json"))
    key = copied.keys / "signing.pub"
    verified = copied.call("verify", second, "--key", key, "--opening", opening, "--client", LEAVER)
    assert verified.status == 0, verified.stdout
    assert "no update of the leaver is in the model served: the purge of" in verified.stdout
    shown = copied.call("show-proof", second, "--key", key).stdout
    assert "\npurged     no update of the leaver is in the model served" in shown
    # the proof that is given out from now on says it as well
    assert copied.call("prove", run, "--request", "1", "-o", copied.folder / "again.json").status == 0
    assert json.loads(copied.call("show-proof", copied.folder / "again.json", "--json").stdout)["purged"]
    assert "nothing to purge" in copied.call("purge", run, "--yes").stdout
    assert fsck(run, keys=copied.keys) == []


def test_a_second_proof_that_was_changed_is_found(copied: World) -> None:
    copied.made("purge", copied.run, "--yes")
    second = copied.run / "proofs" / "request-1.purged.json"
    second.write_bytes((copied.run / "proofs" / "request-1.json").read_bytes())
    [finding] = fsck(copied.run, keys=copied.keys)
    assert finding.where == "proofs/request-1.purged.json"
    second.unlink()
    [finding] = fsck(copied.run, keys=copied.keys)
    assert (finding.where, finding.fault) == ("request 1", False)


SMALL = 'rounds = 2\ndraws = "seeded"\n[training]\nepochs = 1\nbatch_size = 64\n'


def test_with_fewer_than_k_survivors_the_served_model_stays(tmp_path: Path, disavow: Command) -> None:
    config, run = tmp_path / "config.toml", tmp_path / "run"
    config.write_text(SMALL + '[data]\nclients = 5\n[clustering]\nk = 5\n[deniability]\npurge = "deadline"\n')
    assert disavow("train", config, "--run", run).returncode == 0
    assert disavow("erase", run, "client-02").returncode == 0
    forecast = disavow("purge", run, "--dry-run")
    assert "it cannot be purged: 4 participants are left, fewer than k = 5" in forecast.stdout
    assert "request 1 is AT RISK" in forecast.stdout
    assert "AT RISK: it cannot be purged" in disavow("status", run).stdout
    with Ledger.open(run, keys=tmp_path / "keys") as ledger:
        served = ledger.digest_before(3)
    refused = disavow("purge", run, "--yes")
    assert refused.returncode == PurgeRefused.exit_code
    assert refused.stderr.splitlines()[-1].startswith(f"error {PurgeRefused.code}: ")
    with Ledger.open(run, keys=tmp_path / "keys") as ledger:
        assert (ledger.last_round, ledger.digest_before(3)) == (2, served)


def test_a_mechanism_that_is_not_exact_is_refused(tmp_path: Path, disavow: Command) -> None:
    config = tmp_path / "config.toml"
    config.write_text(SMALL + '[data]\nclients = 8\n[clustering]\nk = 3\n[mechanism]\nname = "federaser"\n')
    assert disavow("train", config, "--run", tmp_path / "run").returncode == 0
    for more in ("--dry-run", "--yes"):
        refused = disavow("purge", tmp_path / "run", more)
        assert refused.returncode == ConfigError.exit_code
        assert refused.stderr.startswith(f"error {ConfigError.code}: ")
    config.write_text(config.read_text() + '[deniability]\npurge = "deadline"\n')
    assert disavow("train", config, "--run", tmp_path / "other").returncode == ConfigError.exit_code


def test_plan_foresees_purges(disavow: Command) -> None:
    arguments = ("--clients", "20", "--rounds", "20", "--k", "4", "--x", "2", "--simulations", "50")
    result = disavow("plan", *arguments, "--purge-every", "30d", "--rounds-per-day", "0.5", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["purge_every"] == 15
    assert all(row["purged_rounds"]["mean"] > 0 for row in found["plans"])
    assert "rounds of purges" in disavow("plan", *arguments, "--purge-every", "30d").stdout
    for wrong in ("30", "0d", "xd"):
        assert disavow("plan", *arguments, "--purge-every", wrong).returncode == ConfigError.exit_code
