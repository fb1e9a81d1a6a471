"""What an attacker reads off a model: confidences of records, and how steps align with a client's updates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from disavow.audit.game import Floats, Records, Weights
from disavow.audit.subject import Subject
from disavow.data.dataset import Indices
from disavow.engines.objectives import EVALUATION_BATCH, losses_of, task_of
from disavow.engines.trainer import Ask, Trainer
from disavow.engines.workload import Workload
from disavow.rounds.randomness import training_stream
from disavow.rounds.vectors import Model, on_cpu
from disavow.tasks.record_loss import mean_loss, record_losses
from disavow.tasks.samples import moved
from disavow.tasks.task import outputs_and_targets

MOST_WEIGHTS = 1 << 18
"""Numbers that are kept of each world's model: a megabyte. Of larger models so many are drawn, the same of all."""


def confidences(subject: Subject, model: Model) -> Records:
    """Compute φ of each record's true label in evaluation mode, in float64.

    Attributes have no one label: there φ is what gives their mean loss, by the same formula. Where a task has a
    loss of its own, φ is minus that of each record by itself; there is none where that says nothing.

    Args:
        subject: The client and its run.
        model: The model.

    Returns:
        φ of own and of held-out records.

    """
    if subject.classes:
        found = margin(*_scored(subject, model, subject.records)).numpy()
    elif "record losses" in subject.lacking:
        return Records(np.zeros(0), np.zeros(0))
    else:
        network = subject.holding(model)
        found = -record_losses(subject.task, network, subject.samples, subject.records, subject.device).numpy()
    return Records(own=found[: len(subject.own)], held_out=found[len(subject.own) :])


def group_losses(subject: Subject, model: Model, records: Records) -> tuple[float, float]:
    """Compute the mean loss on the client's records, and on held-out ones.

    Args:
        subject: The client and its run.
        model: The model.
        records: What `confidences` gave.

    Returns:
        Both; 0 for held-out ones where there are none.

    """
    if subject.labelled:
        return float(losses(records.own).mean()), float(losses(records.held_out).mean())
    network = subject.holding(model)
    own, held_out = (
        mean_loss(subject.task, network, subject.samples, group, subject.device) if len(group) else 0.0
        for group in (subject.own, subject.held_out)
    )
    return own, held_out


def client_losses(subject: Subject, model: Model) -> Floats:
    """Compute the mean loss on the records of each client of the run.

    Args:
        subject: The client and its run.
        model: The model.

    Returns:
        Losses: the audited client's first, or that of its audited records; then in the run's order.

    """
    others = [client for client in subject.clients if client != subject.client]
    parts = [subject.own, *(np.asarray(subject.parts[client]) for client in others)]
    if not subject.labelled:
        network = subject.holding(model)
        return np.array([mean_loss(subject.task, network, subject.samples, part, subject.device) for part in parts])
    found = losses_of(*_scored(subject, model, np.concatenate(parts)))
    return np.array([float(part.mean()) for part in found.split([len(part) for part in parts])])


def _scored(subject: Subject, model: Model, chosen: Indices) -> tuple[Tensor, Tensor]:
    """Logits of records in float64, and their labels."""
    network, device = subject.holding(model).eval(), subject.device
    scores, labels = [], []
    for start in range(0, len(chosen), EVALUATION_BATCH):
        batch = subject.samples.batch(chosen[start : start + EVALUATION_BATCH])
        with torch.no_grad():
            outputs, targets = outputs_and_targets(network, batch if subject.labelled else moved(batch, device))
        scores.append(outputs.cpu())
        labels.append(targets.cpu())
    return torch.cat(scores).double(), torch.cat(labels)


def weights(model: Model) -> Weights:
    """Return the model's numbers; at most `MOST_WEIGHTS` of them, drawn at random, the same for every model."""
    vector = on_cpu(model.vector).numpy().astype(np.float32)
    if len(vector) <= MOST_WEIGHTS:
        return vector
    return vector[np.sort(training_stream(0, "audit, weights").permutation(len(vector))[:MOST_WEIGHTS])]


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute φ = log p - log(1 - p) of the labels: their logit less the log-sum-exp of all others.

    Args:
        logits: One row a record.
        labels: The true ones.

    Returns:
        φ of each record.

    """
    if task_of(labels) == "attributes":
        loss = losses_of(logits, labels)
        return -(torch.log(-torch.expm1(-loss)) + loss)  # the inverse of log(1 + e^-φ), for large losses too
    own = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own[:, 0] - others.logsumexp(dim=1)


def losses(confidence: Floats) -> Floats:
    """Compute cross-entropy from φ: log(1 + e^-φ)."""
    return np.logaddexp(0.0, -confidence)


def alignment(subject: Subject, trainer: Trainer, models: Sequence[Model]) -> float:
    """Compute the mean cosine between the client's update and the global step, from model to model.

    The client's update is computed from its data and the broadcast model, as the client itself would. Where records
    are audited, it is the difference that they make to it.

    Args:
        subject: The client and its run.
        trainer: Computes the update.
        models: Those of an observer, in order.

    """
    if len(models) == 1:
        return 0.0
    updates = _updates(subject.workload(), subject, trainer, models)
    if subject.erased:
        updates = updates - _updates(subject.workload_without(), subject, trainer, models)
    vectors = torch.stack([model.vector.cpu().double() for model in models])
    cosines = torch.nn.functional.cosine_similarity(updates, vectors[1:] - vectors[:-1], dim=1)
    return float(cosines.mean())


def _updates(workload: Workload, subject: Subject, trainer: Trainer, models: Sequence[Model]) -> Tensor:
    """What the client would have answered to each model but the last, one row each."""
    asks = [Ask(workload, model, (subject.client,), t) for t, model in enumerate(models[:-1], start=1)]
    return torch.cat([answer.vectors.cpu().double() for answer in trainer.train(asks)])
