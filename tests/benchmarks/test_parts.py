"""Benchmarks measure outside the tests; that they still start is tested here."""

from __future__ import annotations

import importlib
import math
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks import judging, proof_growth, proofs, retention, scale
from disavow.proof.notes import Signer

FOLDER = Path(judging.__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))
NEED_FLOWER = ("flower",)


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_can_be_imported(name: str) -> None:
    if name in NEED_FLOWER and find_spec("flwr") is None:
        pytest.skip("needs the extra flower")
    assert importlib.import_module(f"benchmarks.{name}").__doc__


def test_help_lists_benchmarks_that_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--help"])
    found = runpy.run_module("benchmarks", run_name="__main__")
    assert set(found["NAMES"] + found["ON_REQUEST"]) <= set(NAMES)
    assert "judging" in capsys.readouterr().out


def test_judging_builds_a_ledger_of_the_present_format_and_judges_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PARTICIPANTS": 100, "REQUESTS": 20, "LEFT_BEFORE": 2}.items():
        monkeypatch.setattr(judging, name, value)
    run, keys = tmp_path / "run", tmp_path / "keys"
    judging._build(run, keys, clients=200, rounds=6)
    measured = judging._measure(run, keys, 200, 6)
    assert measured["own_rounds"] == 3


def test_proofs_are_made_and_verified() -> None:
    signer = Signer("bench", Ed25519PrivateKey.generate())
    lines = list(proofs.from_a_ledger(signer, rounds=2, clients=50))
    assert len(lines) == 2
    assert all(line["verified_seconds"] > 0 for line in lines)


def test_proofs_after_many_rounds_are_of_the_last_who_left() -> None:
    grown = proof_growth.grown(8, 15)
    assert (grown["rounds"], grown["withdrawals"]) == (8, 15)
    assert grown["rounds_shown"] <= 8


def test_retention_counts_what_thinning_costs() -> None:
    assert retention.more([3, 5], [2, 2])[0] == 1.0
    assert math.isnan(retention.more([0, 0], [0, 0])[0])


def test_scale_records_a_ledger_and_erases_deniable_clients_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "LARGE_ROUND", 60)
    built = scale.build(tmp_path, clients=200, rounds=5, each=2)
    assert (built["participants"], built["large_round_participants"]) == (80, 60)
    for name in ("open", "dry_run", "status", "erase"):
        assert scale._MEASURES[name](tmp_path, 200, 2)["p99_seconds"] > 0
