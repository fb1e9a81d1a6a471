"""Retraining: the rounds once more without what leaves, from the leaver's first round on or from scratch. Exact.

Every round is one of the run: clusters, representatives and noise included, with secret draws of its own. What
`disavow purge` does to a run after an erasure is `Retrain` here, and its cost is counted the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from disavow.compare.method import Federation, Forgotten, Method


@dataclass(frozen=True)
class RetrainFromScratch(Method):
    """Start over from the initial model: what all others are held against."""

    name = "retrain-from-scratch"
    paper = "the definition: train again without the leaver"
    stores = "nothing"
    exact = True
    claim = "the model is one that training without the leaver gives"

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        return retrained_from(federation, 1)


@dataclass(frozen=True)
class Retrain(Method):
    """Go back to the model before the leaver's first round, and run all rounds from there without it."""

    name = "retrain"
    paper = "the definition, from the last model that the leaver had no part in"
    stores = "models"
    exact = True
    claim = "the model is one that training without the leaver gives"

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        first = federation.training.first_round_of(federation.leaver)
        if first is None:
            return Forgotten(federation.training.served, "never took part: the model stays")
        return retrained_from(federation, first)


def retrained_from(federation: Federation, first: int) -> Forgotten:
    """Run all rounds from one on without what leaves.

    Args:
        federation: The trained federation.
        first: The first round to run again.

    """
    training = federation.training
    model = training.initial if first == 1 else training.rounds[first - 1].before
    last = len(training.rounds)
    for number, newest in enumerate(federation.run_rounds(model, first, last), first):
        model = newest
        federation.tell(number - first + 1, last - first + 1)
    return Forgotten(model)
