"""Forging: could the standing rounds have come from other representatives, and would an attacker notice?

Round by round: each standing round is made again from the model it started from, with a representative drawn among
the survivors of each cluster. A proof says that this moves the round's model by at most p·spread a cluster, and by
the noise, which is drawn again too.

Whole histories: forgeries of one round start where the leaver's rounds ended, and say little. The survivors' own
history, from the initial model on, is an exact retraining. *Functional equivalence* is whether attackers answer
alike on the served model and on such histories: the paper's Conjecture 1, after Z. Kong, A. Roy Chowdhury and K.
Chaudhuri, "Forgeability and membership inference attacks" (2022). How often they answer alike on two exact
retrainings, which differ in secret draws alone, is the yardstick.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from disavow.audit.game import Floats, Scores, Weights
from disavow.domain import Policy, Round
from disavow.domain.strategies import DISTRIBUTIONS, NOISES
from disavow.ledger import Ledger
from disavow.rounds.aggregate import aggregate
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.cluster import Clusters
from disavow.rounds.local_training import Engine
from disavow.rounds.perturb import choose_and_perturb, clip
from disavow.rounds.randomness import Secrets, derive
from disavow.rounds.vectors import Model, Updates, on_cpu

UpdatesOf = Callable[[Model, tuple[str, ...], int], Updates]
"""The updates of some clients in a round, from the model broadcast in it: computed again, or retained."""

_SURE = 4.0
"""Standard deviations above the mean within which the length of the noise stays, but for one case in 30,000."""


@dataclass(frozen=True)
class ForgedRound:
    """One standing round against its forgeries.

    `recomputed` updates were computed again, of which `identical` have the digest that the ledger recorded.
    `distance` is the largest L2 distance of a forgery from the round's model, `displacement` what other
    representatives may contribute to it, Σ p·spread, and `noise` what noise drawn twice may.
    """

    number: int
    recomputed: int
    identical: int
    distance: float
    displacement: float
    noise: float

    @property
    def within(self) -> bool:
        """Whether the distance keeps to the bound; a thousandth is left to rounding."""
        return self.distance <= (self.displacement + self.noise) * 1.001 + 1e-6


@dataclass(frozen=True)
class Alike:
    """On what share of its points an attacker answers alike: on the served model and on exact retrainings, on
    average, and on two exact retrainings. From `low` to `high` lies what 95 % of the retrainings share with the
    others.
    """

    attacker: str
    points: int
    served: float
    retrained: float
    low: float
    high: float


@dataclass(frozen=True)
class Histories:
    """The served model against whole histories that the survivors made alone, from the initial model on.

    Each is an exact retraining with secret draws of its own. `distance` is how far the served model lies from them
    on average, in L2, and `among` how far two of them lie apart.
    """

    retrainings: int
    distance: float
    among: float
    alike: tuple[Alike, ...]


@dataclass(frozen=True)
class Forgery:
    """What forging came to. `left_out` counts rounds that cannot be forged: those with a cluster that has no
    survivor, and rebuilt ones; `thinned` those whose models are gone.
    """

    rounds: tuple[ForgedRound, ...]
    left_out: int
    thinned: int


def recompute(engine: Engine) -> UpdatesOf:
    """Compute updates again from the clients' data."""
    return engine.train


def forge(ledger: Ledger, updates_of: UpdatesOf, *, forgings: int, seed: int) -> Forgery:
    """Forge each standing round of a ledger.

    Args:
        ledger: The run.
        updates_of: Gives the updates of a round.
        forgings: How often each round is forged.
        seed: Of the other draws.

    Returns:
        What came of it.

    """
    forged, left_out, thinned = [], 0, 0
    standing = ledger.last_round
    kept = {each.round for each in ledger.round_models() if each.kept}
    for number in range(1, standing + 1):
        if not ledger.membership(number):  # rebuilt: nobody was drawn, so nobody else could have been
            left_out += 1
            continue
        record = ledger.round(number)
        if min(len(cluster.clients) for cluster in record.clusters) < ledger.policy.representatives:
            left_out += 1
            continue
        if not {number, number + 1} <= kept:
            thinned += 1
            continue
        before = Model(ledger.layout, torch.from_numpy(ledger.model_before(number)))
        after = torch.from_numpy(ledger.model_after(number)).double()
        members = tuple(sorted(client for cluster in record.clusters for client in cluster.clients))
        updates = updates_of(before, members, number).in_id_order()
        made = [
            _again(before, record, updates, ledger.policy, Secrets(_seed(seed, number, i))) for i in range(forgings)
        ]
        distance = max(float((model.vector.cpu().double() - after).norm()) for model in made)
        identical = _identical(record, updates)
        # all representatives of a cluster may be others, so their mean may move by the whole spread
        displacement = sum(cluster.weight * cluster.spread for cluster in record.clusters)
        noise = _noise(record, ledger.policy, ledger.layout.size)
        forged.append(ForgedRound(number, len(members), identical, distance, displacement, noise))
    return Forgery(tuple(forged), left_out, thinned)


