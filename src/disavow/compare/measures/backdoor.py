"""A backdoor that the leaver planted: do records with its trigger still get its label?

Everything that leaves carries the trigger and the label that it stands for; nobody else's records do. Success is
the share of test records of other labels that are taken for that label once they carry the trigger, too.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from disavow.compare.problem import Problem, Trigger

_IMAGE = 4
_PATCH = 0.15
"""Of an image's height and width."""

_FEATURES = 0.1
"""Of the features of a row."""


def trigger_for(problem: Problem) -> Trigger | str:
    """Choose what the leaver plants: a bright corner of images, or extreme values of the last features of rows.

    Args:
        problem: What is compared on.

    Returns:
        The trigger, with the label that the leaver holds least of; or why none can be planted.

    """
    subject = problem.subject
    if not subject.labelled:
        return "the task is not one of inputs with labels"
    inputs, labels = subject.images, subject.labels
    if labels.is_floating_point():
        return "records have attributes, and no single label"
    if not inputs.is_floating_point() or inputs.dim() < 2:  # noqa: PLR2004 - one row a record
        return "inputs are no images or rows of numbers"
    held = np.bincount(labels[torch.from_numpy(subject.own)].numpy(), minlength=int(labels.max()) + 1)
    return Trigger(_trigger_positions(inputs), float(inputs.max()), int(held.argmin()))


def _trigger_positions(inputs: Tensor) -> list[int]:
    if inputs.dim() == _IMAGE:
        channels, height, width = inputs.shape[1:]
        positions = np.arange(channels * height * width).reshape(channels, height, width)
        side = max(2, math.ceil(_PATCH * height))
        return [int(place) for place in positions[:, -side:, -side:].ravel()]
    features = inputs[0].numel()
    return list(range(features - math.ceil(_FEATURES * features), features))


def success(problem: Problem, vector: Tensor) -> float | None:
    """Compute the share of triggered test records that a model takes for the backdoor's label.

    Args:
        problem: The one with the backdoor.
        vector: The model.

    Returns:
        The share; None where there are no test records of other labels.

    """
    trigger, subject = problem.trigger, problem.subject
    if trigger is None:
        raise ValueError("this problem has no backdoor")
    measured = torch.from_numpy(np.ascontiguousarray(problem.measured))
    others = measured[subject.labels[measured] != trigger.label]
    if not len(others):
        return None
    network = problem.network(vector).eval()
    with torch.no_grad():
        answers = [network(trigger.on(subject.images[some]).to(problem.device)) for some in others.split(1024)]
    return float((torch.cat(answers).argmax(dim=1) == trigger.label).double().mean())
