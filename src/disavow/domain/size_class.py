"""How much a client counts for: the class of its sample count, four classes a doubling.

Weights are released with every round and stay in the log for ever. Made from exact counts they give the count of a
client away whose rows were deleted: weight times total minus the survivors. Made from classes they give its class.
"""

from __future__ import annotations

_UNIT = 32
"""Classes are whole numbers in units of 2^-32 samples, so that sums of them are exact in any order."""

_CLASSES = (4294967296, 5107605667, 6074001000, 7223245206)
"""2^0, 2^(1/4), 2^(1/2) and 2^(3/4), in these units."""

_BOUNDARIES = (4683695048, 5569883476, 6623745059, 7877004752)
"""2^(1/8), 2^(3/8), 2^(5/8) and 2^(7/8): the geometric midpoints, where the next class begins."""


def size_class(samples: int) -> int:
    """Return the class of a sample count, in units of 2^-32 samples: the nearest of four a doubling, by ratio.

    It is off by a factor of at most 2^(1/8), 9.05 %. Counts from 1 to 8 have a class each.

    >>> [round(size_class(samples) / 2**32, 1) for samples in (1, 2, 3, 60, 71, 72, 1200)]
    [1.0, 2.0, 2.8, 64.0, 76.1, 76.1, 1217.7]
    """
    if samples < 1:
        raise ValueError(f"a client holds {samples} samples; it must hold at least one")
    doublings = samples.bit_length() - 1
    above = sum(samples << _UNIT >= boundary << doublings for boundary in _BOUNDARIES)
    return _CLASSES[above % 4] << (doublings + above // 4)
