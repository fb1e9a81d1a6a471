"""NoT: negate the weights of the first layer, so that the model has to be learned anew from there, and train on.

The first layer of a language model is in its frozen base, and not the federation's to negate. Of an adapter, whose
addition to a projection is the product B A, all B matrices are negated: what it adds, it then takes away.

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

_ADAPTER_B = "lora_B"
"""In the names of PEFT's B matrices."""


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
        spans = negated_spans(training.layout)
        for _, start, end in spans:
            vector[start:end].neg_()
        rounds = share_of_rounds(federation, self.share)
        negated = f"{len(spans)} B matrices of the adapter" if _is_adapter(training.layout) else spans[0][0]
        return Forgotten(train_on(federation, vector, rounds), f"{negated} negated, {rounds} more rounds")


def negated_spans(layout: Layout) -> list[tuple[str, int, int]]:
    """Find what is negated in a model's vector: an adapter's B matrices, or else the weights of the first layer.

    Args:
        layout: How tensors lie in it.

    Returns:
        Names, and where each begins and ends. The first tensor, where none is a matrix.

    """
    spans = [(spec, start, end) for spec, start, end in layout.spans()]
    if _is_adapter(layout):
        chosen = [each for each in spans if _ADAPTER_B in each[0].name]
    else:
        chosen = [next((each for each in spans if len(each[0].shape) >= _MATRIX), spans[0])]
    return [(spec.name, start, end) for spec, start, end in chosen]


def _is_adapter(layout: Layout) -> bool:
    return any(_ADAPTER_B in spec.name for spec in layout.tensors)
