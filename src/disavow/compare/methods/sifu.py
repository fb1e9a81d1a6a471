"""SIFU: go back to the last model that the leaver had moved little, add noise, and retrain from there.

Y. Fraboni, M. Van Waerebeke, K. Scaman, R. Vidal, L. Kameni and M. Lorenzi, "SIFU: Sequential Informed Federated
Unlearning for Efficient and Provable Client Unlearning in Federated Optimization" (AISTATS 2024). The sensitivity
of the model of round n to a client is at most the sum, over the rounds before it, of how far the client moved each
aggregate; that holds where local training does not expand distances, as on convex and smooth losses. Gaussian noise
hides a sensitivity of

    ψ* = σ ε / √(2 ln(1.25 / δ))

up to (ε, δ), so the last model whose sensitivity is no larger is the one to go back to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from disavow.compare.method import Federation, Forgotten, Method, Stored
from disavow.rounds.vectors import Model, floor_variances


@dataclass(frozen=True)
class Sifu(Method):
    """See `Method`. `sigma` is the noise on each number of the model, (`epsilon`, `delta`) what it is to hide."""

    name = "sifu"
    paper = "Fraboni et al., SIFU: Sequential Informed Federated Unlearning, AISTATS 2024"
    stores: ClassVar[Stored] = "contributions"
    claim = "(ε, δ)-unlearning of the noisy model, where local training does not expand distances (convex losses)"

    sigma: float = 0.05
    epsilon: float = 10.0
    delta: float = 0.01

    @property
    def largest_sensitivity(self) -> float:
        """The sensitivity ψ* that the noise hides."""
        return self.sigma * self.epsilon / math.sqrt(2 * math.log(1.25 / self.delta))

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        training = federation.training
        kept = rounds_within(training.contributions, self.largest_sensitivity)
        models = [each.before for each in training.rounds] + [training.served]
        vector = models[kept]
        if kept:  # the initial model has nothing of the leaver to hide
            noise = federation.stream("sifu").normal(training.layout.size).to(torch.float32)
            vector = floor_variances(Model(training.layout, vector + self.sigma * noise), self.sigma).vector
        last = len(training.rounds)
        for done, after in enumerate(federation.run_rounds(vector, kept + 1, last), start=1):
            vector = after
            federation.tell(done, last - kept)
        return Forgotten(vector, f"back to round {kept} of {last}")


def rounds_within(contributions: tuple[float, ...], largest: float) -> int:
    """Count the rounds after which a client's contributions add up to no more than so much.

    Args:
        contributions: One number a round.
        largest: What they may add up to.

    Returns:
        How many rounds may stand.

    """
    total = 0.0
    for number, moved in enumerate(contributions):
        total += moved
        if total > largest:
            return number
    return len(contributions)
