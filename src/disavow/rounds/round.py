"""A round, as the paper's Algorithm 1 has it, each step in a module of its own.

    ① broadcast -> ② local training -> ③ cluster -> ④ choose and perturb -> ⑤ aggregate -> ⑥ record

A. K. Varshney and V. Torra, "Efficient Federated Unlearning under Plausible Deniability" (2024).
"""

from __future__ import annotations

from disavow.domain import Round
from disavow.ledger import Ledger
from disavow.privacy.events import event_of
from disavow.rounds.aggregate import aggregate
from disavow.rounds.broadcast import Broadcast, broadcast
from disavow.rounds.cluster import Clusters, cluster
from disavow.rounds.local_training import Engine, accept, fewest, refuse_overflow, refuse_too_few
from disavow.rounds.options import RoundOptions, foreseen, refuse_overspending, taking_part_of
from disavow.rounds.participation import is_anchored, keep_assignments, with_shares
from disavow.rounds.perturb import choose_and_perturb, clip
from disavow.rounds.record import Hashing, new_round
from disavow.rounds.vectors import Updates


def run_round(ledger: Ledger, engine: Engine, options: RoundOptions) -> Round:
    """Run the next round from broadcast to record.

    Args:
        ledger: The run.
        engine: What trains its clients.
        options: How rounds are run.

    Returns:
        The round as recorded.

    Raises:
        RoundRefused: It must not be recorded; the run stays as it was.

    """
    opening, clients = open_round(ledger, options)
    updates = engine.train(opening.model, clients, opening.number)
    return close_round(ledger, opening, updates, options)


def open_round(ledger: Ledger, options: RoundOptions) -> tuple[Broadcast, tuple[str, ...]]:
    """Open the next round: broadcast its model, and choose who takes part.

    Refused where these are too few, or where the round would exceed the privacy budget.

    Args:
        ledger: The run.
        options: How rounds are run.

    Returns:
        The broadcast and the ids.

    Raises:
        RoundRefused: Too few take part.
        BudgetSpent: The round would exceed the privacy budget.

    """
    # before the clients are read: whoever is reached for the first time becomes one
    here = None if options.reachable is None else frozenset(options.reachable())
    opening = broadcast(ledger, options.clock())
    everybody = ledger.clients()
    known = [client for client in everybody if here is None or client in here]
    taking_part = None
    if is_anchored(ledger):
        refuse_too_few(len(known), k=ledger.policy.k, round_number=opening.number)
        anchors = keep_assignments(ledger, everybody, position=options.position, secrets=options.secrets)
        taking_part = options.clusters(anchors, opening.number)
    clients = taking_part_of(known, options, opening.number, taking_part)
    refuse_too_few(len(clients), k=fewest(ledger.policy), round_number=opening.number)
    if options.budget is not None:
        refuse_overspending(ledger, options.budget, foreseen(ledger.policy, opening.number, taking_part))
    return opening, clients


def close_round(ledger: Ledger, opening: Broadcast, updates: Updates, options: RoundOptions) -> Round:
    """Turn updates, wherever they come from, into the next model, and record it: from clustering on.

    Nothing is returned before it is recorded; whatever must not enter is refused before anything is stored.

    Args:
        ledger: The run.
        opening: What opened the round.
        updates: What the clients returned.
        options: How rounds are run.

    Returns:
        The round as recorded.

    Raises:
        RoundRefused: Something must not enter; nothing was stored.
        BudgetSpent: The round would exceed the privacy budget.

    """
    policy, number, attempt = ledger.policy, opening.number, opening.attempt
    updates = accept(
        updates,
        layout=ledger.layout,
        k=fewest(policy),
        strangers=ledger.strangers(updates.clients),
        round_number=number,
    )
    # before hashing begins: its threads would take turns with every row that is read
    previous = ledger.newest_membership() if policy.sticky else ()
    taking_part = None
    if is_anchored(ledger):
        samples = dict(zip(updates.clients, updates.samples, strict=True))
        anchors = with_shares(ledger, samples, position=options.position, secrets=options.secrets)
        taking_part = options.clusters(anchors, number)
    hashing = Hashing(updates)
    clipped = clip(updates, policy)
    clusters = cluster(
        clipped,
        policy=policy,
        layout=ledger.layout,
        previous=previous,
        seed=options.seed,
        round_number=number,
        taking_part=taking_part,
    )
    _keep_to_budget(ledger, opening, clusters, options)
    perturbed = choose_and_perturb(
        clipped,
        clusters,
        policy=policy,
        layout=ledger.layout,
        secrets=options.secrets,
        round_number=number,
        attempt=attempt,
    )
    after = aggregate(opening, clusters, perturbed, policy=policy, secrets=options.secrets)
    refuse_overflow(after, round_number=number)
    new = new_round(
        policy,
        opening,
        updates,
        clusters,
        after,
        hashing,
        anchors=None if taking_part is None else taking_part.anchors,
        previous=previous,
        secrets=options.secrets,
        at=options.clock(),
        keep=options.keeps(number),
        compress=options.compress,
    )
    return ledger.record(new)


def _keep_to_budget(ledger: Ledger, opening: Broadcast, clusters: Clusters, options: RoundOptions) -> None:
    """Refuse a round that costs more than the budget has left."""
    if options.budget is None:
        return
    # what was foreseen may have been less: weights are known only now
    event = event_of(
        ledger.policy,
        number=opening.number,
        attempt=opening.attempt,
        capacities=[
            capacity for capacity, members in zip(clusters.capacities, clusters.members, strict=True) if members
        ],
        weights=[weight for weight, members in zip(clusters.weights, clusters.members, strict=True) if members],
    )
    refuse_overspending(ledger, options.budget, event)
