"""Negative preference optimization: make what leaves less likely than it was, and ever more gently.

R. Zhang, L. Lin, Y. Bai and S. Mei, "Negative Preference Optimization: From Catastrophic Collapse to Effective
Unlearning" (COLM 2024). With π the model, π_ref the served one and (x, y) a record of what leaves, the loss is

    2/β · mean of log(1 + (π(y|x) / π_ref(y|x))^β).

For β -> 0 its gradient is that of gradient ascent; for β > 0 it vanishes as a record becomes unlikely, so that the
loss is bounded from below where that of ascent is not. The paper's best variant adds the loss of what stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from disavow.compare.method import Federation, Forgotten, Method
from disavow.compare.methods.ascent import after_training, retained_batches, take_steps


@dataclass(frozen=True)
class NegativePreference(Method):
    """See `Method`.

    `epochs` over what leaves, by steps of the task's own optimizer on gradients of a norm of at most `clip`; `beta`
    is the paper's β, and `retain` the weight of the loss of what stays: with 0 the leaver takes all steps alone.

    π(y|x) is the likelihood of a record's whole target, as in the paper: of a response it is the product over its
    tokens, and not their mean. Networks are in evaluation mode, where it does not depend on the rest of a batch.
    """

    name = "npo"
    paper = "Zhang et al., Negative Preference Optimization, COLM 2024"
    leaver_helps = True
    needs_likelihood = True
    claim = "nothing"

    beta: float = 0.1
    retain: float = 1.0
    epochs: int = 10
    clip: float = 1.0

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        served = federation.training.served
        network, reference = federation.network(served).eval(), federation.network(served).eval()
        optimizer = federation.optimizer(network, after_training(federation))
        retained = retained_batches(federation)

        def objective(batch: Any) -> Tensor:
            with torch.no_grad():
                before = federation.log_likelihoods(reference, batch)
            loss = negative_preference(federation.log_likelihoods(network, batch), before, self.beta)
            return loss + self.retain * federation.loss(network, next(retained)) if self.retain else loss

        steps = take_steps(
            federation, optimizer, objective, epochs=self.epochs, clip=self.clip, gradients=bool(self.retain)
        )
        federation.tell(1, 1)
        return Forgotten(federation.vector_of(network), f"{steps.number} steps")


def negative_preference(now: Tensor, before: Tensor, beta: float) -> Tensor:
    """Compute the loss of negative preference optimization.

    Args:
        now: The log-likelihood of each record by the model.
        before: That by the served model.
        beta: The paper's β, above 0.

    Returns:
        A scalar: 2 log(2) / β where both models are the same, and near 0 where every record has become unlikely.

    """
    return 2 / beta * functional.softplus(beta * (now - before)).mean()