def _seed(seed: int, number: int, forging: int) -> int:
    return int.from_bytes(derive("audit, forging", seed, number, forging), "big")


def _again(before: Model, record: Round, updates: Updates, policy: Policy, secrets: Secrets) -> Model:
    """The round once more with other representatives, by the product's own steps."""
    position = {client: i for i, client in enumerate(updates.clients)}
    clusters = Clusters(
        # in id order: that of slots is random, and a seed must give the same forgeries of any copy
        members=tuple(tuple(position[client] for client in sorted(each.clients)) for each in record.clusters),
        weights=tuple(cluster.weight for cluster in record.clusters),
        spreads=tuple(cluster.spread for cluster in record.clusters),
        delta=record.delta,
        capacities=tuple(len(cluster.clients) for cluster in record.clusters),
    )
    perturbed = choose_and_perturb(
        clip(updates, policy),
        clusters,
        policy=policy,
        layout=before.layout,
        secrets=secrets,
        round_number=record.number,
        attempt=record.attempt,
    )
    opening = Broadcast(record.number, record.attempt, before, record.before, record.recorded_at)
    return aggregate(opening, clusters, perturbed, policy=policy, secrets=secrets)


def _identical(record: Round, updates: Updates) -> int:
    recorded = {slot.member.client: slot.member.update_digest for slot in record.slots if slot.member is not None}
    rows = on_cpu(updates.vectors).numpy().astype("<f4", copy=False)
    return sum(
        hashlib.sha256(np.ascontiguousarray(row).data).digest() == recorded[client]
        for client, row in zip(updates.clients, rows, strict=True)
    )


def _noise(record: Round, policy: Policy, size: int) -> float:
    """How far two draws of the noise lie apart at most, all but surely."""
    noise = NOISES[policy.noise]
    tau = noise.tau(policy, [(cluster.weight, cluster.spread) for cluster in record.clusters])
    spread = DISTRIBUTIONS[noise.distribution(policy)].variance_of_squares
    return tau * math.sqrt(2 * size + _SURE * math.sqrt(spread * size))


def compare_histories(
    served: Weights, retrained: Weights, answers: Mapping[str, tuple[Scores, Sequence[Scores]]]
) -> Histories:
    """Compare the served model with exact retrainings, and these among themselves: the yardstick.

    `answers` are scores of records on the served model and on each retraining. Each attacker calls the upper half
    of the records present, as many as are: a threshold that calls nobody present would make any two models alike.
    Two models that have nothing in common then agree on half.

    Args:
        served: Its numbers.
        retrained: Those of each retraining.
        answers: Scores of records on the served model and on each retraining, by attacker.

    """
    models = np.concatenate([served[None], retrained]).astype(np.float64)
    models -= models.mean(axis=0)
    squares = (models**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * models @ models.T, 0))
    alike = [_alike(attacker, *scores) for attacker, scores in answers.items()]
    others = len(retrained)
    among = distances[1:, 1:].sum() / (others * (others - 1))
    return Histories(others, float(distances[0, 1:].mean()), float(among), tuple(alike))


def _alike(attacker: str, served: Scores, retrained: Sequence[Scores]) -> Alike:
    said = np.stack([_upper_half(scores) for scores in (served, *retrained)])
    points, others = said.shape[1], len(retrained)
    agreed = (1 + said @ said.T / points) / 2
    shared = (agreed[1:, 1:].sum(axis=1) - 1) / (others - 1)  # each retraining with all others
    low, high = np.quantile(shared, [0.025, 0.975])
    return Alike(attacker, points, float(agreed[0, 1:].mean()), float(shared.mean()), float(low), float(high))


def _upper_half(scores: Scores) -> Floats:
    """1 for the records that are called present, -1 for the others."""
    everyone = np.concatenate([scores.present, scores.absent])
    return np.where(everyone >= np.median(everyone), 1.0, -1.0)
