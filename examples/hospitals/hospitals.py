"""Twelve hospitals learn to tell malignant from benign tumours, and each of them may leave."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from torch import nn

import disavow

NAMES = (
    "Aarhus",
    "Bergen",
    "Coimbra",
    "Dresden",
    "Espoo",
    "Firenze",
    "Gent",
    "Huelva",
    "Innsbruck",
    "Jena",
    "Kaunas",
    "Leiden",
)


class Hospitals(disavow.Task):
    """569 patients of the Wisconsin breast cancer data: 30 measurements of a cell sample each."""

    epochs = 2
    batch_size = 8

    def __init__(self, learning_rate: float = 0.003) -> None:
        self.learning_rate = learning_rate
        features, malignant = load_breast_cancer(return_X_y=True)
        order = np.random.default_rng(7).permutation(len(features))
        train, test = order[:456], order[456:]
        mean, deviation = features[train].mean(axis=0), features[train].std(axis=0)
        self._features = ((features - mean) / deviation).astype(np.float32)
        self._malignant = (malignant == 0).astype(np.float32)
        self._patients = dict(zip(NAMES, np.array_split(train, len(NAMES)), strict=True))
        self._test = test

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1), nn.Flatten(0))

    def clients(self):
        return {name: self._rows(patients) for name, patients in self._patients.items()}

    def test_data(self):
        return self._rows(self._test)

    def loss(self, model, batch):
        features, malignant = batch
        return nn.functional.binary_cross_entropy_with_logits(model(features), malignant)

    def optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=self.learning_rate)

    def evaluate(self, model, data):
        scores, malignant = self.outputs(model, data)
        return {
            "auroc": roc_auc_score(malignant, scores),
            "loss": float(nn.functional.binary_cross_entropy_with_logits(scores, malignant)),
        }

    def record_keys(self, client):
        return [f"patient-{number}" for number in self._patients[client]]

    def _rows(self, patients):
        return self._features[patients], self._malignant[patients]
