"""What runs and requests cost in client-epochs, over many streams of requests. Verdicts need no training.

FedAvg with retraining trains everything again at each request; with a random 1/k of its clients a round, from the
first round on in which the leaver took part; the paper's method and ours only where too few survivors remain. All
methods meet the same streams: after each round, with some probability, somebody asks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from disavow.erasure.plan import Clustering, Federation
from disavow.erasure.simulated import Integers
from reproduction.lines import Method
from reproduction.stream_work import StreamWork, simulate_clustered, simulate_sampled
from reproduction.work_report import Interval, WorkCell, WorkReport

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
    plain = simulate_sampled(federation, k=1, streams=streams, seed=seed)
    cells = [_cell("fedavg", 1, 1, plain, plain, epochs, seed)]
    for k in dict.fromkeys(k for k, _ in CELLS):
        sampled = simulate_sampled(federation, k=k, streams=streams, seed=seed)
        cells.append(_cell("fedavg-sampled", k, 1, sampled, plain, epochs, seed))
    for k, x in CELLS:
        for method, (clustering, drawn) in _CLUSTERING.items():
            survivors = x + drawn - 1
            if survivors <= k:
                clustered = simulate_clustered(
                    federation, k=k, survivors=survivors, clustering=clustering, streams=streams, seed=seed
                )
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
    everything = np.arange(streams)[None]

    def per_request(trained: Integers, requests: Integers, which: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Client-epochs a request of some streams, given by their numbers, one mean a row."""
        client_epochs = trained.astype(np.float64)[which].sum(axis=1) * epochs
        mean: npt.NDArray[np.float64] = client_epochs / np.maximum(1, requests[which].sum(axis=1))
        return mean

    def interval(trained: Integers) -> Interval:
        low, high = np.percentile(per_request(trained, work.requests, drawn), _INTERVAL)
        mean = per_request(trained, work.requests, everything)[0]
        return Interval(mean=float(mean), low=float(low), high=float(high))

    answering = interval(work.answering)
    with np.errstate(divide="ignore"):
        ratios = np.percentile(
            per_request(plain.answering, plain.requests, drawn) / per_request(work.answering, work.requests, drawn),
            _INTERVAL,
            method="inverted_cdf",
        )
    ratio_low, ratio_high = (float(bound) if np.isfinite(bound) else None for bound in ratios)
    fedavgs = float(per_request(plain.answering, plain.requests, everything)[0])
    return WorkCell(
        method=method,
        k=k,
        x=x,
        answering=answering,
        run=interval(work.training + work.answering),
        deleting=interval(work.training + work.deleting),
        ratio=fedavgs / answering.mean if answering.mean > 0 else None,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
    )
