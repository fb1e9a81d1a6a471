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
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from disavow.compare.averages import weighted_mean
from disavow.compare.method import Federation, Forgotten, Method
from disavow.compare.training import TrainedRound
from disavow.rounds.vectors import Model, floor_variances

_NUMBER_BYTES = 8


@dataclass(frozen=True)
class Sifu(Method):
    """See `Method`. `sigma` is the noise on each number of the model, (`epsilon`, `delta`) what it is to hide.

    A server that runs it keeps the models, and one number a client and round: how far the client moved the model.
    Here these numbers are computed from the updates.
    """

    name = "sifu"
    paper = "Fraboni et al., SIFU: Sequential Informed Federated Unlearning, AISTATS 2024"
    stores = "updates"
    claim = "(ε, δ)-unlearning of the noisy model, where local training does not expand distances (convex losses)"
    records = False  # what was kept says how far a client moved the model, not how far some records did

    sigma: float = 0.05
    epsilon: float = 10.0
    delta: float = 0.01

    @property
    def largest_sensitivity(self) -> float:
        """The sensitivity ψ* that the noise hides."""
        return self.sigma * self.epsilon / math.sqrt(2 * math.log(1.25 / self.delta))

    def bytes_stored(self, rounds: int, participants: int, model_bytes: int) -> int:
        """Every model, and one number a client; see `Method`."""
        return rounds * (model_bytes + _NUMBER_BYTES * participants)

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        training = federation.training
        moved = (contribution(each, federation.leaver) for each in training.rounds)
        kept = rounds_within(moved, self.largest_sensitivity)
        last = len(training.rounds)
        vector = training.served if kept == last else training.rounds[kept].before
        if kept:  # the initial model has nothing of the leaver to hide
            noise = federation.stream("sifu").normal(training.layout.size).to(torch.float32)
            vector = floor_variances(Model(training.layout, vector + self.sigma * noise), self.sigma).vector
        for done, after in enumerate(federation.run_rounds(vector, kept + 1, last), start=1):
            vector = after
            federation.tell(done, last - kept)
        return Forgotten(vector, f"back to round {kept} of {last}")


def contribution(trained: TrainedRound, client: str) -> float:
    """Measure how far a client moved the mean of a round: the norm of the mean with it minus that without it.

    Args:
        trained: The round, with its updates.
        client: Whose contribution.

    Returns:
        The distance; 0 where the client did not take part, and infinity where nobody else did.

    """
    if trained.updates is None or client not in trained.clients:
        return 0.0
    others = [row for row, each in enumerate(trained.clients) if each != client]
    if not others:
        return math.inf
    with_it = weighted_mean(trained.updates, trained.samples)
    without = weighted_mean(trained.updates[others], [trained.samples[row] for row in others])
    return float(torch.linalg.vector_norm((with_it - without).double()))


def rounds_within(contributions: Iterable[float], largest: float) -> int:
    """Count the rounds after which a client's contributions add up to no more than so much.

    Args:
        contributions: One number a round.
        largest: What they may add up to.

    Returns:
        How many rounds may stand.

    """
    total, standing = 0.0, 0
    for moved in contributions:
        total += moved
        if total > largest:
            break
        standing += 1
    return standing
