"""What a ROC curve says, and how surely.

Present units should score high, absent ones low: a unit is called present when it scores at least a threshold.
Every figure here comes with an interval, or with the reason why these units cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from disavow.audit.game import Floats, Scores
from disavow.audit.intervals import Interval, clopper_pearson, dkw_half_width, quantile_interval
from disavow.errors import ConfigError

FALSE_POSITIVES_NEEDED = 10
"""So many absent units must be expected above a threshold before anything is said about it."""

_HALVINGS = 50
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Measure:
    """An estimate with its interval; or none, with the reason as a sentence.

    >>> print(Measure.of(0.75, Interval(0.5, 0.875)))
    0.750 (0.500-0.875)
    >>> print(Measure.missing("it needs 1,000 absent units, there are 360"))
    not estimable: it needs 1,000 absent units, there are 360
    """

    estimate: float | None
    interval: Interval | None
    reason: str | None

    @classmethod
    def of(cls, estimate: float, interval: Interval) -> Measure:
        """Make what could be estimated.

        Args:
            estimate: The figure.
            interval: Where it lies.

        """
        return cls(estimate, interval, None)

    @classmethod
    def missing(cls, reason: str) -> Measure:
        """Make what could not be estimated, and why."""
        return cls(None, None, reason)

    @property
    def estimable(self) -> bool:
        """Whether there is an estimate, and so an interval."""
        return self.estimate is not None

    def __str__(self) -> str:
        if self.estimate is None or self.interval is None:
            return f"not estimable: {self.reason}"
        return f"{self.estimate:.3f} ({self.interval.low:.3f}-{self.interval.high:.3f})"


@dataclass(frozen=True, eq=False)
class Roc:
    """One point for each distinct score, from the strictest threshold (infinite: nobody) to the laxest (everybody).

    Units that tie are called present together, so a tie is one step, straight in linear axes.
    """

    fpr: Floats
    tpr: Floats
    thresholds: Floats


class Placements(NamedTuple):
    """DeLong's structural components: for each unit, the share of the other side that it is ranked rightly against.

    A tie counts half. The mean of either is the AUC. Counted here, because scikit-learn's `roc_auc_score` tells the
    mean alone, and DeLong's variance needs each.
    """

    present: Floats
    absent: Floats

    @property
    def auc(self) -> float:
        """The share of pairs, one present and one absent, that are ranked rightly."""
        return float(self.present.mean())


def roc(scores: Scores) -> Roc:
    """Compute the rates of true and false positives at every threshold.

    Args:
        scores: The scores.

    Raises:
        ConfigError: The scores make none.

    """
    if reason := unusable(scores):
        raise ConfigError(f"no ROC curve: {reason}")
    from sklearn.metrics import roc_curve  # takes a second to import, and reports need none of it

    present = np.repeat([True, False], [len(scores.present), len(scores.absent)])
    curve = Roc(*roc_curve(present, np.concatenate([scores.present, scores.absent]), drop_intermediate=False))
    for array in (curve.fpr, curve.tpr, curve.thresholds):
        array.flags.writeable = False
    return curve


def auc(scores: Scores, level: float = 0.95) -> Measure:
    """Estimate how likely a present unit outscores an absent one, ties counting half.

    The interval holds every θ that the estimate does not reject. The variance of the estimate if θ were true is
    Hanley and McNeil's as modified by Newcombe, so the interval has a width even where all pairs are ranked
    rightly; it supposes score distributions of about equal width, so where DeLong's variance at the estimate is
    larger, it is scaled up to that. With a single unit on one side nothing is known of its width: the largest
    variance there is.

    R. G. Newcombe, "Confidence intervals for an effect size measure based on the Mann-Whitney statistic. Part 2:
    asymptotic methods and evaluation" (2006), method 5. J. A. Hanley and B. J. McNeil, "The Meaning and Use of the
    Area under a Receiver Operating Characteristic (ROC) Curve" (1982). DeLong et al.: see `difference.difference`.

    Args:
        scores: The scores.
        level: Of the interval.

    """
    if reason := unusable(scores):
        return Measure.missing(reason)
    placements = placements_of(scores)
    estimate = placements.auc
    variance = _variance_of_auc(placements)
    z = float(special.ndtri(0.5 + level / 2))

    def rejected(auc: float) -> bool:
        return (estimate - auc) ** 2 > z**2 * variance(auc)

    return Measure.of(estimate, Interval(_edge(estimate, 0.0, rejected), _edge(estimate, 1.0, rejected)))


def tpr_at(scores: Scores, fpr: float, level: float = 0.95) -> Measure:
    """Estimate the rate of true positives at the threshold that a rate of false positives allows.

    Not estimable with fewer than 10/FPR absent units. The threshold is itself an estimate: it lies between two
    order statistics of the absent scores with half of the error, and the other half goes to the count of present
    units above either.

    Args:
        scores: The scores.
        fpr: That rate.
        level: Of the interval.

    """
    if reason := unusable(scores):
        return Measure.missing(reason)
    absent, needed = len(scores.absent), math.ceil(FALSE_POSITIVES_NEEDED / fpr - _ROUNDING)
    if absent < needed:
        at = f"the true-positive rate at a false-positive rate of {100 * fpr:g} %"
        return Measure.missing(f"{at} needs {needed:,} absent units, there are {absent:,}")
    half = (1 + level) / 2
    threshold = quantile_interval(scores.absent, 1 - fpr, half)
    above = [int((scores.present > threshold.high).sum()), int((scores.present >= threshold.low).sum())]
    low, high = (clopper_pearson(count, len(scores.present), half) for count in above)
    return Measure.of(_height(roc(scores), fpr), Interval(low.low, high.high))


def advantage(scores: Scores, level: float = 0.95) -> Measure:
    """Estimate the largest TPR - FPR of any threshold: 0 for an attacker that guesses, 1 for one that knows.

    The estimate is at the threshold that suits these units best, so it is too high on average, most for few units.
    The interval allows for that: both empirical distributions lie within their Dvoretzky-Kiefer-Wolfowitz bands,
    each with half of the error, and so does the largest difference.

    S. Yeom, I. Giacomelli, M. Fredrikson and S. Jha, "Privacy Risk in Machine Learning: Analyzing the Connection to
    Overfitting" (2018).

    Args:
        scores: The scores.
        level: Of the interval.

    """
    if reason := unusable(scores):
        return Measure.missing(reason)
    curve, half = roc(scores), (1 + level) / 2
    estimate = float((curve.tpr - curve.fpr).max())
    band = dkw_half_width(len(scores.present), half) + dkw_half_width(len(scores.absent), half)
    return Measure.of(estimate, Interval(max(0.0, estimate - band), min(1.0, estimate + band)))


def unusable(scores: Scores) -> str | None:
    """Return why nothing can be said about these scores, if so."""
    present, absent = len(scores.present), len(scores.absent)
    if not present or not absent:
        return f"it needs a present unit and an absent one, there are {present:,} and {absent:,}"
    infinite = sum(int((~np.isfinite(side)).sum()) for side in (scores.present, scores.absent))
    if infinite:
        return f"{infinite:,} of {present + absent:,} scores are not finite numbers"
    return None


def placements_of(scores: Scores) -> Placements:
    """Rank each unit against the other side."""
    return Placements(
        _share_below(scores.present, scores.absent),
        1 - _share_below(scores.absent, scores.present),
    )


def _share_below(values: Floats, others: Floats) -> Floats:
    """For each value, the share of `others` below it; equal ones count half."""
    ranked = np.sort(others)
    twice = np.searchsorted(ranked, values, "left") + np.searchsorted(ranked, values, "right")
    return np.asarray(twice / (2 * len(others)), dtype=np.float64)


def _variance_of_auc(placements: Placements) -> Callable[[float], float]:
    """The variance that the estimate would have if a given AUC were the true one."""
    present, absent = len(placements.present), len(placements.absent)
    if min(present, absent) == 1:
        return lambda auc: auc * (1 - auc)
    others = (present + absent) / 2 - 1

    def newcombe(auc: float) -> float:
        return auc * (1 - auc) * (1 + others * ((1 - auc) / (2 - auc) + auc / (1 + auc))) / (present * absent)

    delong = float(placements.present.var(ddof=1) / present + placements.absent.var(ddof=1) / absent)
    supposed = newcombe(placements.auc)
    scale = max(1.0, delong / supposed) if supposed > 0 else 1.0
    return lambda auc: scale * newcombe(auc)


def _edge(inside: float, outside: float, rejected: Callable[[float], bool]) -> float:
    """Where rejection begins between two values, by bisection; `outside` itself where it does not begin at all.

    Not by `scipy.optimize`: for an AUC of 0 or 1 the estimate is itself a root of what it would solve.
    """
    if not rejected(outside):
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if rejected(middle) else (middle, outside)
    return outside


def _height(curve: Roc, fpr: float) -> float:
    """The curve at `fpr`: at the top of a vertical step, on the slope of a tie."""
    last = int(np.searchsorted(curve.fpr, fpr + _ROUNDING, "right")) - 1
    if last + 1 == len(curve.fpr):
        return float(curve.tpr[last])
    along = max(0.0, (fpr - curve.fpr[last]) / (curve.fpr[last + 1] - curve.fpr[last]))
    return float(curve.tpr[last] + along * (curve.tpr[last + 1] - curve.tpr[last]))
