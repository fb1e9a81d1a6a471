"""What a request costs in client-epochs, over many streams of requests. Verdicts need no training.

FedAvg with retraining trains everything again at each request; with a random 1/k of its clients a round, from the
first round on in which the leaver took part; the paper's method and ours only where too few survivors remain. All
methods meet the same streams: after each round, with some probability, somebody asks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from disavow.erasure.plan import Clustering, Federation, simulate
from reproduction.lines import Method
from reproduction.sampled_work import StreamWork, simulate_sampled
from reproduction.work_report import WorkCell, WorkReport

CELLS = tuple((k, x) for k in (4, 6, 8, 10) for x in (2, 3, 4))
"""The paper's choices of k and x."""

_CLUSTERING: dict[Method, tuple[Clustering, int]] = {
    "published": ("fresh", 1),
    "sticky": ("sticky", 1),
    "sticky-3": ("sticky", 3),
}
"""How clients are clustered, and how many representatives are drawn: with s, x + s - 1 must survive."""
_RESAMPLES = 2000
_INTERVAL = (2.5, 97.5)


def measure(federation: Federation, *, epochs: int, streams: int, seed: int) -> WorkReport:
    """Judge every request of every stream, for FedAvg, a random 1/k of it, the paper's method, and ours.

    Args:
        federation: Who trains, for how many rounds, and how often somebody asks.
        epochs: Local epochs of a round.
        streams: How many streams of requests.
        seed: Of everything.

    """
    plain = _simulated(federation, 1, 1, "fresh", streams, seed)
    cells = [_cell("fedavg", 1, 1, plain, plain, epochs, seed)]
    for k in dict.fromkeys(k for k, _ in CELLS):
        sampled = simulate_sampled(federation, k=k, streams=streams, rng=np.random.default_rng(seed))
        cells.append(_cell("fedavg-sampled", k, 1, sampled, plain, epochs, seed))
    for k, x in CELLS:
        for method, (clustering, drawn) in _CLUSTERING.items():
            survivors = x + drawn - 1
            if survivors <= k:
                clustered = _simulated(federation, k, survivors, clustering, streams, seed)
                cells.append(_cell(method, k, x, clustered, plain, epochs, seed))
    return WorkReport(
        clients=federation.clients,
        rounds=federation.rounds,
        epochs=epochs,
        request_rate=federation.request_rate,
        streams=streams,
        seed=seed,
        cells=tuple(cells),
    )


def _simulated(
    federation: Federation, k: int, survivors: int, clustering: Clustering, streams: int, seed: int
) -> StreamWork:
    rng = np.random.default_rng(seed)  # anew for each, so that all of them meet the same requests
    outcomes = simulate(federation, k=k, x=survivors, clustering=clustering, runs=streams, rng=rng)
    return StreamWork.of(outcomes)


def _cell(
    method: Method,
    k: int,
    x: int,
    work: StreamWork,
    plain: StreamWork,
    epochs: int,
    seed: int,
) -> WorkCell:
    """Sums over streams divided by sums over streams, with intervals by resampling whole streams."""
    streams = len(work.requests)
    drawn = np.random.default_rng(seed).integers(streams, size=(_RESAMPLES, streams))
    means, others = _per_request(work, epochs, drawn), _per_request(plain, epochs, drawn)
    low, high = np.percentile(means, _INTERVAL)
    with np.errstate(divide="ignore"):
        ratios = np.percentile(others / means, _INTERVAL, method="inverted_cdf")
    ratio_low, ratio_high = (float(bound) if np.isfinite(bound) else None for bound in ratios)
    everything = np.arange(streams)[None]
    mean, other = (float(_per_request(each, epochs, everything)[0]) for each in (work, plain))
    return WorkCell(
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


def _per_request(work: StreamWork, epochs: int, which: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Client-epochs a request of some streams, given by their numbers, one mean a row."""
    trained = work.retrained_clients.astype(np.float64)[which].sum(axis=1) * epochs
    mean: npt.NDArray[np.float64] = trained / np.maximum(1, work.requests[which].sum(axis=1))
    return mean
