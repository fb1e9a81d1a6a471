"""What an attacker reads off a model: confidences of records, and how steps align with a client's updates."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from disavow.audit.game import Floats, Records, Weights
from disavow.audit.subject import Subject
from disavow.engines.objectives import EVALUATION_BATCH, losses_of, task_of
from disavow.engines.state import put_model
from disavow.engines.trainer import Ask, Trainer
from disavow.rounds.randomness import training_stream
from disavow.rounds.vectors import Model, on_cpu

MOST_WEIGHTS = 1 << 18
"""Numbers that are kept of each world's model: a megabyte. Of larger models so many are drawn, the same of all."""


def confidences(subject: Subject, model: Model) -> Records:
    """Compute φ of each record's true label in evaluation mode, in float64.

    Attributes have no one label: there φ is what gives their mean loss, by the same formula.

    Args:
        subject: The client and its run.
        model: The model.

    Returns:
        φ of own and of held-out records.

    """
    chosen = torch.from_numpy(subject.records)
    found = margin(_logits(subject, model, chosen), subject.labels[chosen]).numpy()
    return Records(own=found[: len(subject.own)], held_out=found[len(subject.own) :])


def client_losses(subject: Subject, model: Model) -> Floats:
    """Compute the mean loss on the records of each client of the run.

    Args:
        subject: The client and its run.
        model: The model.

    Returns:
        Losses: the audited client's first, then in the run's order.

    """
    order = [subject.client, *(client for client in subject.clients if client != subject.client)]
    parts = [torch.from_numpy(np.asarray(subject.parts[client])) for client in order]
    chosen = torch.cat(parts)
    found = losses_of(_logits(subject, model, chosen), subject.labels[chosen])
    return np.array([float(part.mean()) for part in found.split([len(part) for part in parts])])


def _logits(subject: Subject, model: Model, chosen: Tensor) -> Tensor:
    network = copy.deepcopy(subject.network)
    put_model(network, model)
    network.eval()
    with torch.no_grad():
        parts = [network(subject.images[part]) for part in chosen.split(EVALUATION_BATCH)]
    return torch.cat(parts).double()


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

    The client's update is computed from its data and the broadcast model, as the client itself would.

    Args:
        subject: The client and its run.
        trainer: Computes the update.
        models: Those of an observer, in order.

    """
    workload = subject.workload()
    asks = [Ask(workload, model, (subject.client,), t) for t, model in enumerate(models[:-1], start=1)]
    if not asks:
        return 0.0
    updates = torch.cat([answer.vectors.cpu().double() for answer in trainer.train(asks)])
    vectors = torch.stack([model.vector.cpu().double() for model in models])
    cosines = torch.nn.functional.cosine_similarity(updates, vectors[1:] - vectors[:-1], dim=1)
    return float(cosines.mean())
