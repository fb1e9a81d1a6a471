"""Rapid retraining: start again from the initial model, in fewer rounds, with steps divided by the curvature.

Y. Liu, L. Xu, X. Yuan, C. Wang and B. Li, "The Right to be Forgotten in Federated Learning: An Efficient
Realization with Rapid Retraining" (INFOCOM 2022). Every client takes steps of a Newton kind: the Hessian is
approximated by the diagonal of the empirical Fisher information matrix, the squares of gradients, averaged over
steps as their momentum is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from disavow.compare.averages import weighted_mean
from disavow.compare.method import Federation, Forgotten, Method


@dataclass(frozen=True)
class RapidRetraining(Method):
    """See `Method`.

    `share` of the training's rounds, at `learning_rate`; `momentum` and `decay` are those of the averages of
    gradients and of curvatures, `damping` is added to curvatures as a share of their largest.
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
        means = [torch.zeros_like(each) for each in parameters]
        curvatures = [torch.zeros_like(each) for each in parameters]
        batches = federation.batches(client, round_number, epochs=federation.epochs)
        for step, batch in enumerate(batches, start=1):
            for each in parameters:
                each.grad = None
            federation.loss(network, batch).backward()
            with torch.no_grad():
                for each, mean, curvature in zip(parameters, means, curvatures, strict=True):
                    if each.grad is None:
                        continue
                    mean.lerp_(each.grad, 1 - self.momentum)
                    curvature.lerp_(each.grad.square(), 1 - self.decay)
                    scaled = (curvature / (1 - self.decay**step)).sqrt()
                    floor = self.damping * scaled.max() + torch.finfo(scaled.dtype).tiny
                    direction = mean / (1 - self.momentum**step) / (scaled + floor)
                    each.sub_(self.learning_rate * direction)
        return federation.vector_of(network) - vector
