"""Gradient difference: climb the loss of what leaves and descend that of what stays, in the same steps.

B. Liu, Q. Liu and P. Stone, "Continual Learning and Private Unlearning" (CoLLAs 2022); a baseline of P. Maini, Z.
Feng, A. Schwarzschild, Z. C. Lipton and J. Z. Kolter, "TOFU: A Task of Fictitious Unlearning for LLMs" (COLM 2024):
the loss of a step is L(what stays) - L(what leaves), each over a batch. In a federation the leaver sends the
gradient of its batch, and a client who stays that of another; the server subtracts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from disavow.compare.method import Federation, Forgotten, Method
from disavow.compare.methods.ascent import after_training, loss_of_untrained, retained_batches, take_steps


@dataclass(frozen=True)
class GradientDifference(Method):
    """See `Method`.

    `epochs` over what leaves at the most, by steps of the task's own optimizer on gradients of a norm of at most
    `clip`. The loss of what leaves has no upper bound: steps end once it is that of the initial model, which has
    learned nothing, where the papers choose their number by hand.
    """

    name = "gradient-difference"
    paper = "Liu, Liu and Stone, Continual Learning and Private Unlearning, CoLLAs 2022; Maini et al., TOFU, 2024"
    leaver_helps = True
    claim = "nothing"

    epochs: int = 5
    clip: float = 1.0

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        enough = loss_of_untrained(federation)
        network = federation.network(federation.training.served)
        optimizer = federation.optimizer(network, after_training(federation))
        retained = retained_batches(federation)

        def objective(batch: Any) -> Tensor | None:
            forgotten = federation.loss(network, batch)
            if float(forgotten.detach()) >= enough:
                return None
            return federation.loss(network, next(retained)) - forgotten

        steps = take_steps(federation, optimizer, objective, epochs=self.epochs, clip=self.clip, gradients=True)
        federation.tell(1, 1)
        ended = "until its loss was that of an untrained model" if steps.ended else "to the end of its epochs"
        return Forgotten(federation.vector_of(network), f"{steps.number} steps, {ended}")
