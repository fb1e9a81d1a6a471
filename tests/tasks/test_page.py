"""Every kind of data and of training on the page about tasks trains as it is printed, and its export loads."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import disavow
from tests.cli.forked import disavow as command

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
POLICY = disavow.Policy(k=2, x=1)
PLACEHOLDERS = "features_of_aarhus", "labels_of_aarhus", "dataset_of_bergen"


def _printed() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def _tasks() -> dict[str, disavow.Task]:
    """The tasks of the page, by what they are about; each part of the page may use what an earlier one defined."""
    found: dict[str, Any] = {"disavow": disavow}
    tasks: dict[str, disavow.Task] = {}
    for part in _printed():
        if any(name in part for name in PLACEHOLDERS) or "load_state_dict" in part:
            continue
        exec(compile(part, "docs/tasks.md", "exec"), found)
        if "task = " in part:
            tasks[KINDS[len(tasks)]] = found["task"]
    return tasks


KINDS = ["arrays", "a dataset", "Hugging Face", "several inputs", "weights and clipping", "a schedule", "records"]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, disavow.Task]:
    """The tasks of the page."""
    pytest.importorskip("datasets")
    np.random.seed(1)  # noqa: NPY002 - the page draws from it
    with contextlib.chdir(tmp_path_factory.mktemp("page")):  # it also makes a run
        return _tasks()


MEASURED: dict[str, set[str] | None] = {
    "arrays": {"accuracy", "loss"},
    "a dataset": None,
    "Hugging Face": None,
    "several inputs": {"accuracy", "loss"},
    "weights and clipping": {"recall", "loss"},
    "a schedule": {"mse", "bias"},
    "records": None,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_on_the_page_trains_is_measured_and_erased_from(
    tasks: dict[str, disavow.Task], kind: str, tmp_path: Path
) -> None:
    with disavow.Federation.create(tmp_path / "run", tasks[kind], policy=POLICY, rounds=2) as federation:
        before = [value.clone() for value in federation.model().state_dict().values()]
        federation.train()
        assert any(not torch.equal(a, b) for a, b in zip(before, federation.state_dict().values(), strict=True))
        evaluation = federation.ledger.summary(2).evaluation
        assert (set(evaluation.metrics) if evaluation else None) == MEASURED[kind]
        first, *_, last = federation.clients()
        keys = federation.record_keys_of(last)
        assert (keys is not None) == (kind == "records")
        if keys is not None:
            federation.erase(last, records=[keys[0]])
            assert federation.record_keys_of(last) == keys[2:]  # every patient has two examples
        assert not federation.erase(first).requests[first].pending


def test_an_export_loads_strictly_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Network(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))

    inputs, labels = torch.randn(24, 6), torch.arange(24) % 2
    task = disavow.task(
        model=Network, clients={f"client-{i}": (inputs[i::4], labels[i::4]) for i in range(4)}, batch_size=3
    )
    with disavow.Federation.create(tmp_path / "runs" / "first", task, policy=POLICY, rounds=1) as federation:
        federation.train()
        served = federation.model().eval()
    [line] = re.findall(r"^\$ disavow (export .*)$", PAGE, re.M)
    ended = command(*line.split(), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    [snippet] = [part for part in _printed() if "load_state_dict" in part]
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"Network": Network}
    exec(compile(snippet, "docs/tasks.md", "exec"), found)
    assert torch.equal(found["model"](inputs), served(inputs))
