"""Six regions predict which breast-cancer patients died, from the clinical features of Fed-TCGA-BRCA (FLamby).

The Cox model of `examples/tcga-brca` has a loss of whole batches, by which no attacker can score one patient. Here
the same patients are in two classes, so that every measure of `disavow compare` can be taken.
"""

from __future__ import annotations

import csv
from pathlib import Path

import torch
from torch import Tensor, nn

import disavow

REGIONS = ("Northeast", "South", "West", "Midwest", "Europe", "Canada")
_HIDDEN = 32
_BESIDE = ("pid", "E", "T")


def build(folder: str) -> disavow.Task:
    """Make the task.

    Args:
        folder: Where brca.csv, centers.csv and train_test_split.csv of FLamby lie.

    """
    region = {each["TSS Code"]: each["Region"] for each in _read(folder, "centers.csv")}
    fold = {each["pid"]: each["fold"] for each in _read(folder, "train_test_split.csv")}
    patients = sorted(_read(folder, "brca.csv"), key=lambda each: each["pid"])
    held = {
        name: [each for each in patients if region.get(each["pid"][5:7]) == name and fold[each["pid"]] == "train"]
        for name in REGIONS
    }
    test = [each for each in patients if region.get(each["pid"][5:7]) in REGIONS and fold[each["pid"]] == "test"]
    features = len(patients[0]) - len(_BESIDE)
    return disavow.task(
        model=lambda: nn.Sequential(nn.Linear(features, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 2)),
        clients={name: _tensors(rows) for name, rows in held.items()},
        test=_tensors(test),
        record_keys={name: [each["pid"] for each in rows] for name, rows in held.items()},
    )


def _read(folder: str, name: str) -> list[dict[str, str]]:
    with (Path(folder) / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _tensors(rows: list[dict[str, str]]) -> tuple[Tensor, Tensor]:
    names = [name for name in rows[0] if name not in _BESIDE]
    inputs = torch.tensor([[float(each[name]) for name in names] for each in rows])
    inputs[:, names.index("age_at_index")] /= 100  # all others are 0 or 1
    return inputs, torch.tensor([int(float(each["E"])) for each in rows])
