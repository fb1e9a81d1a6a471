"""What a proof says in numbers and in words: odds, chance to have been drawn, likeness of its clusters."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from disavow.errors import VerificationError
from disavow.proof.bounds import as_odds, bounds_of, chance_drawn, log10_odds, total_ratio
from disavow.proof.history import History
from disavow.proof.leaves import LoggedPolicy, PurgeLeaf, RollbackLeaf, RunLeaf, rounds_by_place
from disavow.proof.statement import AnyPredicate, AnyStatement, ErasedRecords, Predicate

EXCLUDES_NOBODY = "adaptive Δ excludes nobody"


@dataclass(frozen=True)
class Summary:
    """Over the standing rounds that the leaver was in; `superseded` ones, which were released too, are not counted.

    Odds are log10, 95 % quantiles; None: not bounded.

    `widest` is its widest cluster over the median update norm of that round, `pairs_within` the smallest share of
    all pairs of a round that lie within Δ. Both are None where it was in no round, or where all updates were zero.
    `adaptive` says that Δ is each round's largest spread, which excludes nobody; `averaged` that running statistics
    are means over all members; `fixed` that clusters are, so that `drawn` is the most it can be: gaps are drawn,
    too.
    """

    rounds: int
    superseded: int
    worst_round: float | None
    median_round: float | None
    composed: float | None
    drawn: float
    widest: float | None
    pairs_within: float | None
    adaptive: bool
    averaged: bool
    fixed: bool


def summarise(statement: AnyStatement) -> Summary:
    """Compute the numbers of a statement from its clusters.

    Args:
        statement: One whose log begins with its promises, and whose clusters are of rounds of it.

    """
    said = statement.predicate
    promised, clusters, rounds = said.leaves[0], said.clusters, rounds_by_place(said.leaves)
    mine = [rounds[cluster.leaf] for cluster in clusters if cluster.leaf in rounds]
    if not isinstance(promised, RunLeaf) or len(mine) != len(clusters):
        raise VerificationError("the statement shows clusters of something else than a round")
    policy = promised.policy
    drawn = policy.representatives
    bounds = [
        bounds_of(weight=each.weight, spread=each.spread, tau=leaf.tau, representatives=drawn)
        for each, leaf in zip(clusters, mine, strict=True)
    ]
    ratios = [each.ratio for each in bounds if each.ratio is not None]
    known = bool(bounds) and len(ratios) == len(bounds)
    norms = [(each.spread, leaf.update_norm) for each, leaf in zip(clusters, mine, strict=True)]
    return Summary(
        rounds=len(clusters),
        superseded=0 if said.rounds is None else len(said.rounds.superseded),
        worst_round=log10_odds(max(ratios)) if known else None,
        median_round=log10_odds(median(ratios)) if known else None,
        composed=log10_odds(total_ratio(bounds)) if bounds else None,
        drawn=chance_drawn((each.size for each in clusters), drawn),
        widest=max((spread / norm for spread, norm in norms if norm > 0), default=None),
        pairs_within=min((leaf.pairs_within for leaf in mine), default=None),
        adaptive=policy.adaptive,
        averaged=policy.statistics == "mean",
        fixed=policy.clustering == "fixed",
    )


def rounds_that_stand(summary: Summary) -> str:
    """How many standing rounds the leaver was in."""
    return f"{summary.rounds} round{' that stands' if summary.rounds == 1 else 's that stand'}"


def drawn_in_words(summary: Summary) -> str:
    """The chance to have been drawn in the rounds that stand."""
    chance = f"at most {summary.drawn:.1%}" if summary.fixed else f"{summary.drawn:.1%}"
    return f"drawn at least once in the {rounds_that_stand(summary)} with a chance of {chance}"


def summary_in_words(summary: Summary, *, drawn: bool = True) -> list[str]:
    """What a proof says of the leaver in numbers, a line each; none where it was in no round that stands.

    `drawn`: with the chance to have been drawn, which stands among what a proof does not claim, too.
    """
    if not summary.rounds:
        return []
    odds = (
        f"odds: worst round {as_odds(summary.worst_round)}, median round {as_odds(summary.median_round)}, over the "
        f"{rounds_that_stand(summary)} {as_odds(summary.composed)} (95 % quantiles)"
    )
    chance = f"{drawn_in_words(summary)}: deniable does not mean not used"
    parts = [
        "" if summary.widest is None else f"widest cluster {summary.widest:.2f}x the median update",
        "" if summary.pairs_within is None else f"at least {summary.pairs_within:.0%} of all pairs are within Δ",
        EXCLUDES_NOBODY if summary.adaptive else "",
    ]
    likeness = "likeness: " + "; ".join(part for part in parts if part)
    return [odds, chance, likeness] if drawn else [odds, likeness]


def delta_in_words(policy: LoggedPolicy) -> str:
    """Say how near counts as alike.

    Args:
        policy: That of leaf 0.

    """
    if policy.relative_delta is not None:
        return f"{policy.relative_delta:g}x the median update norm"
    return "adaptive" if policy.delta is None else f"{policy.delta:g}"


def erased_records(said: AnyPredicate) -> ErasedRecords | None:
    """Find the records that a predicate is about; None where it is about a whole client.

    Args:
        said: What a statement says.

    """
    return said.records if isinstance(said, Predicate) else None


def records_in_words(said: AnyPredicate) -> str:
    """Say that records were to be erased, and who says that they were removed; "" of a whole client.

    Args:
        said: What a statement says.

    """
    records = erased_records(said)
    if records is None:
        return ""
    words = f"about {count_records(records.count)} of a client that stays"
    if said.verdict.kind == "never present":
        words += ", in no round under its present key (if it asked before, what it contributed was withdrawn then)"
    if records.word is None:
        return f"{words}: that it removed them is for the client to say, and its signed word is not in the proof"
    return f"{words}: that it removed them is the client's signed word, of digest {records.word.hex()[:16]}"


def count_records(count: int) -> str:
    """Count records in words.

    >>> count_records(1), count_records(2)
    ('1 record', '2 records')

    """
    return f"{count} record{'' if count == 1 else 's'}"


def rebuilt_in_words(rounds: int) -> str:
    """Say that standing rounds were rebuilt.

    Args:
        rounds: How many.

    >>> rebuilt_in_words(1)
    '1 round was rebuilt approximately (not exact retraining)'

    """
    return f"{rounds} {'round was' if rounds == 1 else 'rounds were'} rebuilt approximately (not exact retraining)"


def unchanged_in_words(statement: AnyStatement, history: History) -> str:
    """Say of a rollback or purge how many rounds since end in models that were undone, in place of "retrained".

    Args:
        statement: What a proof says.
        history: Its log.

    Returns:
        A clause; "" where there is nothing to say.

    """
    withdrawal, purge = statement.predicate.withdrawal, _purge_of(statement)
    if withdrawal is None or statement.what_if:
        return ""
    if purge is None and statement.predicate.verdict.kind != "rollback":
        return ""
    same = history.unchanged(withdrawal if purge is None else purge)
    if not same:
        return ""
    since = "rollback" if purge is None or isinstance(history.leaves[purge], RollbackLeaf) else "purge"
    ends = f"1 round since the {since} ends in the very model that was undone"
    if len(same) > 1:
        ends = f"{len(same)} rounds since the {since} end in the very models that were undone"
    return ends + (", the one served among them" if same[-1] == history.standing[-1] else "")


def purged_in_words(statement: AnyStatement, history: History) -> str:
    """Say that no round with the leaver in it stands, and what undid the last one.

    Args:
        statement: What a proof says.
        history: Its log.

    Returns:
        A clause; "" where it says nothing of a purge.

    """
    place = _purge_of(statement)
    leaf = None if place is None or place >= len(history.leaves) else history.leaves[place]
    if not isinstance(leaf, PurgeLeaf | RollbackLeaf):
        return ""
    kind = "purge" if isinstance(leaf, PurgeLeaf) else "rollback"
    return (
        f"no update of the leaver is in the model served: the {kind} of {leaf.at} (leaf {place}) undid its last "
        f"round, and every round from {leaf.to} on was trained after it"
    )


def _purge_of(statement: AnyStatement) -> int | None:
    """The place that a statement calls its purge; version 3 has none."""
    return statement.predicate.purge if isinstance(statement.predicate, Predicate) else None
