"""A lower bound on ε from what attackers achieve, beside the privacy account: above it would be a bug.

Differential privacy binds every attacker: TPR ≤ e^ε·FPR + δ. So rates that are surely reached bound ε from below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from disavow.audit.game import Scores
from disavow.audit.intervals import clopper_pearson
from disavow.domain import Policy
from disavow.privacy.accountants import unconditional_epsilon
from disavow.privacy.events import event_of

LEVEL = 0.999
"""Confidence of the bound, over all attackers together."""

_TRIED = 200
"""Thresholds that are tried at most."""


@dataclass(frozen=True)
class EpsilonBound:
    """What the best attacker of worlds shows about ε, and what the account says of the same rounds."""

    attacker: str
    low: float
    account: float
    delta: float

    @property
    def consistent(self) -> bool:
        """Whether the account is at least what was shown."""
        return self.low <= self.account


def epsilon_bound(
    scores: Mapping[str, Scores], policy: Policy, *, rounds: int, delta: float
) -> EpsilonBound | None:
    """Find the best lower bound on ε of these attackers of worlds.

    Args:
        scores: Of each attacker.
        policy: The promises of the run.
        rounds: How many were released.
        delta: The δ of the account.

    Returns:
        The bound beside the account; None for noise that has none.

    """
    if not policy.accounted or not scores:
        return None
    level = 1 - (1 - LEVEL) / len(scores)
    low, attacker = max((lower_bound(each, delta, level), name) for name, each in scores.items())
    event = event_of(policy, number=1, attempt=1, capacities=[policy.k], weights=[1.0])
    return EpsilonBound(attacker, low, unconditional_epsilon([event] * rounds, delta), delta)


def lower_bound(scores: Scores, delta: float, level: float) -> float:
    """Bound ε from below; every other unit chooses the threshold, the rest are counted.

    Args:
        scores: Of one attacker.
        delta: δ.
        level: The confidence.

    Returns:
        ε is at least this.

    """
    chosen_by = Scores(scores.present[::2], scores.absent[::2])
    counted = Scores(scores.present[1::2], scores.absent[1::2])
    if min(len(counted.present), len(counted.absent), len(chosen_by.present), len(chosen_by.absent)) == 0:
        return 0.0
    above, threshold = max(
        _questions(chosen_by), key=lambda question: _shown(chosen_by, *question, delta=delta, level=level)
    )
    return _shown(counted, above, threshold, delta=delta, level=level)


def _questions(scores: Scores) -> Iterator[tuple[bool, float]]:
    """Thresholds, and whether those above or those below are to be told from the others."""
    everyone = np.unique(np.concatenate([scores.present, scores.absent]))
    for threshold in np.quantile(everyone, np.linspace(0, 1, min(len(everyone), _TRIED)), method="nearest"):
        yield from ((True, float(threshold)), (False, float(threshold)))


def _shown(scores: Scores, above: bool, threshold: float, *, delta: float, level: float) -> float:
    """The bound of one question: the least that its true-positive rate is, over the most that the false one is."""
    if above:
        right, wrong = scores.present >= threshold, scores.absent >= threshold
    else:
        right, wrong = scores.absent < threshold, scores.present < threshold
    half = (1 + level) / 2
    reached = clopper_pearson(int(right.sum()), len(right), half).low - delta
    allowed = clopper_pearson(int(wrong.sum()), len(wrong), half).high
    return max(0.0, math.log(reached / allowed)) if reached > 0 else 0.0
