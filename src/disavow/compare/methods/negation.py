"""NoT: negate the weights of the first layer, so that the model has to be learned anew from there, and train on.

Y. H. Khalil, L. Brunswic, S. Lamghari, X. Li, M. Beitollahi and X. Chen, "NoT: Federated Unlearning via Weight
Negation" (CVPR 2025). Negation moves a model far from its optimum and keeps the norms of its layers, so a few
rounds with those who remain recover it.
"""

from __future__ import annotations

from dataclasses import dataclass

from disavow.compare.method import Federation, Forgotten, Method
from disavow.compare.methods.rounds import share_of_rounds, train_on
from disavow.domain import Layout

_MATRIX = 2
"""Weights of a layer have at least so many dimensions; scales, biases and statistics have one."""


@dataclass(frozen=True)
class Negation(Method):
    """See `Method`. `share` of the training's rounds are run after the negation."""

    name = "not"
    paper = "Khalil et al., NoT: Federated Unlearning via Weight Negation, CVPR 2025"
    claim = "nothing about the model; the step away from the optimum is bounded from below"

    share: float = 0.2

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        training = federation.training
        vector = training.served.clone()
        start, end, layer = first_layer(training.layout)
        vector[start:end].neg_()
        rounds = share_of_rounds(federation, self.share)
        return Forgotten(train_on(federation, vector, rounds), f"{layer} negated, {rounds} more rounds")


def first_layer(layout: Layout) -> tuple[int, int, str]:
    """Find the weights of the first layer in a model's vector.

    Args:
        layout: How tensors lie in it.

    Returns:
        Where they begin and end, and their name. The first tensor, where no tensor is a matrix.

    """
    spans = list(layout.spans())
    chosen = next((each for each in spans if len(each[0].shape) >= _MATRIX), spans[0])
    return chosen[1], chosen[2], chosen[0].name
