"""From a network's scores to losses and evaluations: what classes and what attributes mean, in every engine.

Labels that are whole numbers are *classes*: one a sample, and cross-entropy. Labels that are floating, 0 or 1, are
*attributes*: each is said of a sample or not, and the loss is the mean binary cross-entropy over them.
"""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor
from torch.nn import functional

from disavow.domain import Evaluation

EVALUATION_BATCH = 1024
"""Samples that the reference scores at once. Whoever must give its bits takes as many."""

Task = Literal["classes", "attributes"]


def task_of(labels: Tensor) -> Task:
    """What the labels are."""
    return "attributes" if labels.is_floating_point() else "classes"


def loss_of(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean loss of scores, one row a sample."""
    if task_of(labels) == "attributes":
        return functional.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype))
    return functional.cross_entropy(scores, labels)


def losses_of(scores: Tensor, labels: Tensor) -> Tensor:
    """The loss of each sample."""
    if task_of(labels) == "attributes":
        losses = functional.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype), reduction="none")
    else:
        losses = functional.cross_entropy(scores, labels, reduction="none")
    return losses.flatten(1).mean(dim=1) if losses.dim() > 1 else losses


def right_of(scores: Tensor, labels: Tensor) -> Tensor:
    """Which answers are right: one a sample, or one for each of its attributes. Scores may be those of a stack."""
    if task_of(labels) == "attributes":
        return (scores > 0) == (labels > 0)
    return scores.argmax(dim=scores.dim() - labels.dim()) == labels


def answers_of(labels: Tensor) -> int:
    """How many answers are right or wrong for each sample: one, or one an attribute."""
    return labels.shape[1] if task_of(labels) == "attributes" else 1


def evaluation_of(scores: Tensor, labels: Tensor) -> Evaluation:
    """Accuracy and mean loss of scores, one row a sample; the mean in float64.

    The accuracy is the share of right answers: with attributes, the mean over all of them.
    """
    loss = loss_of(scores.double(), labels)
    right, answers = int(right_of(scores, labels).sum()), len(labels) * answers_of(labels)
    return Evaluation(accuracy=right / answers if answers else math.nan, loss=float(loss))
