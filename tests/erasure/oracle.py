"""An erasure as the design defines it, in memory and naive: no ledger, no journal, no index.

It shares with the product only the steps of a round that are pure functions of their arguments. Whatever the ledger
and the erasure do with files, rows and crashes must come to the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from disavow.domain import Policy
from disavow.federation.aggregate import aggregate
from disavow.federation.broadcast import Broadcast
from disavow.federation.cluster import cluster
from disavow.federation.local_training import Engine
from disavow.federation.perturb import choose_and_perturb, clip
from disavow.federation.round import Conduct
from disavow.federation.vectors import Model


@dataclass(frozen=True)
class RememberedRound:
    """Everything a naive server would remember of a round, by client id."""

    clusters: tuple[frozenset[str], ...]
    spreads: tuple[float, ...]
    near: dict[str, frozenset[str]]
    delta: float


@dataclass
class Oracle:
    """A federation whose clients can leave, kept in plain lists."""

    policy: Policy
    conduct: Conduct
    engine: Engine
    clients: set[str]
    models: list[Model]  # models[t] is the one broadcast in round t + 1
    rounds: list[RememberedRound] = field(default_factory=list)
    recorded: Counter[int] = field(default_factory=Counter)
    gone: set[str] = field(default_factory=set)

    def train(self, until: int) -> None:
        while len(self.rounds) < until:
            self._round(len(self.rounds) + 1)

    def _round(self, number: int) -> None:
        self.recorded[number] += 1
        attempt, before = self.recorded[number], self.models[-1]
        chosen = self.conduct.participants(sorted(self.clients), number)
        updates = clip(self.engine.train(before, chosen, number), self.policy)
        previous: Sequence[Sequence[str]] = ()
        if self.policy.sticky and self.rounds:
            previous = [sorted(group - self.gone) for group in self.rounds[-1].clusters]
        found = cluster(
            updates,
            policy=self.policy,
            layout=before.layout,
            previous=previous,
            seed=self.conduct.seed,
            round_number=number,
        )
        secrets = self.conduct.secrets
        perturbed = choose_and_perturb(
            updates,
            found,
            policy=self.policy,
            layout=before.layout,
            secrets=secrets,
            round_number=number,
            attempt=attempt,
        )
        opening = Broadcast(number, attempt, before, "", self.conduct.clock())
        self.models.append(aggregate(opening, found, perturbed, policy=self.policy, secrets=secrets))
        self.rounds.append(
            RememberedRound(
                clusters=tuple(frozenset(updates.clients[i] for i in group) for group in found.members),
                spreads=found.spreads,
                near={
                    updates.clients[i]: frozenset(updates.clients[j] for j in listed)
                    for i, listed in enumerate(found.neighbours)
                },
                delta=found.delta,
            )
        )

    def erase(
        self, leavers: set[str], *, from_scratch: bool = False, kept: Collection[int] | None = None
    ) -> int | None:
        """Let clients leave together; the round to go back to, or None where they are deniable.

        Of the models only those broadcast in the rounds `kept` can be gone back to; without it, all of them.
        """
        self.clients -= leavers
        gone_before = set(self.gone)
        self.gone |= leavers
        broken = [
            number
            for number, remembered in enumerate(self.rounds, start=1)
            for group, spread in zip(remembered.clusters, remembered.spreads, strict=True)
            if self._touched(remembered, group, leavers, gone_before) and not self._holds(remembered, group, spread)
        ]
        if not broken:
            return None
        first, now = 1 if from_scratch else min(broken), len(self.rounds)
        back_to = first if kept is None else max(number for number in kept if number <= first)
        del self.rounds[back_to - 1 :]
        del self.models[back_to:]
        if len(participants_of(self)) >= self.policy.k:
            self.train(now)
        return first

    def _touched(
        self, remembered: RememberedRound, group: frozenset[str], leavers: set[str], before: set[str]
    ) -> bool:
        if group & leavers:
            return True
        if self.policy.criterion == "cluster":
            return False
        return bool(group & before) and any(remembered.near[client] & leavers for client in group)

    def _holds(self, remembered: RememberedRound, group: frozenset[str], spread: float) -> bool:
        if self.policy.criterion == "cluster":
            return len(group - self.gone) >= self.policy.x and spread <= remembered.delta
        return all(len((remembered.near[client] | {client}) - self.gone) >= self.policy.x for client in group)

    def vectors(self) -> list[Tensor]:
        return [model.vector for model in self.models]


def participants_of(oracle: Oracle) -> tuple[str, ...]:
    if not oracle.clients:
        return ()
    return oracle.conduct.participants(sorted(oracle.clients), 1)


def same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))
