"""A run with a budget for its checkpoints, from its settings to its proof, as a person meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from disavow.domain import Verdict, VerdictKind
from disavow.erasure.judge import judge
from disavow.ledger import Ledger
from tests.cli import process
from tests.cli.forked import disavow
from tests.cli.process import write_config

ROUNDS = 8
SETTINGS: dict[str, Any] = {
    "seed": 5,
    "rounds": ROUNDS,
    "draws": "seeded",
    "data": {"clients": 12},
    "model": {"name": "lenet5"},
    "training": {"epochs": 1, "batch_size": 64, "fraction": 0.75},
    "clustering": {"k": 3, "sticky": False},
    "deniability": {"x": 2},
    "ledger": {"retention": 130_000},  # three models
}


def first_broken(ledger: Ledger, leavers: tuple[str, ...]) -> int | None:
    with ledger.snapshot() as snapshot:
        numbers = snapshot.numbers_of(leavers)
        return judge(snapshot.evidence(list(numbers.values())), snapshot.policy).round


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("retention")
    with pytest.MonkeyPatch.context() as patch:
        # keys of its own: one among the keys that all tests share would sign the runs of others
        patch.setenv("DISAVOW_KEYS", str(folder / "keys"))
        yield _trained(folder)


def _trained(folder: Path) -> Path:
    keygen = disavow("keygen", "--name", "tests", "--no-passphrase")
    assert keygen.returncode == 0, keygen.stderr
    file = write_config(folder / "config.toml", SETTINGS)
    trained = disavow("train", file, "--run", folder / "run")
    assert trained.returncode == 0, trained.stderr
    return folder


def test_a_thinned_run_tells_one_story_from_status_to_proof(folder: Path) -> None:
    run = folder / "run"
    assert "3 of 9 kept" in disavow("status", run).stdout
    models = json.loads(disavow("status", run, "--json").stdout)["models"]
    kept = models["kept_rounds"]
    assert (models["retention"], models["kept"], models["thinned"]) == (130_000, 3, 6)
    assert (kept[0], kept[-1]) == (0, ROUNDS)
    files = list((run / "models").iterdir())
    assert models["kept_bytes"] == sum(path.stat().st_size for path in files) <= 130_000
    assert len(files) == 3
    assert disavow("fsck", run).returncode == 0

    with Ledger.open(run) as ledger:
        broken = {pair: first_broken(ledger, pair) for pair in combinations(ledger.clients(), 2)}
    pair, first = next((p, t) for p, t in broken.items() if t is not None and t - 1 not in kept)
    nearest = max(number for number in kept if number < first)
    verdict = Verdict(VerdictKind.ROLLBACK, first, back_to=nearest + 1)

    document = json.loads(disavow("erase", run, *pair, "--dry-run", "--json").stdout)
    assert (document["first_broken_round"], document["rollback_to_round"]) == (first, nearest + 1)
    assert document["cost"]["rounds"] == ROUNDS - nearest
    assert verdict.in_full in disavow("erase", run, *pair, "--dry-run").stdout
    done = disavow("erase", run, *pair, "--yes", "--openings", folder / "openings")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(verdict.in_full) == 2
    assert f"{ROUNDS - nearest} rounds retrained" in done.stdout
    assert verdict.in_full in done.stderr
    listed = process.disavow("requests", run)
    assert listed.stdout.count(verdict.in_full) == 2
    request = json.loads(disavow("requests", run, "--json").stdout)["requests"][0]
    assert (request["first_broken_round"], request["rollback_to_round"]) == (first, nearest + 1)

    shown = disavow("show-proof", run / "proofs" / "request-1.json")
    assert f"round {nearest + 1}" in shown.stdout
    assert disavow("fsck", run).returncode == 0
    assert json.loads(disavow("status", run, "--json").stdout)["models"]["kept"] == 3


def test_what_if_proofs_and_the_served_model_need_no_thinned_model(folder: Path) -> None:
    run = folder / "run"
    assert disavow("export", run, "-o", folder / "served.safetensors").returncode == 0
    with Ledger.open(run) as ledger:
        client = next(each for each in ledger.clients() if first_broken(ledger, (each,)) is None)
    proved = disavow("prove", run, client, "-o", folder / "what-if.json")
    assert proved.returncode == 0, proved.stderr


def test_a_budget_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    file = write_config(tmp_path / "config.toml", {**SETTINGS, "ledger": {"retention": 0}})
    result = disavow("train", file, "--run", tmp_path / "run")
    assert result.returncode == 2
    assert "ledger.retention is 0; allowed: a whole number of at least 1 and" in result.stderr
