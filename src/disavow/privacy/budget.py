"""A budget: the ε that a run may spend at its δ, and whether one more round fits.

Held to the sampled claim where all clusters are fixed, and so anchored, else to the unconditional one. Superseded
rounds count: they were released.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from disavow.privacy import gaussian, sampling
from disavow.privacy.accountants import kind_of, total_shift, unconditional_epsilon
from disavow.privacy.events import Event

_FURTHEST = 1 << 14
"""How many rounds of one kind are looked ahead."""


@dataclass(frozen=True)
class Budget:
    """What a run may spend."""

    epsilon: float
    delta: float

    def spent(self, events: Sequence[Event]) -> float:
        """Compute what these rounds cost together, by the claim that the budget is held to; 0 for none."""
        if not events:
            return 0.0
        if claim_of(events) == "sampled":
            return sampling.epsilon_of(sampling.counted(map(kind_of, events)), self.delta)
        return unconditional_epsilon(events, self.delta)

    def allows(self, events: Sequence[Event]) -> bool:
        """Return whether these rounds together stay within it; cheap to ask again after each round."""
        if claim_of(events) == "sampled":
            return self._allows_sampled(events)
        return gaussian.delta_of(self.epsilon, total_shift(events)) <= self.delta

    def _allows_sampled(self, events: Sequence[Event]) -> bool:
        kinds = sampling.counted(map(kind_of, events))
        [newest] = [kind for kind, _ in sampling.counted([kind_of(events[-1])])]
        count = dict(kinds).get(newest, 0)
        if not 1 < count <= _FURTHEST:
            return sampling.epsilon_of(kinds, self.delta) <= self.epsilon
        others = tuple((kind, number) for kind, number in kinds if kind != newest)
        return count <= _fitting(others, newest, self.epsilon, self.delta)


def claim_of(events: Sequence[Event]) -> str:
    """Return the name of the claim that a budget over these rounds is held to."""
    return "sampled" if all(event.fixed for event in events) else "unconditional"


@lru_cache(maxsize=64)
def _fitting(others: sampling.Rounds, kind: sampling.Sampled, epsilon: float, delta: float) -> int:
    """How many rounds of one kind fit beside the others: found once, good for all rounds alike that follow."""

    def exceeds(count: int) -> bool:
        return sampling.epsilon_of(tuple(sorted([*others, (kind, count)])), delta) > epsilon

    high = 1
    while high <= _FURTHEST and not exceeds(high):  # by doubling, because many rounds take long to compose
        high *= 2
    counts = range(min(high, _FURTHEST + 1))
    return bisect_left(counts, True, lo=high // 2 + 1, key=exceeds) - 1
