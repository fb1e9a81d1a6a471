"""Which batch sizes share a launch, when samples may be added that weigh nothing.

A short batch can be padded to a larger size, so that clients of unequal sizes take one launch instead of several.
Sizes are merged where that saves the most launches for the samples added, as long as the allowance lasts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Bucket:
    """Neighbouring sizes: how many batches each client has in it, and how many samples all of them have."""

    largest: int
    counts: Ints
    samples: int

    @property
    def launches(self) -> int:
        """At least so many launches take all its batches: those of the client that has most of them."""
        return int(self.counts.max(initial=0))

    @property
    def padding(self) -> int:
        return self.largest * int(self.counts.sum()) - self.samples

    def merged(self, larger: _Bucket) -> _Bucket:
        return _Bucket(larger.largest, self.counts + larger.counts, self.samples + larger.samples)


@dataclass(frozen=True, eq=False)
class _Merger:
    """What putting a bucket and the next larger one together would save, and cost."""

    bucket: _Bucket
    saved: int
    added: int

    @classmethod
    def of(cls, smaller: _Bucket, larger: _Bucket) -> _Merger:
        bucket = smaller.merged(larger)
        return cls(
            bucket,
            saved=smaller.launches + larger.launches - bucket.launches,
            added=bucket.padding - smaller.padding - larger.padding,
        )

    @property
    def worth(self) -> float:
        return self.saved / self.added


def padded_sizes(counts: Ints, sizes: Ints, allowance: int) -> Ints:
    """For each of the sizes (ascending), the size it is padded to; at most `allowance` samples are added in all.

    `counts[i, j]` is how many batches of size `sizes[j]` client `i` has.
    """
    buckets = [
        _Bucket(int(size), counts[:, j], int(size) * int(counts[:, j].sum())) for j, size in enumerate(sizes)
    ]
    mergers = [_Merger.of(*pair) for pair in itertools.pairwise(buckets)]
    while True:
        open_to = [j for j, merger in enumerate(mergers) if merger.saved > 0 and merger.added <= allowance]
        if not open_to:
            break
        best = max(open_to, key=lambda j: mergers[j].worth)
        allowance -= mergers[best].added
        buckets[best : best + 2] = [mergers[best].bucket]
        around = range(max(0, best - 1), min(best + 1, len(buckets) - 1))
        mergers[max(0, best - 1) : best + 2] = [_Merger.of(buckets[j], buckets[j + 1]) for j in around]
    limits = np.array([bucket.largest for bucket in buckets], dtype=np.int64)
    return limits[np.searchsorted(limits, sizes)]
