"""Rounds in memory: the steps of `rounds.round` without a ledger, from any model and any round on.

Methods start from models that no ledger holds, and retrainings by the dozen need no record. Every step is the
product's own; with the same seeds a federation that trains here has the very models that one in a ledger has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from disavow.compare.training import TrainedRound
from disavow.domain import Anchors, Layout, Policy, TakingPart, size_class
from disavow.engines.batched_rounds import waves
from disavow.engines.trainer import Ask, Trainer
from disavow.engines.workload import Workload
from disavow.rounds.aggregate import aggregate
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.cluster import cluster
from disavow.rounds.clustering.fixed import settled
from disavow.rounds.local_training import accept, fewest, refuse_overflow, refuse_too_few
from disavow.rounds.options import RoundOptions, taking_part_of
from disavow.rounds.perturb import choose_and_perturb, clip
from disavow.rounds.vectors import Model, Updates, on_cpu

OnRounds = Callable[[int], None]
"""Called with how many rounds have been trained since the last call."""

OnTrained = Callable[["MemoryRun", TrainedRound], None]
"""Called with a federation and its newest round; the updates are on the CPU."""

_ATTEMPT = 1


def ignore_rounds(rounds: int) -> None:
    """Show nothing of how far rounds are."""


@dataclass(eq=False)
class MemoryRun:
    """One federation between two rounds.

    Attributes:
        workload: What its clients train on.
        policy: How clusters are formed and perturbed.
        options: Seeds, participation, and where secret draws come from.
        clients: Who is in.
        layout: How tensors lie in its vector.
        vector: The model that the next round starts from, on the CPU.
        number: Of the next round.
        anchors: Its fixed clusters, where it has some already.
        previous: The clusters of the round before, by id, which sticky ones are repaired from.

    """

    workload: Workload
    policy: Policy
    options: RoundOptions
    clients: tuple[str, ...]
    layout: Layout
    vector: Tensor
    number: int = 1
    anchors: Anchors | None = None
    previous: tuple[tuple[str, ...], ...] = field(default=())

    def opened(self) -> Ask:
        """Choose who takes part in the next round.

        Raises:
            RoundRefused: They are too few.

        """
        clients = taking_part_of(self.clients, self.options, self.number, self._taking_part())
        refuse_too_few(len(clients), k=fewest(self.policy), round_number=self.number)
        return Ask(self.workload, Model(self.layout, self.vector), clients, self.number)

    def close(self, updates: Updates) -> None:
        """Turn updates into the next model.

        Args:
            updates: What those who took part sent.

        Raises:
            RoundRefused: They, or the model that they make, cannot be used.

        """
        policy, number = self.policy, self.number
        updates = accept(updates, layout=self.layout, k=fewest(policy), round_number=number)
        if self.anchors is not None:
            classes = {
                client: size_class(count) for client, count in zip(updates.clients, updates.samples, strict=True)
            }
            self.anchors = self.anchors.counted(classes)
        clipped = clip(updates, policy)
        clusters = cluster(
            clipped,
            policy=policy,
            layout=self.layout,
            previous=self.previous if policy.sticky else (),
            seed=self.options.seed,
            round_number=number,
            taking_part=self._taking_part(),
        )
        perturbed = choose_and_perturb(
            clipped,
            clusters,
            policy=policy,
            layout=self.layout,
            secrets=self.options.secrets,
            round_number=number,
            attempt=_ATTEMPT,
        )
        opening = Broadcast(number, _ATTEMPT, Model(self.layout, self.vector), "", self.options.clock())
        after = aggregate(opening, clusters, perturbed, policy=policy, secrets=self.options.secrets)
        refuse_overflow(after, round_number=number)
        self.previous = tuple(tuple(updates.clients[i] for i in members) for members in clusters.members)
        self.vector, self.number = on_cpu(after.vector), number + 1

    def _taking_part(self) -> TakingPart | None:
        if not self.policy.anchored:
            return None
        if self.anchors is None:
            borders = self.options.secrets.stream(0, 1, "borders")
            self.anchors = settled(self.clients, self.policy.k, self.options.position, borders)
        return self.options.clusters(self.anchors, self.number)


def run_rounds(
    runs: Sequence[MemoryRun],
    trainer: Trainer,
    rounds: int,
    *,
    on_trained: OnTrained | None = None,
    on_rounds: OnRounds = ignore_rounds,
) -> None:
    """Run rounds of several federations; the clients of several of them train in one call.

    Args:
        runs: The federations. Each is changed in place.
        trainer: Trains their clients.
        rounds: How many.
        on_trained: Called with each round of each federation, where somebody wants what clients sent.
        on_rounds: Called with how many rounds are done.

    Raises:
        RoundRefused: A round of one of them cannot be run.

    """
    for _ in range(rounds):
        asks = [run.opened() for run in runs]
        for wave in waves(asks):
            for run, ask, updates in zip(runs[wave], asks[wave], trainer.train(asks[wave]), strict=True):
                if on_trained is not None:
                    on_trained(run, trained_round(ask, updates))
                run.close(updates)
        on_rounds(len(runs))


def trained_round(ask: Ask, updates: Updates, *, keep: bool = True) -> TrainedRound:
    """Keep what clients were asked and what they sent.

    Args:
        ask: The round's model and who took part.
        updates: What they sent.
        keep: Whether that is kept as well.

    """
    updates = updates.in_id_order()
    return TrainedRound(
        number=ask.round_number,
        before=on_cpu(ask.model.vector),
        clients=updates.clients,
        samples=updates.samples,
        # to memory that can be paged out: all rounds of a training are kept
        updates=updates.vectors.cpu() if keep else None,
    )
