"""② Judge: is the model one that at least x other generators explain, in every round that the leavers touched?

`judge` is pure: ledger rows in, verdict out; `judged` reads them for a real erasure and for a dry run. A
departure is deniable where every registered criterion holds. Those below are what verifiers check again; a further
one can only refuse what they would allow, and so bring about a rollback.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from disavow.domain import ClusterEvidence, Policy, RebuiltEvidence, Verdict, VerdictKind
from disavow.domain.strategies import Registry, Strategy
from disavow.domain.verdict import SURVIVORS
from disavow.errors import ConfigError
from disavow.proof.bounds import Bounds, total_ratio, within_odds

if TYPE_CHECKING:
    from disavow.erasure.mechanisms import Mechanism, Work
    from disavow.ledger import Reader
    from disavow.ledger.evidence import PartialEvidence
    from disavow.ledger.journal import Waiting
    from disavow.rounds.options import RoundOptions


def judge(evidence: Iterable[ClusterEvidence | RebuiltEvidence], policy: Policy) -> Verdict:
    """The verdict over all clusters of standing rounds that held a leaver.

    Deniable when the criterion holds for every one of them; otherwise a rollback to the first round in which it
    does not. A rebuilt round that a leaver contributed to never does.

    Args:
        evidence: What the ledger holds of these clusters and rounds.
        policy: The promises of the run.

    Returns:
        The verdict, with the criterion that brought about a rollback.

    """
    broken: list[tuple[int, str | None]] = []
    every: list[ClusterEvidence] = []
    held: defaultdict[int, list[ClusterEvidence]] = defaultdict(list)
    for each in evidence:
        if isinstance(each, RebuiltEvidence):
            broken.append((each.round, None))
            continue
        every.append(each)
        for leaver in each.leavers:
            held[leaver].append(each)
    judged = {"cluster": [[each] for each in every], "leaver": list(held.values())}
    for criterion in CRITERIA.complete():
        if criterion.applies(policy):
            broken += [
                (number, criterion.name)
                for some in judged[criterion.judges]
                for number in criterion.broken(some, policy)
            ]
    if not broken:
        return Verdict(VerdictKind.DENIABLE)
    number, by = min(broken, key=lambda each: each[0])  # the first of several that break the same round
    return Verdict(VerdictKind.ROLLBACK, number, criterion=by)


def judged(reader: Reader, leavers: Sequence[int], mechanism: Mechanism) -> Verdict:
    """Judge clients, and find the round that the mechanism goes back to.

    It may be before the one that broke; where the model broadcast in it has been thinned, it is the nearest earlier
    one whose model is kept.

    Args:
        reader: The ledger.
        leavers: The clients, by their numbers.
        mechanism: How undone rounds are rebuilt.

    """
    policy = reader.policy
    if any(each.judges == "leaver" and each.applies(policy) for each in CRITERIA.complete()):
        verdict = judge(reader.evidence(leavers), policy)  # what it says of a leaver may depend on the last round
    else:
        verdict = judge_growing(reader.growing_evidence(leavers), policy)
    if verdict.round is None:
        return verdict
    kept = reader.nearest_kept_round(mechanism.goes_back_to(verdict.round))
    return replace(verdict, back_to=None if kept == verdict.round else kept)


def judge_growing(growing: Iterable[PartialEvidence], policy: Policy) -> Verdict:
    """Come to the verdict of `judge`, from evidence of ever more rounds: a broken round among the first decides.

    It does so for criteria that judge one cluster at a time, and not all clusters of a leaver.

    Args:
        growing: What `Reader.growing_evidence` gives; no more of it is read than is needed.
        policy: The promises of the run.

    Returns:
        The verdict.

    """
    verdict = Verdict(VerdictKind.DENIABLE)
    for found in growing:
        verdict = judge(found.evidence, policy)
        if verdict.round is not None and (found.complete_before is None or verdict.round < found.complete_before):
            break
    return verdict


def work_after(
    reader: Reader, requested: Waiting, verdict: Verdict, options: RoundOptions, mechanism: Mechanism
) -> Work:
    """Find what there is to rebuild once requests are honoured, earlier rollbacks included.

    Args:
        reader: The ledger.
        requested: The requests; whoever only has records erased takes part in what is retrained, though not with
            updates that were kept.
        verdict: The verdict on them.
        options: How rounds are run.
        mechanism: How undone rounds are rebuilt.

    """
    first, last = undone_by(reader, verdict)
    leaving, staying = reader.names_of(requested.leaving), reader.names_of(requested.staying)
    return mechanism.ahead(reader, options, first=first, last=last, leavers=leaving, renewed=staying)


def undone_by(reader: Reader, verdict: Verdict) -> tuple[int, int]:
    """Find the first and the last round to rebuild after a verdict; none where the first is after the last.

    Args:
        reader: The ledger.
        verdict: The verdict.

    """
    standing, unfinished = reader.last_round, reader.rebuilding()
    return verdict.undoes or standing + 1, max(standing, unfinished.target if unfinished else 0)


class Criterion(Strategy, ABC):
    """A condition for a departure to be deniable.

    Attributes:
        judges: What it is shown at a time: one `cluster` that held a leaver, or all clusters of one `leaver`.

    """

    judges: ClassVar[Literal["cluster", "leaver"]] = "cluster"

    @classmethod
    def check(cls) -> None:
        """Refuse to judge by what nobody is shown.

        Raises:
            ConfigError: The class declares that it judges what no erasure shows.
        """
        super().check()
        if cls.judges not in ("cluster", "leaver"):
            raise ConfigError(f'criterion {cls.name!r} judges {cls.judges!r}; allowed: "cluster", "leaver"')

    def applies(self, policy: Policy) -> bool:
        """Return whether runs of this policy are judged by it.

        Args:
            policy: The promises of the run.

        Returns:
            False to leave such runs to the other criteria.

        """
        del policy
        return True

    @abstractmethod
    def broken(self, clusters: Sequence[ClusterEvidence], policy: Policy) -> Iterable[int]:
        """Find the rounds in which it does not hold.

        Args:
            clusters: Standing clusters that held a leaver: a single one, or all those of one leaver.
            policy: The promises of the run.

        Returns:
            The numbers of these rounds; the first of them decides how far a rollback goes.

        """

    @classmethod
    def unusable(cls, method: str, arguments: tuple[Any, ...], result: Any) -> str:
        """See `Strategy`."""
        if method != "broken":
            return ""
        rounds = {each.round for each in arguments[0]}
        if isinstance(result, Sequence | Set) and rounds.issuperset(result):
            return ""
        return f"{result!r}; allowed: some of the rounds that it was shown, or none"


class Survivors(Criterion):
    """(x, Δ) within the drawn cluster."""

    name = SURVIVORS

    def broken(self, clusters: Sequence[ClusterEvidence], policy: Policy) -> Iterable[int]:
        """See `Criterion`."""
        return [cluster.round for cluster in clusters if not holds(cluster, policy)]


class ComposedOdds(Criterion):
    """The odds of one leaver over all its rounds, where the policy limits them."""

    name = "odds"
    judges = "leaver"

    def applies(self, policy: Policy) -> bool:
        """See `Criterion`."""
        return policy.odds is not None

    def broken(self, clusters: Sequence[ClusterEvidence], policy: Policy) -> Iterable[int]:
        """See `Criterion`."""
        return () if policy.odds is None else _beyond_odds(clusters, policy.odds)


CRITERIA = Registry[Criterion](
    "criterion",
    {
        "survivors": ("disavow.erasure.judge:Survivors", "survivors: (x, Δ) within the drawn cluster"),
        "odds": ("disavow.erasure.judge:ComposedOdds", "odds: composed over a leaver's rounds"),
    },
)
Criterion.registry = CRITERIA


def holds(cluster: ClusterEvidence, policy: Policy) -> bool:
    """(x, Δ) within the drawn cluster: enough survivors, in a cluster no wider than Δ.

    Only members of the cluster could have been drawn, so only they count. With s representatives, s - 1 others may
    have been drawn beside the leaver: x more must be left to take its place.

    Args:
        cluster: A cluster that held a leaver.
        policy: The promises of the run.

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
