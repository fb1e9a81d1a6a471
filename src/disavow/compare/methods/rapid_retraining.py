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
            group["steps"] += 1
            momentum, decay, parameters = group["momentum"], group["decay"], group["params"]
            for each in parameters:
                if not self.state[each]:
                    self.state[each] = {"mean": torch.zeros_like(each), "curvature": torch.zeros_like(each)}
            gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
            means, curvatures = ([self.state[each][name] for each in parameters] for name in ("mean", "curvature"))
            torch._foreach_lerp_(means, gradients, 1 - momentum)
            torch._foreach_lerp_(curvatures, torch._foreach_mul(gradients, gradients), 1 - decay)
            divisors = torch._foreach_div(curvatures, 1 - decay ** group["steps"])
            torch._foreach_sqrt_(divisors)
            for each in divisors:
                largest = each.flatten(1).amax(1).view(-1, *(1,) * (each.dim() - 1))
                each.add_(group["damping"] * largest + torch.finfo(each.dtype).tiny)
            rate = group["lr"] / (1 - momentum ** group["steps"])
            torch._foreach_addcdiv_(parameters, means, divisors, -rate)
