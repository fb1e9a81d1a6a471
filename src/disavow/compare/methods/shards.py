"""Isolated shards: retrain the leaver's shard alone, and average the models of all shards again. Exact.

L. Bourtoule et al., "Machine Unlearning" (IEEE S&P 2021), with clients in the place of records, as in Lin et al.,
"Scalable Federated Unlearning via Isolated and Coded Sharding" (IJCAI 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from disavow.compare.averages import weighted_mean
from disavow.compare.method import Federation, Forgotten, Method
from disavow.compare.schemes.shards import MOST_SHARDS, merged, split_by_shard
from disavow.compare.training import TrainedRound


@dataclass(frozen=True)
class Shards(Method):
    """See `Method`."""

    name = "shards"
    paper = "Bourtoule et al., Machine Unlearning, IEEE S&P 2021; Lin et al., IJCAI 2024"
    scheme = "shards"
    stores = "models"
    exact = True
    claim = "exact: the model of a federation that the leaver never joined, bit for bit with the same seed"

    def bytes_stored(self, rounds: int, participants: int, model_bytes: int) -> int:
        """The final model of each shard; see `Method`."""
        del rounds, participants
        return MOST_SHARDS * model_bytes

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        models, samples, retrained = [], [], 0
        for shard in split_by_shard(federation.training.rounds):
            vector, count = shard[-1].before, sum(shard[-2].samples)
            if federation.leaver in shard[0].clients:
                clients = [client for client in shard[0].clients if client in federation.remaining]
                if not clients:
                    continue
                vector = _retrained(federation, shard, clients)
                count = sum(federation.samples_of(client) for client in clients)
                retrained = len(clients)
            models.append(vector)
            samples.append(count)
        return Forgotten(merged(models, samples), f"{retrained} clients of its shard retrained")


def _retrained(federation: Federation, shard: Sequence[TrainedRound], clients: Sequence[str]) -> Tensor:
    """The final model of a shard without the leaver."""
    vector, last = federation.training.initial, len(shard) - 1
    for each in shard[:last]:
        updates = federation.train(vector, clients, each.number).in_id_order()
        vector = vector + weighted_mean(updates.vectors, updates.samples)
        federation.tell(each.number, last)
    return vector
