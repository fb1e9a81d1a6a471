"""Train isolated shards of clients, and average their models at the end.

L. Bourtoule et al., "Machine Unlearning" (IEEE S&P 2021), with clients in the place of records, as in Y. Lin, Z.
Gao, H. Du, D. Niyato, G. Gui, S. Cui and J. Ren, "Scalable Federated Unlearning via Isolated and Coded Sharding"
(IJCAI 2024). A shard never sees another one's updates before the end, so that a leaver is in one of them only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from disavow.compare.averages import weighted_mean
from disavow.compare.memory_rounds import trained_round
from disavow.compare.problem import Problem
from disavow.compare.scheme import Scheme, TrainingResources
from disavow.compare.training import TrainedRound, Training
from disavow.engines.trainer import Ask
from disavow.rounds.randomness import derive
from disavow.rounds.vectors import Model

MOST_SHARDS = 4


@dataclass(frozen=True)
class IsolatedShards(Scheme):
    """See `Scheme`. No clusters and no noise: plain averaging within each shard.

    The rounds of a training are those of one shard after the other; behind the last round of a shard comes one
    without clients, which holds its final model.
    """

    name = "shards"

    def obstacle(self, problem: Problem) -> str | None:
        """See `Scheme`: with fewer than two clients a shard is nobody's once one leaves."""
        return "isolated shards need at least four clients" if len(problem.subject.clients) < MOST_SHARDS else None

    def train(self, problem: Problem, seed: int, folder: Path, resources: TrainingResources) -> Training:
        """See `Scheme`."""
        del folder
        rounds: list[TrainedRound] = []
        for clients in shards_of(problem.subject.clients, problem.seed_of(seed)):
            rounds += _train_shard(problem, seed, clients, resources, without_leaver=False)
        finals = [each for each in rounds if not each.clients]
        served = merged([each.before for each in finals], [sum(each.samples) for each in _last_rounds(rounds)])
        return Training(problem.subject.layout, tuple(rounds), served, seed)

    def retrain(self, problem: Problem, seeds: Sequence[int], resources: TrainingResources) -> list[Tensor]:
        """See `Scheme`: the same shards, without the leaver in its own."""
        found = []
        for seed in seeds:
            rounds: list[TrainedRound] = []
            for everybody in shards_of(problem.subject.clients, problem.seed_of(seed)):
                clients = [client for client in everybody if client in problem.remaining]
                if clients:
                    rounds += _train_shard(problem, seed, clients, resources, without_leaver=True)
            finals = [each.before for each in rounds if not each.clients]
            found.append(merged(finals, [sum(each.samples) for each in _last_rounds(rounds)]))
        return found


def shards_of(clients: Sequence[str], seed: int) -> list[list[str]]:
    """Deal clients out to shards, at random and evenly.

    Args:
        clients: All who were there when training began.
        seed: Of the training.

    Returns:
        The clients of each shard, in id order.

    """
    order = sorted(clients, key=lambda client: derive("shards", seed, client))
    count = min(MOST_SHARDS, len(order) // 2) or 1
    return [sorted(order[number::count]) for number in range(count)]


def merged(models: Sequence[Tensor], samples: Sequence[int]) -> Tensor:
    """Average the models of shards by the records behind each.

    Args:
        models: One a shard.
        samples: Records of each shard.

    """
    return weighted_mean(torch.stack(list(models)), samples)


def split_by_shard(rounds: Sequence[TrainedRound]) -> Iterator[tuple[TrainedRound, ...]]:
    """Divide the rounds of a training by shard.

    Args:
        rounds: As `IsolatedShards` gives them.

    Yields:
        The rounds of each shard, the last of them the one without clients.

    """
    start = 0
    for place, each in enumerate(rounds):
        if not each.clients:
            yield tuple(rounds[start : place + 1])
            start = place + 1


def _last_rounds(rounds: Sequence[TrainedRound]) -> list[TrainedRound]:
    """The last round of each shard in which anybody trained."""
    return [shard[-2] for shard in split_by_shard(rounds)]


def _train_shard(
    problem: Problem, seed: int, clients: Sequence[str], resources: TrainingResources, *, without_leaver: bool
) -> list[TrainedRound]:
    workload, layout = problem.workload(seed, without_leaver=without_leaver), problem.subject.layout
    vector = problem.subject.initial.vector
    found = []
    for number in range(1, problem.rounds + 1):
        ask = Ask(workload, Model(layout, vector), tuple(clients), number)
        updates = resources.trainer.train([ask])[0].in_id_order()
        found.append(trained_round(ask, updates, keep=resources.updates))
        vector = vector + weighted_mean(updates.vectors, updates.samples)
        resources.on_rounds(1)
    return [*found, TrainedRound(problem.rounds + 1, vector, (), (), None)]
