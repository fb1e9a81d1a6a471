"""An erasure as the design defines it, in memory and naive: no ledger, no journal, no index.

It shares with the product only the steps of a round that are pure functions of their arguments. Whatever the ledger
and the erasure do with files, rows and crashes must come to the same bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from disavow.domain import Anchors, Policy, size_class
from disavow.rounds.aggregate import aggregate
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.cluster import cluster
from disavow.rounds.clustering.fixed import settled
from disavow.rounds.local_training import Engine
from disavow.rounds.options import RoundOptions
from disavow.rounds.perturb import choose_and_perturb, clip
from disavow.rounds.vectors import Model


@dataclass(frozen=True)
class RememberedRound:
    """Everything a naive server would remember of a round, by client id."""

    clusters: tuple[frozenset[str], ...]
    spreads: tuple[float, ...]
    weights: tuple[float, ...]
    delta: float


@dataclass
class Oracle:
    """A federation whose clients can leave, kept in plain lists."""

    policy: Policy
    options: RoundOptions
    engine: Engine
    clients: set[str]
    models: list[Model]  # models[t] is the one broadcast in round t + 1
    rounds: list[RememberedRound] = field(default_factory=list)
    recorded: Counter[int] = field(default_factory=Counter)
    gone: set[str] = field(default_factory=set)
    anchors: Anchors | None = None

    def __post_init__(self) -> None:
        if self.policy.clustering == "fixed":
            stream = self.options.secrets.stream(0, 1, "borders")
            self.anchors = settled(self.clients, self.policy.k, self.options.position, stream)

    def train(self, until: int) -> None:
        while len(self.rounds) < until:
            self._round(len(self.rounds) + 1)

    def _round(self, number: int) -> None:
        self.recorded[number] += 1
        attempt, before = self.recorded[number], self.models[-1]
        updates = clip(self.engine.train(before, self._participants(number), number), self.policy)
        taking_part = None
        if self.anchors is not None:
            held = zip(updates.clients, updates.samples, strict=True)
            self.anchors = self.anchors.counted({client: size_class(samples) for client, samples in held})
            taking_part = self.options.clusters(self.anchors, number)
        previous: Sequence[Sequence[str]] = ()
        if self.policy.sticky and self.rounds:
            previous = [sorted(group - self.gone) for group in self.rounds[-1].clusters]
        found = cluster(
            updates,
            policy=self.policy,
            layout=before.layout,
            previous=previous,
            seed=self.options.seed,
            round_number=number,
            taking_part=taking_part,
        )
        secrets = self.options.secrets
        perturbed = choose_and_perturb(
            updates,
            found,
            policy=self.policy,
            layout=before.layout,
            secrets=secrets,
            round_number=number,
            attempt=attempt,
        )
        opening = Broadcast(number, attempt, before, "", self.options.clock())
        self.models.append(aggregate(opening, found, perturbed, policy=self.policy, secrets=secrets))
        self.rounds.append(
            RememberedRound(
                clusters=tuple(frozenset(updates.clients[i] for i in group) for group in found.members if group),
                spreads=_filled(found.spreads, found.members),
                weights=_filled(found.weights, found.members),
                delta=found.delta,
            )
        )

    def _participants(self, number: int) -> tuple[str, ...]:
        if self.anchors is None:
            return self.options.participants(sorted(self.clients), number)
        numbers = self.options.clusters(self.anchors, number).numbers
        return tuple(
            sorted(client for client in self.clients if self.anchors.assignments[client].cluster in numbers)
        )

    def erase(
        self, leavers: set[str], *, from_scratch: bool = False, kept: Collection[int] | None = None
    ) -> int | None:
        """Let clients leave together; the round to go back to, or None where they are deniable.

        Of the models only those broadcast in the rounds `kept` can be gone back to; without it, all of them.
        """
        self.clients -= leavers
        self.gone |= leavers
        broken = [
            number
            for number, remembered in enumerate(self.rounds, start=1)
            for group, spread in zip(remembered.clusters, remembered.spreads, strict=True)
            if group & leavers and not self._holds(remembered, group, spread)
        ]
        broken += [number for leaver in leavers for number in self._beyond_odds(leaver)]
        if not broken:
            return None
        first, now = 1 if from_scratch else min(broken), len(self.rounds)
        back_to = first if kept is None else max(number for number in kept if number <= first)
        del self.rounds[back_to - 1 :]
        del self.models[back_to:]
        if len(self.clients if self.anchors else participants_of(self)) >= self.policy.k:
            self.train(now)
        return first

    def purge(self, *, from_scratch: bool = False, kept: Collection[int] | None = None) -> int | None:
        """Train again from the first round with somebody in it who has left; that round, or None."""
        touched = [
            number
            for number, remembered in enumerate(self.rounds, start=1)
            if any(group & self.gone for group in remembered.clusters)
        ]
        if not touched:
            return None
        first, now = 1 if from_scratch else touched[0], len(self.rounds)
        back_to = first if kept is None else max(number for number in kept if number <= first)
        del self.rounds[back_to - 1 :]
        del self.models[back_to:]
        self.train(now)
        return touched[0]

    def _holds(self, remembered: RememberedRound, group: frozenset[str], spread: float) -> bool:
        needed = self.policy.x + self.policy.representatives - 1
        return len(group - self.gone) >= needed and spread <= remembered.delta

    def _beyond_odds(self, leaver: str) -> Iterator[int]:
        """The rounds up to which the leaver's odds are more than the policy allows; not calibrated."""
        if self.policy.odds is None:
            return
        squares = 0.0
        for number, remembered in enumerate(self.rounds, start=1):
            moved = [weight * spread for weight, spread in zip(remembered.weights, remembered.spreads, strict=True)]
            widest = max(moved) if self.policy.noise == "sensitivity" else math.hypot(*moved)
            tau = self.policy.sigma * widest  # s divides both, and cancels out
            for group, each in zip(remembered.clusters, moved, strict=True):
                squares += (each / tau) ** 2 if leaver in group else 0.0
            if squares / 2 + 1.645 * math.sqrt(squares) > math.log(self.policy.odds):
                yield number

    def vectors(self) -> list[Tensor]:
        return [model.vector for model in self.models]


def _filled(values: Sequence[float], members: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """The values of those clusters that somebody is left in."""
    return tuple(value for value, group in zip(values, members, strict=True) if group)


def participants_of(oracle: Oracle) -> tuple[str, ...]:
    if not oracle.clients:
        return ()
    return oracle.options.participants(sorted(oracle.clients), 1)


def same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))
