"""A round, as the paper's Algorithm 1 has it, each step in a module of its own.

    ① broadcast -> ② local training -> ③ cluster -> ④ choose and perturb -> ⑤ aggregate -> ⑥ record

A. K. Varshney and V. Torra, "Efficient Federated Unlearning under Plausible Deniability" (2024).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from disavow.domain import Round
from disavow.errors import ConfigError
from disavow.federation.aggregate import aggregate
from disavow.federation.broadcast import Broadcast, broadcast
from disavow.federation.cluster import Clusters, cluster
from disavow.federation.local_training import Engine, accept, refuse_overflow, refuse_too_few
from disavow.federation.participation import participants, rank_by_key, rank_by_seed
from disavow.federation.perturb import choose_and_perturb, clip
from disavow.federation.randomness import Secrets
from disavow.federation.record import Hashing, record
from disavow.federation.spending import Room, foreseen, refuse_overspending, room_in
from disavow.federation.vectors import Updates
from disavow.ledger import Ledger
from disavow.privacy.budget import Budget
from disavow.privacy.events import Event, event_of

Clock = Callable[[], datetime]
Reachable = Callable[[], Collection[str]]


def now() -> datetime:
    """The present moment, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Conduct:
    """How rounds are run, beyond the policy in the ledger: seeds, participation, epochs, the clock, the budget.

    `at_least` so many take part, however small the fraction. `reachable` says which clients can take part in the
    round that is about to open, and may wait for them; None: all of them, always.
    `keep_every`: the updates of every so many rounds, from the first on, are kept; None: of no round.
    `compress`: whether they are compressed.
    `retention`: so many bytes of checkpoints are kept; None: all of them.
    `participation`: the secret key by which clients are ranked where fewer than all take part. Without it they are
    ranked by the seed, where draws are seeded; with fresh draws that would tell who took part, and is refused.
    """

    seed: int
    fraction: float = 1.0
    epochs: int = 1
    secrets: Secrets = Secrets()
    clock: Clock = now
    budget: Budget | None = None
    keep_every: int | None = None
    compress: bool = True
    retention: int | None = None
    at_least: int = 1
    reachable: Reachable | None = None
    participation: bytes | None = field(default=None, repr=False)

    def keeps(self, number: int) -> bool:
        """Whether the updates of a round are kept."""
        return self.keep_every is not None and (number - 1) % self.keep_every == 0

    def participants(self, clients: Sequence[str], round_number: int) -> tuple[str, ...]:
        """Those of these clients who take part in a round."""
        return participants(
            clients, fraction=self.fraction, rank=self._rank, round_number=round_number, at_least=self.at_least
        )

    def _rank(self, number: int, client: str) -> bytes:
        if self.participation is not None:
            return rank_by_key(self.participation)(number, client)
        if self.secrets.seed is not None:
            return rank_by_seed(self.seed)(number, client)
        raise ConfigError(
            "fewer than all clients take part and draws are fresh: that takes the run's participation key "
            "(federation.participation); a hash of the seed would tell everybody who took part in which round"
        )


def run_round(ledger: Ledger, engine: Engine, conduct: Conduct) -> Round:
    """Run the next round from broadcast to record."""
    opening, clients = open_round(ledger, conduct)
    updates = engine.train(opening.model, clients, opening.number)
    return close_round(ledger, opening, updates, conduct)


def open_round(ledger: Ledger, conduct: Conduct) -> tuple[Broadcast, tuple[str, ...]]:
    """The broadcast that opens the next round, and who takes part.

    Refused where these are too few, or where the round would exceed the privacy budget.
    """
    # before the clients are read: whoever is reached for the first time becomes one
    here = None if conduct.reachable is None else frozenset(conduct.reachable())
    opening = broadcast(ledger, conduct.clock())
    known = [client for client in ledger.clients() if here is None or client in here]
    clients = conduct.participants(known, opening.number)
    refuse_too_few(len(clients), k=ledger.policy.k, round_number=opening.number)
    if conduct.budget is not None:
        event = foreseen(ledger.policy, clients, ledger.latest_samples(), seed=conduct.seed, number=opening.number)
        refuse_overspending(ledger, conduct.budget, event)
    return opening, clients


def room_for(ledger: Ledger, conduct: Conduct, first: int, rounds: int = 1, leavers: Collection[str] = ()) -> Room:
    """How many of so many rounds, numbered from `first`, the privacy budget has room for once these have left."""
    if conduct.budget is None:
        return Room(rounds)
    policy, samples = ledger.policy, ledger.latest_samples()
    clients = sorted(set(ledger.clients()) - set(leavers))

    def coming(number: int) -> Event:
        # nobody is asked who takes part where it makes no difference
        chosen = conduct.participants(clients, number) if policy.clustering == "fixed" else ()
        return foreseen(policy, chosen, samples, seed=conduct.seed, number=number)

    return room_in(conduct.budget, ledger.events(), map(coming, range(first, first + rounds)))


def close_round(ledger: Ledger, opening: Broadcast, updates: Updates, conduct: Conduct) -> Round:
    """From clustering on: turn updates, wherever they come from, into the next model, and record it.

    Nothing is returned before it is recorded; whatever must not enter is refused before anything is stored.
    """
    policy, number, attempt = ledger.policy, opening.number, opening.attempt
    updates = accept(
        updates,
        layout=ledger.layout,
        k=policy.k,
        strangers=ledger.strangers(updates.clients),
        round_number=number,
    )
    # before hashing begins: its threads would take turns with every row that is read
    previous = ledger.newest_membership() if policy.sticky else ()
    hashing = Hashing(updates)
    clipped = clip(updates, policy)
    clusters = cluster(
        clipped,
        policy=policy,
        layout=ledger.layout,
        previous=previous,
        seed=conduct.seed,
        round_number=number,
    )
    _keep_to_budget(ledger, opening, clusters, conduct)
    perturbed = choose_and_perturb(
        clipped,
        clusters,
        policy=policy,
        layout=ledger.layout,
        secrets=conduct.secrets,
        round_number=number,
        attempt=attempt,
    )
    after = aggregate(opening, clusters, perturbed, policy=policy, secrets=conduct.secrets)
    refuse_overflow(after, round_number=number)
    return record(
        ledger,
        opening,
        updates,
        clusters,
        after,
        hashing,
        previous=previous,
        secrets=conduct.secrets,
        at=conduct.clock(),
        keep=conduct.keeps(number),
        compress=conduct.compress,
    )


def _keep_to_budget(ledger: Ledger, opening: Broadcast, clusters: Clusters, conduct: Conduct) -> None:
    """Refuse a round that costs more than the budget has left."""
    if conduct.budget is None:
        return
    # what was foreseen may have been less: weights are known only now
    event = event_of(
        ledger.policy,
        number=opening.number,
        attempt=opening.attempt,
        sizes=[len(members) for members in clusters.members],
        weights=clusters.weights,
    )
    refuse_overspending(ledger, conduct.budget, event)
