"""Six regions predict how long breast-cancer patients live, by a Cox model (Fed-TCGA-BRCA of FLamby)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

import disavow

REGIONS = ("Northeast", "South", "West", "Midwest", "Europe", "Canada")


class TcgaBrca(disavow.Task):
    """39 clinical features of 1,088 patients, the day of their last visit, and whether they had died by then.

    Args:
        folder: Where brca.csv, centers.csv and train_test_split.csv of FLamby lie.

    """

    epochs = 1
    batch_size = 64

    def __init__(self, folder: str) -> None:
        patients = pd.read_csv(Path(folder) / "brca.csv").merge(
            pd.read_csv(Path(folder) / "train_test_split.csv"), on="pid"
        )
        centers = pd.read_csv(Path(folder) / "centers.csv", keep_default_na=False)
        region = dict(zip(centers["TSS Code"], centers["Region"], strict=True))
        patients["age_at_index"] /= 100  # all others are 0 or 1
        patients["region"] = patients["pid"].str[5:7].map(region)
        patients = patients[patients["region"].isin(REGIONS)].sort_values("pid")
        self._train = patients[patients["fold"] == "train"]
        self._test = patients[patients["fold"] == "test"]
        self._features = [c for c in patients if c not in ("pid", "E", "T", "fold", "fold2", "region")]

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(len(self._features), 1), nn.Flatten(0))

    def clients(self):
        return {name: self._tensors(rows) for name, rows in self._train.groupby("region")}

    def test_data(self):
        return self._tensors(self._test)

    def loss(self, model, batch):
        features, died, day = batch
        return cox_loss(model(features), died, day)

    def optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=0.03)

    def evaluate(self, model, data):
        features, died, day = data
        return {"concordance": concordance(model(features), died, day)}

    def record_keys(self, client):
        return list(self._train[self._train["region"] == client]["pid"])

    def _tensors(self, rows: pd.DataFrame) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(torch.tensor(rows[c].to_numpy(), dtype=torch.float32) for c in (self._features, "E", "T"))


def cox_loss(hazard: Tensor, died: Tensor, day: Tensor) -> Tensor:
    """Compute the negative partial log-likelihood of Cox's model, per death in the batch."""
    order = torch.argsort(day, descending=True)
    hazard, died = hazard[order], died[order]
    at_risk = torch.logcumsumexp(hazard, dim=0)
    return ((at_risk - hazard) * died).sum() / died.sum().clamp(min=1)


def concordance(hazard: Tensor, died: Tensor, day: Tensor) -> float:
    """Compute Harrell's index: of pairs whose order of death is known, the share that the hazards order alike."""
    known = (day[:, None] < day[None, :]) & (died[:, None] > 0)
    higher = (hazard[:, None] > hazard[None, :]).double() + 0.5 * (hazard[:, None] == hazard[None, :]).double()
    return float(higher[known].mean())
