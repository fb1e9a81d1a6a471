"""Rapid retraining: start again from the initial model, in fewer rounds, with steps divided by the curvature.

Y. Liu, L. Xu, X. Yuan, C. Wang and B. Li, "The Right to be Forgotten in Federated Learning: An Efficient
Realization with Rapid Retraining" (INFOCOM 2022). Every client takes steps of a Newton kind: the Hessian is
approximated by the diagonal of the empirical Fisher information matrix, the squares of gradients, averaged over
steps as their momentum is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

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
            updates = federation.train_with(vector, clients, trained.number, self._optimizer)
            vector = vector + weighted_mean(updates, [federation.samples_of(client) for client in clients])
            federation.tell(trained.number, rounds)
        return Forgotten(vector, f"{rounds} rounds from the initial model")

    def _optimizer(self, parameters: Mapping[str, Tensor]) -> CurvatureScaled:
        return CurvatureScaled(
            parameters.values(),
            lr=self.learning_rate,
            momentum=self.momentum,
            decay=self.decay,
            damping=self.damping,
        )


class CurvatureScaled(Optimizer):
    """Steps of averaged gradients, divided by averaged curvatures; see `RapidRetraining`.

    Args:
        parameters: Of stacked clients: the first dimension is the client.
        lr: The learning rate.
        momentum: Of the average of gradients.
        decay: Of the average of curvatures.
        damping: Is added to curvatures, as a share of the largest of the client's tensor.

    """

    def __init__(
        self, parameters: Iterable[Tensor], *, lr: float, momentum: float, decay: float, damping: float
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "decay": decay, "damping": damping, "steps": 0}
        super().__init__(parameters, options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Take one step of every client; see `Optimizer`."""
        for group in self.param_groups:
            parameters, momentum, decay = group["params"], group["momentum"], group["decay"]
            clients = len(parameters[0])
            gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
            # one row a client, so that few operations step all tensors
            gradient = torch.cat([each.reshape(clients, -1) for each in gradients], dim=1)
            if not group["steps"]:
                group["mean"], group["curvature"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
                group["sizes"] = [each.numel() // clients for each in parameters]
            group["steps"] += 1
            # clients leave a stack from its end
            mean, curvature = (group[name][:clients] for name in ("mean", "curvature"))
            mean.lerp_(gradient, 1 - momentum)
            curvature.lerp_(gradient.square(), 1 - decay)
            scaled = (curvature / (1 - decay ** group["steps"])).sqrt_()
            parts = scaled.split(group["sizes"], dim=1)
            largest = torch.cat([part.amax(1, keepdim=True).expand_as(part) for part in parts], dim=1)
            floor = group["damping"] * largest + torch.finfo(scaled.dtype).tiny
            steps = group["lr"] * (mean / (1 - momentum ** group["steps"]) / (scaled + floor))
            for each, part in zip(parameters, steps.split(group["sizes"], dim=1), strict=True):
                each.sub_(part.view_as(each))
