"""What a request costs in client-epochs, over many streams of requests. Verdicts need no training.

FedAvg with retraining trains everything again at each request; the paper's method and ours only where too few
look-alikes remain. All methods meet the same streams: after each round, with some probability, somebody asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from disavow.erasure.plan import Clustering, Federation, Outcomes, simulate

FORMAT: Literal["disavow-work/1"] = "disavow-work/1"

CELLS = tuple((k, x) for k in (4, 6, 8, 10) for x in (2, 3, 4))
"""The paper's choices of k and x."""

_CLUSTERING: dict[str, Clustering] = {"published": "fresh", "sticky": "sticky"}
_RESAMPLES = 2000
_INTERVAL = (2.5, 97.5)


@dataclass(frozen=True)
class Cell:
    """Client-epochs a request, and how many times less that is than with FedAvg; each with its 95 % interval.

    `ratio` is None where no stream needed any training; so are its bounds where that cannot be excluded.
    """

    method: Literal["fedavg", "published", "sticky"]
    k: int
    x: int
    mean: float
    low: float
    high: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None


@dataclass(frozen=True)
class Work:
    """The cells of one federation, over so many streams."""

    clients: int
    rounds: int
    epochs: int
    request_rate: float
    streams: int
    seed: int
    cells: tuple[Cell, ...]
    format: Literal["disavow-work/1"] = FORMAT


def measure(federation: Federation, *, epochs: int, streams: int, seed: int) -> Work:
    """Judge every request of every stream, for FedAvg and for both ways of clustering."""
    plain = _outcomes(federation, 1, 1, "fresh", streams, seed)
    cells = [_cell("fedavg", 1, 1, plain, plain, epochs, seed)]
    for k, x in CELLS:
        for method in ("published", "sticky"):
            outcomes = _outcomes(federation, k, x, _CLUSTERING[method], streams, seed)
            cells.append(_cell(method, k, x, outcomes, plain, epochs, seed))
    rate = federation.request_rate
    return Work(federation.clients, federation.rounds, epochs, rate, streams, seed, tuple(cells))


def _outcomes(federation: Federation, k: int, x: int, clustering: Clustering, streams: int, seed: int) -> Outcomes:
    rng = np.random.default_rng(seed)  # anew for each, so that all of them meet the same requests
    return simulate(federation, k=k, x=x, clustering=clustering, runs=streams, rng=rng)


def _cell(
    method: Literal["fedavg", "published", "sticky"],
    k: int,
    x: int,
    outcomes: Outcomes,
    plain: Outcomes,
    epochs: int,
    seed: int,
) -> Cell:
    """Sums over streams divided by sums over streams, with intervals by resampling whole streams."""
    streams = len(outcomes.requests)
    drawn = np.random.default_rng(seed).integers(streams, size=(_RESAMPLES, streams))
    means, others = _per_request(outcomes, epochs, drawn), _per_request(plain, epochs, drawn)
    low, high = np.percentile(means, _INTERVAL)
    with np.errstate(divide="ignore"):
        ratios = np.percentile(others / means, _INTERVAL, method="inverted_cdf")
    ratio_low, ratio_high = (float(bound) if np.isfinite(bound) else None for bound in ratios)
    everything = np.arange(streams)[None]
    mean, other = (float(_per_request(each, epochs, everything)[0]) for each in (outcomes, plain))
    return Cell(
        method=method,
        k=k,
        x=x,
        mean=mean,
        low=float(low),
        high=float(high),
        ratio=other / mean if mean > 0 else None,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
    )


def _per_request(outcomes: Outcomes, epochs: int, which: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Client-epochs a request of some streams, given by their numbers, one mean a row."""
    trained = outcomes.retrained_clients.astype(np.float64)[which].sum(axis=1) * epochs
    mean: npt.NDArray[np.float64] = trained / np.maximum(1, outcomes.requests[which].sum(axis=1))
    return mean
