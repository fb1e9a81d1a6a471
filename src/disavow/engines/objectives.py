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
    """Tell what is learned from labels.

    Args:
        labels: Classes or attributes.

    Returns:
        The task.
    """
    return "attributes" if labels.is_floating_point() else "classes"


def loss_of(scores: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean loss.

    Args:
        scores: One row a sample.
        labels: Classes or attributes.

    Returns:
        A scalar.
    """
    if task_of(labels) == "attributes":
        return functional.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype))
    return functional.cross_entropy(scores, labels)


def losses_of(scores: Tensor, labels: Tensor) -> Tensor:
    """Compute the loss of each sample.

    Args:
        scores: One row a sample.
        labels: Classes or attributes.

    Returns:
        One number a sample.
    """
    if task_of(labels) == "attributes":
        losses = functional.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype), reduction="none")
    else:
        losses = functional.cross_entropy(scores, labels, reduction="none")
    return losses.flatten(1).mean(dim=1) if losses.dim() > 1 else losses


def right_of(scores: Tensor, labels: Tensor) -> Tensor:
    """Tell which answers are right: one a sample, or one for each of its attributes.

    Args:
        scores: One row a sample, perhaps of several models.
        labels: Classes or attributes.

    Returns:
        True where the answer is right.
    """
    if task_of(labels) == "attributes":
        return (scores > 0) == (labels > 0)
    return scores.argmax(dim=scores.dim() - labels.dim()) == labels


def answers_of(labels: Tensor) -> int:
    """Count the answers that are right or wrong for each sample: one, or one an attribute.

    Args:
        labels: Classes or attributes.

    Returns:
        The count.
    """
    return labels.shape[1] if task_of(labels) == "attributes" else 1


def evaluation_of(scores: Tensor, labels: Tensor) -> Evaluation:
    """Evaluate scores; the mean loss in float64.

    The accuracy is the share of right answers: with attributes, the mean over all of them.

    Args:
        scores: One row a sample.
        labels: Classes or attributes.

    Returns:
        Accuracy and mean loss.
    """
    loss = loss_of(scores.double(), labels)
    right, answers = int(right_of(scores, labels).sum()), len(labels) * answers_of(labels)
    return Evaluation(accuracy=right / answers if answers else math.nan, loss=float(loss))
