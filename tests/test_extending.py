"""The examples of docs/extending.md, for real: installed as a package would be, and used by the commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from disavow import errors
from tests.cli.process import COMMAND, ROOT, environment, error_code, run, write_config

PAGE = ROOT / "docs" / "extending.md"
SETTINGS: dict[str, Any] = {
    "seed": 5,
    "rounds": 3,
    "data": {"clients": 9},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 3, "method": "shuffled"},
    "deniability": {"x": 1},
    "noise": {"mode": "steady", "tau": 0.001, "distribution": "uniform"},
    "mechanism": {"name": "retrain-earlier"},
}


class World:
    """A folder with a run, its keys, and the examples beside it as an installed package."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.installed = folder, folder / "run", folder / "site"
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.M))
        metadata = self.installed / "examples-1.0.dist-info"
        metadata.mkdir(parents=True)
        (self.installed / "examples.py").write_text(code, encoding="utf-8")
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: examples\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text("[disavow.strategies]\nexamples = examples\n")

    def environment(self, *, plugin: bool) -> dict[str, str]:
        path = [str(self.installed)] * plugin + [str(ROOT / "src"), str(ROOT)]
        return environment(PYTHONPATH=os.pathsep.join(path), DISAVOW_KEYS=str(self.folder / "keys"))

    def call(self, *arguments: str | Path, plugin: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with the examples installed or without."""
        return run([*COMMAND, *map(str, arguments)], cwd=self.folder, env=self.environment(plugin=plugin))

    def python(self, code: str) -> str:
        """What a program prints, with the examples installed."""
        ended = run([sys.executable, "-c", code], cwd=self.folder, env=self.environment(plugin=True))
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A run that was trained with the examples."""
    made = World(tmp_path_factory.mktemp("extending"))
    assert made.call("keygen", "--name", "fl.example.org", "--no-passphrase").returncode == 0
    trained = made.call("train", write_config(made.folder / "config.toml", SETTINGS), "--run", made.run)
    assert trained.returncode == 0, trained.stderr
    return made


def test_the_settings_file_and_its_help_know_the_examples(world: World) -> None:
    assert world.call("init", world.folder / "new.toml").returncode == 0
    text = (world.folder / "new.toml").read_text(encoding="utf-8")
    for words in (
        "shuffled: at random",
        '"shuffled"',
        "steady: tau on every cluster",
        '"uniform"',
        "retrain-earlier: ",
    ):
        assert words in text
    for wrong, named in (
        ({"noise": {"mode": "steady"}}, "noise.tau"),
        ({"noise": {"mode": "steady", "tau": 0.1}, "deniability": {"odds": 10.0}}, "deniability.odds"),
    ):
        refused = world.call("train", write_config(world.folder / "no.toml", wrong), "--run", "other")
        assert error_code(refused) == errors.ConfigError.code
        assert named in refused.stderr


def test_without_the_package_the_names_are_refused(world: World) -> None:
    for arguments in (("train", world.folder / "config.toml", "--run", "other"), ("status", world.run)):
        refused = world.call(*arguments, plugin=False)
        assert error_code(refused) == errors.ConfigError.code
        assert "shuffled" in refused.stderr


def test_a_package_that_cannot_be_imported_is_named_where_it_is_needed(world: World, tmp_path: Path) -> None:
    broken = World(tmp_path)
    (broken.installed / "examples.py").write_text("import nowhere_to_be_found\n")
    named = ("examples = examples", "nowhere_to_be_found")
    listed = broken.call("init", "-")
    assert listed.returncode == 0, listed.stderr
    assert all(words in listed.stderr for words in named)
    for arguments in (
        ("train", world.folder / "config.toml", "--run", "other"),
        ("status", world.run),
    ):
        refused = broken.call(*arguments)
        assert error_code(refused) == errors.ConfigError.code
        assert all(words in refused.stderr for words in named)


def test_a_run_with_the_examples_is_erased_from_proved_and_verified(world: World) -> None:
    said = world.call("status", world.run)
    assert said.returncode == 0, said.stderr
    assert "steady" in said.stdout
    account = world.call("account", world.run, "--json")
    assert all("updates are not clipped" in claim["why_not"] for claim in json.loads(account.stdout)["claims"])
    before = world.python(
        "from pathlib import Path; from disavow.ledger import Ledger\n"
        f"ledger = Ledger.open(Path({str(world.run)!r}))\n"
        "print(*ledger.clients()); print(*sorted(ledger.membership(2)[0])[:2])"
    )
    everybody, pair = (line.split() for line in before.splitlines())
    # x = 1: one survivor would do, but the criterion of the page asks for one to spare
    erased = world.call("erase", world.run, *pair, "--yes")
    assert erased.returncode == 0, erased.stderr
    [first, second] = json.loads(world.call("requests", world.run, "--json").stdout)["requests"]
    assert {first["verdict"], second["verdict"]} == {"rollback"}
    assert {first["criterion"], second["criterion"]} == {"one to spare"}
    assert "by criterion one to spare" in erased.stdout
    assert "by criterion one to spare" in world.call("requests", world.run).stdout
    assert first["rollback_to_round"] == max(1, first["first_broken_round"] - 1)  # the mechanism of the page
    assert len(everybody) == SETTINGS["data"]["clients"]
    checked = world.call("fsck", world.run)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    [opening] = (world.folder / "run.openings").glob("request-1-*.json")
    proof, key = world.run / "proofs" / "request-1.json", world.folder / "keys" / "signing.pub"
    verify = ("verify", proof, "--key", key, "--opening", opening)
    verified = world.call(*verify)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    refused = world.call(*verify, plugin=False)
    assert refused.returncode == errors.Unreadable.exit_code
    assert all(words in refused.stdout for words in ("clustering", "'shuffled'", "installed"))
    stays = next(client for client in everybody if client not in pair)
    assert world.call("prove", world.run, stays, "-o", world.folder / "what-if.json").returncode == 0
    deniable = world.call("verify", world.folder / "what-if.json", "--key", key, "--what-if")
    assert "VALID" in deniable.stdout, deniable.stdout + deniable.stderr
    assert "INVALID" not in deniable.stdout


def test_the_attacker_of_the_page_is_in_every_audit(world: World) -> None:
    output = world.python(
        "import numpy as np\n"
        "from dataclasses import replace\n"
        "from disavow.audit.audit import attack\n"
        "from disavow.audit.game import ATTACKERS, Stage\n"
        "from tests.audit.attackers.builders import game, worlds_of\n"
        "rng = np.random.default_rng(1)\n"
        "losses = [rng.uniform(a, a + 0.1, 32) for a in (0.1, 0.9)]\n"
        "low, high = (worlds_of(32, own_loss=each, held_out_loss=np.ones(32)) for each in losses)\n"
        "handed = replace(game(1.0, own=8, held_out=8, shadows=8, seed=1), present=low, absent=high)\n"
        "gone = replace(handed, present=high)\n"
        "stages = {Stage.BEFORE: [handed], Stage.SERVED: [handed], Stage.RETRAINED: [gone]}\n"
        "found = attack(ATTACKERS['loss ratio'], stages)\n"
        "print(list(ATTACKERS)[-1], found.unit, found.stages[Stage.SERVED].auc.estimate)"
    )
    assert output.split() == ["loss", "ratio", "world", "1.0"]


def test_the_uniform_numbers_of_the_page_are_as_declared(world: World) -> None:
    output = world.python(
        "from disavow.domain.strategies import DISTRIBUTIONS\n"
        "from disavow.rounds.randomness import training_stream\n"
        "uniform = DISTRIBUTIONS['uniform']\n"
        "one, two = (uniform.draw(training_stream(seed, 'test'), 200_000, 'cpu') for seed in (1, 2))\n"
        "print(float(one.std()), float((one - two).square().var()), uniform.variance_of_squares)"
    )
    deviation, measured, declared = map(float, output.split())
    assert deviation == pytest.approx(1, abs=0.01)
    assert measured == pytest.approx(declared, rel=0.02)


def test_the_rings_of_the_page_are_by_distance_and_nothing_imports_torch_before(world: World) -> None:
    output = world.python(
        "import sys; from disavow.domain.strategies import CLUSTERINGS\n"
        "rings = CLUSTERINGS['rings']; assert 'torch' not in sys.modules\n"
        "import torch; from disavow.rounds.clustering.geometry import ExactGeometry\n"
        "points = torch.tensor([9., 1., -1., 8., 0.5, -9., -0.5])\n"
        "geometry = ExactGeometry((points[:, None] - points).square())\n"
        "print([sorted(group.tolist()) for group in rings.partition(geometry, torch.arange(7), 3, None)])"
    )
    assert output.strip() == "[[1, 4, 6], [0, 2, 3, 5]]"
