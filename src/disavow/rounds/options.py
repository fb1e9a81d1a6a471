"""How rounds are run, who takes part in them, and whether the coming ones can be run. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from disavow.domain import Anchors, Policy, TakingPart
from disavow.errors import BudgetSpent, ConfigError
from disavow.ledger import Ledger, Reader
from disavow.privacy.events import Event, event_of
from disavow.rounds.clustering.fixed import position_by_seed
from disavow.rounds.participation import (
    SecretOrder,
    anchors_for,
    clusters_taking_part,
    expected_shares,
    is_anchored,
    participants,
    rank_by_seed,
)
from disavow.rounds.randomness import Secrets

if TYPE_CHECKING:
    from disavow.privacy.budget import Budget

Clock = Callable[[], datetime]
Reachable = Callable[[], Collection[str]]

OnHead = Callable[[Ledger, bool], None]
"""Called with the ledger once a head of its log is signed; with True where a proof of it is about to be made."""


def now() -> datetime:
    """The present moment, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class RoundOptions:
    """How rounds are run, beyond the policy in the ledger: seeds, participation, epochs, the clock, the budget.

    `at_least` so many take part, however small the fraction. `reachable` says which clients can take part in the
    round that is about to open, and may wait for them; None: all of them, always.
    `keep_every`: the updates of every so many rounds, from the first on, are kept; None: of no round.
    `compress`: whether they are compressed.
    `retention`: so many bytes of checkpoints are kept; None: all of them.
    `participation`: orders clients in secret where fewer than all take part, or clusters are fixed. Without it they
    are ordered by the seed, where draws are seeded; with fresh draws that would tell who took part, and is refused.
    `approval`: which requests are answered between rounds only once somebody has approved them.
    `on_head`: asks witnesses to cosign a head; see `disavow.cosigning`.
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
    participation: SecretOrder | None = field(default=None, repr=False)
    approval: Literal["never", "rollback", "always"] = "never"
    on_head: OnHead = field(default=lambda ledger, proving: None, repr=False)

    @property
    def approved(self) -> bool | None:
        """Which requests are judged together: the approved ones (True), or all (None); see `Reader.waiting`."""
        return None if self.approval == "never" else True

    def keeps(self, number: int) -> bool:
        """Return whether the updates of a round are kept."""
        return self.keep_every is not None and (number - 1) % self.keep_every == 0

    def participants(self, clients: Sequence[str], round_number: int) -> tuple[str, ...]:
        """Choose who takes part in a round.

        Args:
            clients: Ids.
            round_number: Which round it is.

        Raises:
            ConfigError: Draws are fresh, and there is no secret order.

        """
        return participants(
            clients, fraction=self.fraction, rank=self._rank, round_number=round_number, at_least=self.at_least
        )

    def clusters(self, anchors: Anchors, round_number: int) -> TakingPart:
        """Choose which of a run's anchored clusters take part in a round.

        Args:
            anchors: All of them.
            round_number: Which round it is.

        """
        capacities = [anchor.capacity for anchor in anchors.clusters]
        if self.fraction >= 1.0:
            return TakingPart(anchors, range(len(capacities)))
        numbers = clusters_taking_part(
            capacities,
            fraction=self.fraction,
            rank=self._rank_of_cluster,
            round_number=round_number,
            at_least=self.at_least,
        )
        return TakingPart(anchors, numbers)

    def position(self, client: str) -> bytes:
        """Say where a client stands in the order that fixed clusters divide.

        Args:
            client: Its id.

        Raises:
            ConfigError: Draws are fresh, and there is no secret order.

        """
        if self.participation is not None:
            return self.participation.position(client)
        self._refuse_public_order()
        return position_by_seed(self.seed)(client)

    def _rank(self, number: int, client: str) -> bytes:
        if self.participation is not None:
            return self.participation.rank(number, client)
        self._refuse_public_order()
        return rank_by_seed(self.seed)(number, client)

    def _rank_of_cluster(self, number: int, cluster: str) -> bytes:
        if self.participation is not None:
            return self.participation.rank_of_cluster(number, cluster)
        self._refuse_public_order()
        return rank_by_seed(self.seed)(number, cluster)

    def _refuse_public_order(self) -> None:
        if self.secrets.seed is None:
            raise ConfigError(
                "draws are fresh, and fewer than all clients take part or clusters are fixed: that takes the "
                "secret order of the run (rounds.participation); a hash of the seed would tell everybody who is "
                "where"
            )


def taking_part_of(
    clients: Sequence[str], options: RoundOptions, number: int, taking_part: TakingPart | None
) -> tuple[str, ...]:
    """Choose who takes part in a round: those of its clusters, where these are anchored.

    Args:
        clients: Who could.
        options: How rounds are run.
        number: Of the round.
        taking_part: Its anchored clusters; None: clusters are not anchored.

    """
    if taking_part is None:
        return options.participants(clients, number)
    assignments, numbers = taking_part.anchors.assignments, set(taking_part.numbers)
    return tuple(sorted(client for client in clients if assignments[client].cluster in numbers))


def participants_ahead(
    reader: Reader, options: RoundOptions, numbers: Sequence[int], leavers: Collection[str] = ()
) -> list[int]:
    """Count who will take part in coming rounds of a run with anchored clusters.

    Args:
        reader: The run.
        options: How rounds are run.
        numbers: Of these rounds.
        leavers: Who will have left.

    Returns:
        One count a round.

    """
    clients = sorted(set(reader.clients()) - set(leavers))
    anchors = anchors_for(reader, reader.clients(), position=options.position, secrets=options.secrets)
    return [len(taking_part_of(clients, options, number, options.clusters(anchors, number))) for number in numbers]


def room_for(
    reader: Reader, options: RoundOptions, first: int, rounds: int = 1, leavers: Collection[str] = ()
) -> Room:
    """Count how many of the coming rounds can be run.

    Up to the first that the privacy budget has no room for, or in whose fixed clusters nobody is left.

    Args:
        reader: The run.
        options: How rounds are run.
        first: The number of the first.
        rounds: How many are wanted.
        leavers: Who will have left.

    Returns:
        How many, and why not more.

    """
    anchors, empty = None, None
    if is_anchored(reader):
        counts = participants_ahead(reader, options, range(first, first + rounds), leavers)
        if 0 in counts:
            rounds = counts.index(0)
            empty = f"nobody is left in the clusters that take part in round {first + rounds}"
        everybody = anchors_for(reader, reader.clients(), position=options.position, secrets=options.secrets)
        anchors = everybody.without(leavers)
    if options.budget is None:
        return Room(rounds, empty)

    def coming(number: int) -> Event:
        # nobody is asked who takes part where it makes no difference
        return foreseen(reader.policy, number, None if anchors is None else options.clusters(anchors, number))

    room = room_in(options.budget, reader.events(), map(coming, range(first, first + rounds)))
    return room if room.obstacle is not None else Room(rounds, empty)


@dataclass(frozen=True)
class Room:
    """How many of the rounds that were asked about can be run, and why not more; None where all can."""

    rounds: int
    obstacle: str | None = None


def foreseen(policy: Policy, number: int, taking_part: TakingPart | None) -> Event:
    """Foresee what a round will release, as far as it is known before it.

    Exact for the unconditional claim, which asks for nothing but the policy. Fixed clusters are known, and so are
    the shares of all who have returned an update before; the others are taken to count for the mean. Where that was
    too kind, the round is refused when its updates have arrived, before anything is drawn. Somebody must be left in
    the clusters that take part: where nobody is, there is no round (`room_for`).

    Args:
        policy: The promises of the run.
        number: Of the round.
        taking_part: Its anchored clusters; None: clusters are not anchored.

    """
    if taking_part is None:
        return event_of(policy, number=number, attempt=1, capacities=[policy.k], weights=[1.0])
    anchors, shares = taking_part.anchors, expected_shares(taking_part.anchors)
    total = sum(shares[each] for each in taking_part.numbers)
    left = {place.cluster for place in anchors.assignments.values()}
    filled = [each for each in taking_part.numbers if each in left]
    return event_of(
        policy,
        number=number,
        attempt=1,
        capacities=[anchors.clusters[each].capacity for each in filled],
        weights=[shares[each] / total for each in filled],
    )


def room_in(budget: Budget, events: Sequence[Event], coming: Iterable[Event]) -> Room:
    """Count how many of the coming rounds a budget allows, in their order.

    Args:
        budget: What may be spent.
        events: What was released.
        coming: What would be.

    Returns:
        How many, and why not more.

    """
    spent = list(events)
    for count, event in enumerate(coming):
        if not budget.allows([*spent, event]):
            return Room(count, _reason(budget, spent, event))
        spent.append(event)
    return Room(len(spent) - len(events))


def refuse_overspending(ledger: Ledger, budget: Budget, event: Event) -> None:
    """Refuse a round that would exceed the budget; superseded rounds count, because they were released.

    Args:
        ledger: The run.
        budget: What may be spent.
        event: What the round would release.

    Raises:
        BudgetSpent: It would.

    """
    obstacle = room_in(budget, ledger.events(), [event]).obstacle
    if obstacle is not None:
        raise BudgetSpent(obstacle, nameless=obstacle)


def _reason(budget: Budget, events: Sequence[Event], event: Event) -> str:
    from disavow.privacy.budget import claim_of  # loads scipy, which only a run with a budget needs

    claim = claim_of([*events, event])
    return (
        f"the privacy budget is spent: ε is {budget.spent(events):.4g} of {budget.epsilon:g} at δ = "
        f"{budget.delta:g} ({claim} claim), and round {event.number} would make it "
        f"{budget.spent([*events, event]):.4g}"
    )
