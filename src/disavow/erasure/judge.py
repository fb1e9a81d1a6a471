"""② Judge: is the model one that at least x other generators explain, in every round that the leavers touched?

Pure: ledger rows in, verdict out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from disavow.domain import ClusterEvidence, Policy, RebuiltEvidence, Verdict, VerdictKind
from disavow.proof.bounds import Bounds, total_ratio, within_odds


def judge(evidence: Iterable[ClusterEvidence | RebuiltEvidence], policy: Policy) -> Verdict:
    """The verdict over all clusters of standing rounds that held a leaver.

    Deniable when the criterion holds for every one of them; otherwise a rollback to the first round in which it
    does not. A rebuilt round that a leaver contributed to never does.
    """
    broken = []
    held: defaultdict[int, list[ClusterEvidence]] = defaultdict(list)
    for each in evidence:
        if isinstance(each, RebuiltEvidence) or not holds(each, policy):
            broken.append(each.round)
        if isinstance(each, ClusterEvidence):
            for leaver in each.leavers:
                held[leaver].append(each)
    if policy.odds is not None:
        for clusters in held.values():
            broken += _beyond_odds(clusters, policy.odds)
    return Verdict(VerdictKind.ROLLBACK, min(broken)) if broken else Verdict(VerdictKind.DENIABLE)


def holds(cluster: ClusterEvidence, policy: Policy) -> bool:
    """(x, Δ) within the drawn cluster: enough survivors, in a cluster no wider than Δ.

    Only members of the cluster could have been drawn, so only they count. With s representatives, s - 1 others may
    have been drawn beside the leaver: x more must be left to take its place.
    """
    return cluster.survivors >= policy.survivors_needed and cluster.spread <= cluster.delta


def _beyond_odds(clusters: Sequence[ClusterEvidence], odds: float) -> Iterator[int]:
    """The first round with which one leaver's odds over its rounds so far exceed the limit, if any does."""
    so_far: list[Bounds] = []
    for cluster in sorted(clusters, key=lambda each: each.round):
        so_far.append(Bounds(0.0, cluster.ratio))
        if not within_odds(total_ratio(so_far), odds):
            yield cluster.round
            return
