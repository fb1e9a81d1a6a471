"""What a round released: enough for every accountant, and nothing about who was drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from disavow.domain import Policy

REBUILT = "rebuilt"
"""The mode of a round that was rebuilt without noise."""


@dataclass(frozen=True)
class Event:
    """One executed round, standing or superseded, as an accountant sees it.

    `mode` is that of the noise, or `REBUILT` for a round that a mechanism rebuilt without any. `representatives`
    places of each cluster are drawn; `rate` is the largest chance of any client to be among them, s/m over the
    clusters of m places; `weight` the largest weight of a cluster; `squares` the sum of all weights squared, which
    says how the noises of clusters would add up. `clip` and `tau` are lengths in the units of the updates; None
    where the noise is not calibrated. `fixed`: the clusters were settled before any data was seen, and anchored.
    `predictable`: the draws can be repeated by whoever knows the seed.
    """

    number: int
    attempt: int
    mode: str
    clip: float | None
    tau: float | None
    rate: float
    weight: float
    squares: float
    clusters: int
    representatives: int
    fixed: bool
    predictable: bool

    @property
    def shift(self) -> float:
        """How far one client can move the aggregate, in standard deviations: 2C/τ. Calibrated noise only."""
        clip, tau = self._calibrated()
        return 2 * clip / tau

    @property
    def multiplier(self) -> float:
        """The noise over the longest that one client of fixed clusters can contribute: τ·s/(C·p)."""
        return 2 * self.representatives / (self.shift * self.weight)

    @property
    def sigma(self) -> float:
        """The noise of each cluster over 2C/s that would add up to the same: τ·s/(2C·√Σp²).

        2C/s is how far another representative in the place of one moves the mean of a cluster's s.
        """
        return self.representatives / (self.shift * math.sqrt(self.squares))

    def _calibrated(self) -> tuple[float, float]:
        if self.clip is None or self.tau is None:
            raise ValueError(f"round {self.number} has noise of mode {self.mode!r}, which has no fixed scale")
        return self.clip, self.tau


def event_of(
    policy: Policy, *, number: int, attempt: int, capacities: Sequence[int], weights: Sequence[float]
) -> Event:
    """Describe what a round released.

    Args:
        policy: The promises of the run.
        number: Of the round.
        attempt: Which try at it.
        capacities: How many places each cluster draws among.
        weights: The weight of each cluster, in the same order.

    """
    clip, tau = (policy.clip, policy.tau) if policy.accounted else (None, None)
    return Event(
        number=number,
        attempt=attempt,
        mode=policy.noise,
        clip=None if clip is None else float(clip),
        tau=None if tau is None else float(tau),
        rate=drawn_rate(policy.representatives, min(capacities)),
        weight=max(weights),
        squares=math.fsum(weight * weight for weight in weights),
        clusters=len(capacities),
        representatives=policy.representatives,
        fixed=policy.anchored,
        predictable=policy.draws == "seeded",
    )


def drawn_rate(representatives: int, capacity: int) -> float:
    """Compute the chance of one place to be among those drawn without replacement: hypergeometric, and so s/m.

    Args:
        representatives: s.
        capacity: m.

    """
    return min(1.0, representatives / capacity)


def event_of_rebuilt(policy: Policy, *, number: int, attempt: int) -> Event:
    """Describe what a rebuilt round released: everybody who contributed for sure, with nothing to hide how much.

    Args:
        policy: The promises of the run.
        number: Of the round.
        attempt: Which try at it.

    """
    return Event(
        number=number,
        attempt=attempt,
        mode=REBUILT,
        clip=None,
        tau=None,
        rate=1.0,
        weight=1.0,
        squares=1.0,
        clusters=0,
        representatives=1,
        fixed=False,
        predictable=policy.draws == "seeded",
    )


def fixed_sizes(participants: int, k: int) -> tuple[int, ...]:
    """Compute the sizes of anchored clusters: floor(participants/k) of them, as equal as can be.

    >>> fixed_sizes(50, 10), fixed_sizes(11, 4)
    ((10, 10, 10, 10, 10), (5, 6))

    Args:
        participants: How many there are.
        k: The fewest in a cluster.

    """
    count = participants // k
    bounds = [participants * i // count for i in range(count + 1)]
    return tuple(end - start for start, end in pairwise(bounds))
