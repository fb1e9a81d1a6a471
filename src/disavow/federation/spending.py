"""Whether the privacy budget has room for a round: foreseen before anybody trains, checked before any draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from disavow.domain import Policy, size_class
from disavow.errors import BudgetSpent
from disavow.federation.clustering.fixed import fixed
from disavow.ledger import Ledger
from disavow.privacy.budget import Budget, claim_of
from disavow.privacy.events import Event, event_of


@dataclass(frozen=True)
class Room:
    """How many of the rounds that were asked about fit, and why not more; None where all do."""

    rounds: int
    obstacle: str | None = None


def foreseen(
    policy: Policy, clients: Sequence[str], samples: Mapping[str, int], *, seed: int, number: int
) -> Event:
    """What a round of these participants will release, as far as it can be told before it.

    Exact for the unconditional claim, which asks for nothing but the policy. For fixed clusters the partition is
    known, and the weights are those of `samples`; who is not in there is taken to count for the mean. Where that
    was too kind, the round is refused when its updates have arrived, before anything is drawn.
    """
    sizes, weights = [policy.k], [1.0]
    if policy.clustering == "fixed":
        classes = {client: size_class(count) for client, count in samples.items()}
        mean = sum(classes.values()) / len(classes) if classes else 1
        held = [classes.get(client, mean) for client in clients]
        groups = [group.tolist() for group in fixed(clients, policy.k, seed)]
        sizes = [len(group) for group in groups]
        weights = [sum(held[i] for i in group) / sum(held) for group in groups]
    return event_of(policy, number=number, attempt=1, sizes=sizes, weights=weights)


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
    claim = claim_of([*events, event])
    return (
        f"the privacy budget is spent: ε is {budget.spent(events):.4g} of {budget.epsilon:g} at δ = "
        f"{budget.delta:g} ({claim} claim), and round {event.number} would make it "
        f"{budget.spent([*events, event]):.4g}"
    )
