"""FATS: recompute from the first round in which the leaver was drawn. Exact.

Y. Tao, C.-L. Wang, M. Pan, D. Yu, X. Cheng and D. Wang, "Communication Efficient and Provable Federated Unlearning"
(PVLDB 2024). Few clients are drawn a round, so that the first round with the leaver may be a late one: rounds
before it are those of a federation without it (`compare/schemes/sampled.py` says how they are drawn).
"""

from __future__ import annotations

from dataclasses import dataclass

from disavow.compare.method import Federation, Forgotten, Method
from disavow.compare.schemes.sampled import draws, mean_of_draws, slots_of


@dataclass(frozen=True)
class Fats(Method):
    """See `Method`."""

    name = "fats"
    paper = "Tao et al., Communication Efficient and Provable Federated Unlearning, PVLDB 2024"
    scheme = "sampled"
    stores = "models"
    exact = True
    claim = "exact: the model of a federation that the leaver never joined, bit for bit with the same seed"

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        training = federation.training
        first, last = training.first_round_of(federation.leaver), len(training.rounds)
        if first is None:
            return Forgotten(training.served, "never drawn: the model stays")
        slots = slots_of(len({*federation.remaining, federation.leaver}))
        vector = training.rounds[first - 1].before
        for number in range(first, last + 1):
            drawn = draws(federation.remaining, slots, federation.seed, number)
            vector = vector + mean_of_draws(federation.train(vector, sorted(drawn), number), drawn)
            federation.tell(number - first + 1, last - first + 1)
        return Forgotten(vector, f"from round {first} of {last}")
