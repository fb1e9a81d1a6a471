"""Commands on a run whose models are in a bucket: after `train --models` the run directory is all they are told."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from disavow.errors import BucketRefused, BucketUnreachable, ConfigError
from disavow.ledger import Ledger
from tests.cli import erasing
from tests.cli.erasing import Command
from tests.cli.process import assert_refused, write_config
from tests.local_s3 import LocalBucket


def pair(run: Path, keys: Path) -> list[str]:
    """Clients of one cluster, of whom too few are left when they go."""
    with Ledger.open(run, keys=keys) as ledger:
        smallest = min(ledger.membership(1), key=len)
    return sorted(smallest)[: len(smallest) - 1]


def test_train_erase_resume_export_verify_and_fsck(
    bucket: LocalBucket, disavow: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, keys, model = tmp_path / "run", tmp_path / "keys", tmp_path / "model.safetensors"
    settings = write_config(tmp_path / "config.toml", {**erasing.SETTINGS, "ledger": {"models": "s3://elsewhere"}})
    assert disavow("keygen", "--no-passphrase").returncode == 0
    trained = disavow("train", settings, "--run", run, "--models", bucket.url, "--json")
    assert trained.returncode == 0, trained.stderr
    before = bucket.objects()
    assert len(before) == 1 + 3
    assert "elsewhere" not in (run / "config.toml").read_text()
    assert not (run / "models").exists()

    leavers = pair(run, keys)
    erased = disavow("erase", run, *leavers, "--yes", "--json")
    assert erased.returncode == 0, erased.stderr
    assert "rollback" in erased.stdout
    after = bucket.objects()
    assert len(after) == 1 + 3
    assert len(after.keys() & before.keys()) == 1  # the initial model; superseded ones are gone

    resumed = disavow("resume", run)
    assert resumed.returncode == 0, resumed.stderr
    assert disavow("export", run, "-o", model).returncode == 0
    served = hashlib.sha256(model.read_bytes()).hexdigest()
    assert any(f"/{served}." in key for key in after)
    [opening] = (tmp_path / "run.openings").glob("request-1-*.json")
    document = json.loads(erased.stdout)
    assert {request["client"] for request in document["requests"]} == set(leavers)
    first = next(request["client"] for request in document["requests"] if request["number"] == 1)
    checked = disavow(
        *("verify", run / "proofs" / "request-1.json", "--key", keys / "signing.pub"),
        *("--opening", opening, "--client", first, "--model", model),
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    absent = [option for leaver in leavers for option in ("--absent", leaver)]
    assert disavow("fsck", run, *absent).returncode == 0

    damaged = next(key for key in after if f"/{served}." in key)
    bucket.write(damaged, b"damaged")
    found = disavow("fsck", run)
    assert (found.returncode, served[:12] in found.stdout + found.stderr) == (1, True)
    bucket.write(damaged, after[damaged])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody is there
    shown = disavow("status", run, "--json")
    assert json.loads(shown.stdout)["models"]["url"].startswith(bucket.url)
    assert_refused(disavow("export", run, "-o", tmp_path / "again"), BucketUnreachable, bucket.url)


@pytest.mark.parametrize(
    ("url", "kind"),
    [("file:///srv/models", ConfigError), ("s3://no-such-bucket/models", BucketRefused)],
    ids=["file", "missing"],
)
@pytest.mark.usefixtures("bucket")
def test_a_place_that_cannot_be_used_is_refused_before_anything_is_trained(
    disavow: Command, tmp_path: Path, url: str, kind: type[ConfigError | BucketRefused]
) -> None:
    settings = write_config(tmp_path / "config.toml", {**erasing.SETTINGS, "ledger": {"models": url}})
    assert_refused(disavow("train", settings, "--run", tmp_path / "run"), kind)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "keys").exists()
