"""Which checkpoints to give up so that the others fit a budget: those whose absence is expected to cost least.

A checkpoint is the model broadcast in a round, and goes by that round's number. A rollback to a round goes back to
the nearest kept checkpoint at or before it. So a checkpoint serves the rounds from its own up to the next kept one,
and without it each of them is reached from the one before it, with as many more rounds to retrain as lie between.
docs/design/0013-retention.md says where the weights come from. Pure: numbers in, numbers out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_REPEATED = 0.01
"""What a round counts that cannot be the first to break: enough to spread checkpoints where nothing else does."""


def weights_of(repeats: Sequence[bool]) -> list[float]:
    """How likely a rollback goes to each round, from round 1 on, up to a factor.

    `repeats` says which rounds have the clusters of the round before them: these break together with that one, so
    the first of such a stretch is the one that a rollback names. And the first broken round is the first of all
    that are broken: the n-th stretch counts 1/n.

    >>> weights_of([False, True, False, False])
    [1.0, 0.01, 0.5, 0.3333333333333333]
    """
    weights, stretch = [], 0
    for repeated in repeats:
        stretch += not repeated
        weights.append((_REPEATED if repeated else 1.0) / max(1, stretch))
    return weights


def superfluous(sizes: Mapping[int, int], weights: Sequence[float], budget: int) -> tuple[int, ...]:
    """The checkpoints to give up, in the order in which they go, until those left take at most `budget` bytes.

    `sizes` gives the bytes of each one kept so far, `weights` those of the rounds from 1 on. The first and the last
    are never given up, even where they alone exceed the budget. Ties go to the earlier one.

    >>> superfluous({1: 10, 2: 10, 3: 10, 4: 10, 5: 10}, [1.0, 1.0, 1.0, 1.0], budget=30)
    (2, 4)
    """
    import numpy as np

    kept = np.array(sorted(sizes))
    before = np.concatenate([[0.0], np.cumsum(weights)])  # before[t - 1]: of all rounds before t
    excess, gone = sum(sizes.values()) - budget, []
    while excess > 0 and kept[1:-1].size:
        served = before[kept[2:] - 1] - before[kept[1:-1] - 1]
        cheapest = int(np.argmin((kept[1:-1] - kept[:-2]) * served)) + 1
        gone.append(int(kept[cheapest]))
        excess -= sizes[gone[-1]]
        kept = np.delete(kept, cheapest)
    return tuple(gone)
