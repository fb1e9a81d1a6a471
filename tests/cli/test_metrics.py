"""Whatever a task's `evaluate` returns is stored, shown in tables, drawn and exported, with or without accuracy."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from disavow.domain import Evaluation
from disavow.ledger import Ledger
from tests.cli.forked import disavow

ROUNDS = 2
TASKS = """
import numpy as np, torch, disavow
from torch import nn

def inputs(client, samples=10):
    return np.random.Generator(np.random.PCG64(client)).normal(size=(samples, 3)).astype(np.float32)

class Regression(disavow.Task):
    epochs = 1

    def model(self):
        return nn.Linear(3, 1)

    def clients(self):
        return {f"client-{i}": (inputs(i), inputs(i).sum(axis=1, keepdims=True)) for i in range(6)}

    def test_data(self):
        return inputs(99, 30), inputs(99, 30).sum(axis=1, keepdims=True)

    def loss(self, model, batch):
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    def evaluate(self, model, data):
        outputs, targets = self.outputs(model, data)
        return {"mse": (outputs - targets).square().mean(), "cost in $": 1234.5, "self": 1, "r2\\x1b[2J": 0.5,
                "undefined": float("nan"), "last": 7}

def ranking():
    def auroc(outputs, targets):
        from sklearn.metrics import roc_auc_score
        return roc_auc_score(targets, outputs[:, 1])

    rows = lambda client, samples=10: (inputs(client, samples), np.arange(samples) % 2)
    return disavow.task(model=lambda: nn.Linear(3, 2), clients={f"client-{i}": rows(i) for i in range(6)},
                        test=rows(99, 30), metrics={"auroc": auroc}, epochs=1)

class Unmeasured(Regression):
    def test_data(self):
        return None
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three trained runs, one of each task; two clients were erased from the first by a rollback."""
    found = tmp_path_factory.mktemp("metrics")
    (found / "kinds.py").write_text(TASKS)
    for name in ("Regression", "ranking", "Unmeasured"):
        (found / f"{name}.toml").write_text(
            f'rounds = {ROUNDS}\n[clustering]\nk = 3\n[deniability]\nx = 3\n[engine]\nname = "sequential"\n'
            f'[task]\nfactory = "kinds:{name}"\npath = "{found}"\n'
        )
        ended = disavow("train", f"{name}.toml", "--run", name, cwd=found)
        assert ended.returncode == 0, ended.stderr
        (found / f"{name}.txt").write_text(ended.stderr + ended.stdout)
    shutil.copytree(found / "Regression", found / "whole")
    ended = disavow("erase", "Regression", "client-1", "client-2", "--yes", cwd=found)
    assert ended.returncode == 0, ended.stderr
    (found / "erased.txt").write_text(ended.stderr)
    return found


def _headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r" round .*clusters", line)]


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ("Regression.txt", ["mse", "cost in $", "self", r"r2\x1b[2J"]),
        ("erased.txt", ["mse", "cost in $", "self", r"r2\x1b[2J"]),
        ("ranking.txt", ["auroc", "loss"]),
        ("Unmeasured.txt", []),
    ],
)
def test_the_table_of_a_training_has_the_metrics_of_the_task(folder: Path, text: str, metrics: list[str]) -> None:
    found = (folder / text).read_text()
    [heading] = _headings(found)
    assert heading.split("clusters")[0].split() == " ".join(["round", *metrics]).split()
    assert len(re.findall(r"^ +\d+ .* \d+\.\d{4}$", found, re.M)) == ROUNDS
    assert "accuracy" not in found


def test_status_names_what_its_table_has_no_room_for(folder: Path) -> None:
    shown = disavow("status", "whole", cwd=folder).stdout
    assert "cost in $" in _headings(shown)[0]
    assert "undefined, last" in shown
    assert "\x1b" not in shown


def test_every_metric_is_exported(folder: Path) -> None:
    for command in (("status", "whole"), ("resume", "Regression")):  # the other one went on from `whole`
        document = json.loads(disavow(*command, "--json", cwd=folder).stdout)
        metrics = document["rounds"][-1]["metrics"]
        assert list(metrics) == ["mse", "cost in $", "self", "r2\x1b[2J", "undefined", "last"]
        assert metrics["undefined"] is None
        assert metrics["cost in $"] == 1234.5


@pytest.mark.parametrize(("run", "suffix"), [("Regression", "png"), ("ranking", "svg")])
def test_every_metric_is_drawn(folder: Path, run: str, suffix: str) -> None:
    plot = folder / f"{run}.{suffix}"
    ended = disavow("status", run, "--plot", plot, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    assert plot.stat().st_size > 1000
    assert plot.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_panels_are_of_finite_metrics_and_a_rollback_is_marked(folder: Path) -> None:
    from disavow.cli.curves import metrics_figure

    with Ledger.open(folder / "Regression") as ledger:
        rounds = ledger.summaries()
    drawn = metrics_figure(rounds, "title")
    assert drawn is not None
    assert [panel.get_title().replace("\\", "") for panel in drawn.axes] == [
        "mse", "cost in $", "self", "r2x1b[2J", "last"
    ]  # fmt: skip
    superseded, standing, rollback = (line.get_xydata() for line in drawn.axes[0].get_lines())
    assert np.asarray(standing)[:, 0].tolist() == [3, 4]
    assert np.asarray(rollback)[:, 0].tolist() == [2.5, 2.5]
    assert np.isfinite(np.asarray(superseded)[:, 1]).tolist() == [True, True, False, False]


def test_a_run_that_nobody_measured_has_no_plot(folder: Path) -> None:
    ended = disavow("status", "Unmeasured", "--plot", "plot.png", cwd=folder)
    assert ended.returncode == 2
    assert "DSV-101" in ended.stderr
    assert not (folder / "plot.png").exists()
    assert disavow("status", "Unmeasured", cwd=folder).returncode == 0


def test_any_name_can_be_that_of_a_metric() -> None:
    assert Evaluation(**{"self": 1.0, "a b": 2.0}).metrics == {"self": 1.0, "a b": 2.0}
