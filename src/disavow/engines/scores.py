"""From a network's scores to an evaluation: the same in every engine that scores one model at a time."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

from disavow.domain import Evaluation

EVALUATION_BATCH = 1024
"""Samples that the reference scores at once. Whoever must give its bits takes as many."""


def evaluation_of(scores: Tensor, labels: Tensor) -> Evaluation:
    """Accuracy and mean cross-entropy of scores, one row a sample; the mean in float64."""
    loss = functional.cross_entropy(scores.double(), labels)
    right = int((scores.argmax(dim=1) == labels).sum())
    return Evaluation(accuracy=right / len(labels) if len(labels) else math.nan, loss=float(loss))
