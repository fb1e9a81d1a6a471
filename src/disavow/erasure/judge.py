"""② Judge: is the model one that at least x other generators explain, in every round that the leavers touched?

Pure: ledger rows in, verdict out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from disavow.domain import ClusterEvidence, RebuiltEvidence, Verdict, VerdictKind


def judge(evidence: Iterable[ClusterEvidence | RebuiltEvidence], *, x: int, criterion: str) -> Verdict:
    """The verdict over all clusters of standing rounds that the withdrawal touches.

    Deniable when every one of them holds; otherwise a rollback to the first round in which one does not. A rebuilt
    round that a leaver contributed to never does.
    """
    holds = CRITERIA[criterion]
    broken = [each.round for each in evidence if isinstance(each, RebuiltEvidence) or not holds(each, x)]
    return Verdict(VerdictKind.ROLLBACK, min(broken)) if broken else Verdict(VerdictKind.DENIABLE)


def cluster_holds(cluster: ClusterEvidence, x: int) -> bool:
    """The paper's experiments: at least x survivors, in a cluster no wider than Δ."""
    return cluster.survivors >= x and cluster.spread <= cluster.delta


def neighbourhood_holds(cluster: ClusterEvidence, x: int) -> bool:
    """The paper's definition: every slot, any of which may have been the representative, has at least x
    surviving participants within Δ, whatever their cluster; itself counts while it survives.
    """
    return all((slot.surviving_neighbours or 0) + slot.survives >= x for slot in cluster.slots)


CRITERIA: dict[str, Callable[[ClusterEvidence, int], bool]] = {
    "cluster": cluster_holds,
    "neighbourhood": neighbourhood_holds,
}
