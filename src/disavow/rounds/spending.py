"""Whether the privacy budget has room for a round: foreseen before anybody trains, checked before any draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disavow.domain import Policy, TakingPart
from disavow.errors import BudgetSpent
from disavow.ledger import Ledger
from disavow.privacy.events import Event, event_of
from disavow.rounds.anchoring import expected_shares

if TYPE_CHECKING:
    from disavow.privacy.budget import Budget


@dataclass(frozen=True)
class Room:
    """How many of the rounds that were asked about can be run, and why not more; None where all can."""

    rounds: int
    obstacle: str | None = None


def foreseen(policy: Policy, number: int, taking_part: TakingPart | None) -> Event:
    """What a round will release, as far as it can be told before it.

    Exact for the unconditional claim, which asks for nothing but the policy. Fixed clusters are known, and so are
    the shares of all who have returned an update before; the others are taken to count for the mean. Where that was
    too kind, the round is refused when its updates have arrived, before anything is drawn. Somebody must be left in
    the clusters that take part: where nobody is, there is no round (`room_for`).
    """
    if taking_part is None:
        return event_of(policy, number=number, attempt=1, places=[policy.k], weights=[1.0])
    anchors, shares = taking_part.anchors, expected_shares(taking_part.anchors)
    total = sum(shares[each] for each in taking_part.numbers)
    left = {place.cluster for place in anchors.places.values()}
    filled = [each for each in taking_part.numbers if each in left]
    return event_of(
        policy,
        number=number,
        attempt=1,
        places=[anchors.clusters[each].places for each in filled],
        weights=[shares[each] / total for each in filled],
    )


def room_in(budget: Budget, events: Sequence[Event], coming: Iterable[Event]) -> Room:
    """How many of the coming rounds fit, in their order."""
    spent = list(events)
    for count, event in enumerate(coming):
        if not budget.allows([*spent, event]):
            return Room(count, _reason(budget, spent, event))
        spent.append(event)
    return Room(len(spent) - len(events))


def refuse_overspending(ledger: Ledger, budget: Budget, event: Event) -> None:
    """Refuse a round that would exceed the budget. Superseded rounds count: they were released."""
    obstacle = room_in(budget, ledger.events(), [event]).obstacle
    if obstacle is not None:
        raise BudgetSpent(obstacle)


def _reason(budget: Budget, events: Sequence[Event], event: Event) -> str:
    from disavow.privacy.budget import claim_of  # loads scipy, which only a run with a budget needs

    claim = claim_of([*events, event])
    return (
        f"the privacy budget is spent: ε is {budget.spent(events):.4g} of {budget.epsilon:g} at δ = "
        f"{budget.delta:g} ({claim} claim), and round {event.number} would make it "
        f"{budget.spent([*events, event]):.4g}"
    )
