"""Train with a few clients a round, each drawn so that leaving changes only the draws that fell on the leaver.

Y. Tao, C.-L. Wang, M. Pan, D. Yu, X. Cheng and D. Wang, "Communication Efficient and Provable Federated Unlearning"
(PVLDB 2024): FATS. A round has a few slots, and each draws one client at random, with replacement. The draw of a
slot is the client with the lowest hash of seed, round, slot and id. Without one client every other draw stays the
same, and the slots that it had held get whom they would have drawn had it never been there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from disavow.compare.averages import weighted_mean
from disavow.compare.memory_rounds import trained_round
from disavow.compare.problem import Problem
from disavow.compare.scheme import Scheme, TrainingResources
from disavow.compare.training import TrainedRound, Training
from disavow.engines.trainer import Ask
from disavow.rounds.randomness import derive
from disavow.rounds.vectors import Model, Updates

SHARE = 0.2
"""Slots of a round, as a share of the clients."""


@dataclass(frozen=True)
class SampledClients(Scheme):
    """See `Scheme`. No clusters and no noise: plain averaging of the drawn clients."""

    name = "sampled"
    share: ClassVar[float] = SHARE

    def train(self, problem: Problem, seed: int, folder: Path, resources: TrainingResources) -> Training:
        """See `Scheme`."""
        del folder
        rounds: list[TrainedRound] = []
        clients, workload = problem.subject.clients, problem.workload(seed, without_leaver=False)
        vector, slots = problem.subject.initial.vector, slots_of(len(clients))
        for number in range(1, problem.rounds + 1):
            drawn = draws(clients, slots, problem.seed_of(seed), number)
            ask = Ask(workload, Model(problem.subject.layout, vector), tuple(sorted(drawn)), number)
            [updates] = resources.trainer.train([ask])
            rounds.append(trained_round(ask, updates, keep=resources.updates))
            vector = vector + mean_of_draws(updates, drawn)
            resources.on_rounds(1)
        return Training(problem.subject.layout, tuple(rounds), vector, seed)

    def retrain(self, problem: Problem, seeds: Sequence[int], resources: TrainingResources) -> list[Tensor]:
        """See `Scheme`: as many slots, drawn from those who remain."""
        layout, slots = problem.subject.layout, slots_of(len(problem.subject.clients))
        found = []
        for seed in seeds:
            vector, workload = problem.subject.initial.vector, problem.workload(seed, without_leaver=True)
            for number in range(1, problem.rounds + 1):
                drawn = draws(problem.remaining, slots, problem.seed_of(seed), number)
                ask = Ask(workload, Model(layout, vector), tuple(sorted(drawn)), number)
                vector = vector + mean_of_draws(resources.trainer.train([ask])[0], drawn)
                resources.on_rounds(1)
            found.append(vector)
        return found


def slots_of(clients: int) -> int:
    """Count the slots of a round: a share of the clients who were there when training began.

    Args:
        clients: How many there were.

    """
    return math.ceil(SHARE * clients)


def draws(clients: Sequence[str], slots: int, seed: int, round_number: int) -> Counter[str]:
    """Draw the clients of a round.

    Args:
        clients: Who is in.
        slots: How many draws.
        seed: Of the training.
        round_number: Which round.

    Returns:
        How often each was drawn.

    """
    return Counter(
        min(clients, key=lambda client: derive("sampled", seed, round_number, slot, client))
        for slot in range(slots)
    )


def mean_of_draws(updates: Updates, drawn: Counter[str]) -> Tensor:
    """Average what the drawn clients sent, each as often as it was drawn.

    Args:
        updates: One row a client.
        drawn: How often each was drawn.

    Returns:
        The step of the global model.

    """
    updates = updates.in_id_order()  # so that the order of arrival cannot change a last bit
    return weighted_mean(updates.vectors, [drawn[client] for client in updates.clients])
