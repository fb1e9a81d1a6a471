"""Likelihood-ratio attacks: is this confidence one of a model that held the record, or of one that did not?

The attacker trains shadow federations of its own, in which it knows who held what, and fits for each record one
Gaussian to φ where it was held (*in*) and one where it was not (*out*). Online attacks use both, offline ones only
*out*, which needs no shadow trained on the record in question.

N. Carlini, S. Chien, M. Nasr, S. Song, A. Terzis and F. Tramèr, "Membership Inference Attacks From First
Principles" (2022), algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from disavow.audit.game import Attacker, Flags, Floats, Handed, Scores, Shadows, Unit
from disavow.errors import ConfigError

SHADOWS_NEEDED = 2
"""On each side that is fitted, for every record."""

OWN_VARIANCE_FROM = 32
"""With fewer shadows on a side, one variance is fitted for all records instead of one for each."""

_LEAST_DEVIATION = 1e-3


@dataclass(frozen=True)
class OnlineLira(Attacker):
    """The logarithm of the likelihood of φ *in* over that *out*, record by record."""

    name = "LiRA online"
    unit: ClassVar[Unit] = "record"

    def scores(self, handed: Handed) -> Scores:
        """Score by the likelihood ratio; every record must be held, and be lacking, in two shadows at least."""
        observed = _observed(handed)
        _check_counts(handed.shadows, online=True)
        held = _fit(handed.shadows.confidence, handed.shadows.held)
        out = _fit(handed.shadows.confidence, ~handed.shadows.held)
        return _split(held.log_density(observed) - out.log_density(observed), handed)


@dataclass(frozen=True)
class OfflineLira(Attacker):
    """How many deviations φ is above its mean *out*: ranks records as the probability of a smaller φ does."""

    name = "LiRA offline"
    unit: ClassVar[Unit] = "record"

    def scores(self, handed: Handed) -> Scores:
        """Score by deviations above the mean *out*; shadows that do not lack every record twice are refused."""
        observed = _observed(handed)
        _check_counts(handed.shadows, online=False)
        out = _fit(handed.shadows.confidence, ~handed.shadows.held)
        # the probability itself is 1 for every φ far enough above: records would tie that need not
        return _split((observed - out.mean) / out.deviation, handed)


@dataclass(frozen=True, eq=False)
class _Gaussians:
    """One for each record."""

    mean: Floats
    deviation: Floats

    def log_density(self, value: Floats) -> Floats:
        """Without the constant, which cancels out."""
        return np.asarray(-0.5 * ((value - self.mean) / self.deviation) ** 2 - np.log(self.deviation))


def _observed(handed: Handed) -> Floats:
    """φ of all records, in the order of the shadows' columns."""
    observed = np.concatenate([handed.records.own, handed.records.held_out])
    confidence, held = handed.shadows.confidence, handed.shadows.held
    if confidence.shape != held.shape or confidence.shape[1:] != observed.shape:
        raise ConfigError(
            f"shadow federations must score the same {observed.size:,} records as the model; "
            f"their confidences have shape {confidence.shape}, what they held has {held.shape}"
        )
    if not np.isfinite(confidence).all():
        infinite = int((~np.isfinite(confidence).all(axis=1)).sum())
        raise ConfigError(
            f"{infinite:,} of {len(confidence):,} shadow federations have confidences that are not finite numbers"
        )
    return observed


def _check_counts(shadows: Shadows, *, online: bool) -> None:
    held = shadows.held.sum(axis=0)
    sides = {"without": len(shadows.held) - held} | ({"with": held} if online else {})
    for side, counts in sides.items():
        few = int((counts < SHADOWS_NEEDED).sum())
        if few:
            raise ConfigError(
                f"LiRA needs at least {SHADOWS_NEEDED} shadow federations {side} each record; with these "
                f"{len(shadows.held)}, {few:,} of {counts.size:,} records have fewer (the least: {counts.min()})"
            )


def _fit(confidence: Floats, chosen: Flags) -> _Gaussians:
    """A Gaussian for each record over the chosen shadows; one deviation for all where these are few."""
    counts = chosen.sum(axis=0)
    mean = np.where(chosen, confidence, 0.0).sum(axis=0) / counts
    squares = np.where(chosen, (confidence - mean) ** 2, 0.0).sum(axis=0)
    if counts.min(initial=OWN_VARIANCE_FROM) < OWN_VARIANCE_FROM:
        variance = np.full(mean.shape, squares.sum() / (counts - 1).sum())
    else:
        variance = squares / (counts - 1)
    return _Gaussians(mean, np.maximum(np.sqrt(variance), _LEAST_DEVIATION))


def _split(scores: Floats, handed: Handed) -> Scores:
    own = len(handed.records.own)
    return Scores(scores[:own], scores[own:])
