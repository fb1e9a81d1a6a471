"""Odds, chances and likeness as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from disavow.domain import Policy
from disavow.ledger import RoundSummary
from disavow.ledger.odds import Odds
from disavow.proof.summary import EXCLUDES_NOBODY, as_odds


def odds_in_words(odds: Odds | None) -> str | None:
    """The worst client's odds beside the median client's; None before anybody took part."""
    if odds is None:
        return None
    worst = f"worst client {as_odds(odds.worst_round)} a round, {as_odds(odds.worst_composed)} over all that stand"
    median = f"median client {as_odds(odds.median_round)}, {as_odds(odds.median_composed)}"
    return f"{worst}; {median} (95 % quantiles)"


def drawn_in_words(odds: Odds | None) -> str | None:
    """How likely a client was drawn at least once; None before anybody took part."""
    if odds is None:
        return None
    if f"{odds.worst_drawn:.1%}" == f"{odds.median_drawn:.1%}":
        return f"at least once in the rounds that stand with a chance of {odds.worst_drawn:.1%}"
    worst, median = f"{odds.worst_drawn:.1%}", f"{odds.median_drawn:.1%}"
    return f"at least once in the rounds that stand with a chance of up to {worst}; median client {median}"


def likeness_in_words(policy: Policy, standing: Sequence[RoundSummary]) -> str | None:
    """How wide the newest round's widest cluster is against its updates, and how many pairs Δ takes for alike."""
    newest = next((each for each in reversed(standing) if not each.rebuilt), None)
    if newest is None or newest.spread is None or policy.k == 1:
        return None
    wide = (
        f"widest cluster {newest.spread / newest.update_norm:.2f}x the median update" if newest.update_norm else ""
    )
    parts = [
        wide,
        f"{newest.pairs_within:.0%} of all pairs are within Δ",
        EXCLUDES_NOBODY if policy.adaptive else "",
    ]
    return f"round {newest.number}: " + "; ".join(part for part in parts if part)


def delta_of(policy: Policy) -> str:
    """How near counts as alike."""
    if policy.relative_delta is not None:
        return f"{policy.relative_delta:g}x the median update norm"
    return "adaptive" if policy.delta is None else f"{policy.delta:g}"
