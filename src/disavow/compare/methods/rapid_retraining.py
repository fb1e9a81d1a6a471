"""Rapid retraining: start again from the initial model, in fewer rounds, with steps divided by the curvature.

Y. Liu, L. Xu, X. Yuan, C. Wang and B. Li, "The Right to be Forgotten in Federated Learning: An Efficient
Realization with Rapid Retraining" (INFOCOM 2022). Every client takes steps of a Newton kind: the Hessian is
approximated by the diagonal of the empirical Fisher information matrix, the squares of gradients, averaged over
steps as their momentum is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from disavow.compare.averages import weighted_mean
from disavow.compare.method import Federation, Forgotten, Method


@dataclass(frozen=True)
class RapidRetraining(Method):
    """See `Method`.

    `share` of the training's rounds, at `learning_rate`; `momentum` and `decay` are those of the averages of
    gradients and of curvatures, `damping` is added to curvatures as a share of the largest of their tensor.
    """

    name = "rapid-retraining"
    paper = "Liu et al., The Right to be Forgotten in Federated Learning: Rapid Retraining, INFOCOM 2022"
    claim = "no part of the leaver in the model: it starts again; the steps are other ones than the run's"

    share: float = 1 / 3
    learning_rate: float = 0.01
    momentum: float = 0.9
    decay: float = 0.99
    damping: float = 1e-3

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        training = federation.training
        rounds = max(1, math.ceil(self.share * len(training.rounds)))
        vector = training.initial.clone()
        for trained in training.rounds[:rounds]:
            clients = [each for each in trained.clients if each in federation.remaining]
            if not clients:
                continue
            updates = torch.stack([self._train(federation, vector, client, trained.number) for client in clients])
            vector = vector + weighted_mean(updates, [federation.samples_of(client) for client in clients])
            federation.tell(trained.number, rounds)
        return Forgotten(vector, f"{rounds} rounds from the initial model")

    def _train(self, federation: Federation, vector: Tensor, client: str, round_number: int) -> Tensor:
        """One client's update by curvature-scaled steps."""
        network = federation.network(vector)
        parameters = [each for each in network.parameters() if each.requires_grad]
        sizes = [each.numel() for each in parameters]
        flat = flattened(parameters)
        mean, curvature = torch.zeros_like(flat), torch.zeros_like(flat)
        batches = federation.batches(client, round_number, epochs=federation.epochs)
        for step, batch in enumerate(batches, start=1):
            loss = federation.loss(network, batch)
            found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
            gradient = torch.cat([each.flatten() for each in found])
            mean.lerp_(gradient, 1 - self.momentum)
            curvature.lerp_(gradient.square(), 1 - self.decay)
            scaled = (curvature / (1 - self.decay**step)).sqrt()
            largest = torch.cat([part.max().expand(part.numel()) for part in scaled.split(sizes)])
            floor = self.damping * largest + torch.finfo(scaled.dtype).tiny
            flat.sub_(self.learning_rate * (mean / (1 - self.momentum**step) / (scaled + floor)))
        return federation.vector_of(network) - vector


def flattened(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Lay parameters out in one vector, of which they become views: one operation then steps all of them.

    Args:
        parameters: Of one network.

    """
    flat = torch.cat([each.detach().flatten() for each in parameters])
    parts = flat.split([each.numel() for each in parameters])
    for each, part in zip(parameters, parts, strict=True):
        each.data = part.view_as(each)
    return flat
