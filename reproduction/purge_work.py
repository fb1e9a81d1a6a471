"""What a month of requests costs in client-epochs: answered at once and purged once, beside retraining at each.

A model of the paper's federation is in use, and in one month 30 of its 50 clients ask to be forgotten, one after
the other. FedAvg trains all rounds again at each request. The plain method does so only where too few survivors
remain, and leaves deniable leavers in the model; with a purge, one more retraining at the end of the month removes
them all.

The same where the model is still being trained: the requests come after as many of its rounds, drawn at random, and
the purge after the last round. Retraining at a request then takes fewer rounds, and so less is saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from disavow.erasure.plan import CLUSTERINGS, Federation, Outcomes, live_through
from reproduction.markdown import aligned

REQUESTS = 30
K, X = 6, 3
_RESAMPLES = 2000
_INTERVAL = (2.5, 97.5)


@dataclass(frozen=True)
class MonthlyWork:
    """Client-epochs of one month: the mean over streams, and how many times less than FedAvg with retraining.

    `low` and `high` are the 95 % interval of that ratio, by resampling whole streams.
    """

    method: str
    clusters: str
    rollbacks: float
    mean: float
    ratio: float
    low: float
    high: float


def measure(
    federation: Federation, *, epochs: int, streams: int, seed: int, during: bool = False
) -> list[MonthlyWork]:
    """Judge every request of every stream, for FedAvg and for both ways of clustering, without and with a purge.

    Args:
        federation: Who trains, and for how many rounds.
        epochs: Local epochs of a round.
        streams: How many months.
        seed: Of everything.
        during: Requests come while the model is trained, and not after that.

    """
    request_rounds = _request_rounds(federation, streams, seed, during=during)
    plain = _outcomes(federation, 1, 1, "fresh", request_rounds, seed)
    drawn = np.random.default_rng(seed).integers(streams, size=(_RESAMPLES, streams))
    base = plain.retrained_clients.astype(np.float64) * epochs
    found = [_row("FedAvg, retrained at each request", "", plain, base, base, drawn)]
    for clustering in CLUSTERINGS:
        outcomes = _outcomes(federation, K, X, clustering, request_rounds, seed)
        work = outcomes.retrained_clients.astype(np.float64) * epochs
        purge = outcomes.purged_clients.astype(np.float64) * epochs
        found.append(_row("answered at once, never purged", clustering, outcomes, work, base, drawn))
        found.append(_row("answered at once, purged once", clustering, outcomes, work + purge, base, drawn))
    return found


def _request_rounds(federation: Federation, streams: int, seed: int, *, during: bool) -> npt.NDArray[np.int32]:
    """After which round each request comes, one stream a row: the last, or as many of all rounds as there are."""
    if not during:
        return np.full((streams, REQUESTS), federation.rounds, dtype=np.int32)
    every = np.tile(np.arange(1, federation.rounds + 1, dtype=np.int32), (streams, 1))
    drawn = np.random.default_rng([seed, REQUESTS]).permuted(every, axis=1)[:, :REQUESTS]
    return np.sort(drawn, axis=1)


def _outcomes(
    federation: Federation, k: int, x: int, clustering: str, request_rounds: npt.NDArray[np.int32], seed: int
) -> Outcomes:
    requests = np.full(len(request_rounds), REQUESTS, dtype=np.int32)
    once = Federation(federation.clients, federation.rounds, 0.0, purge_every=federation.rounds)
    rng = np.random.default_rng(seed)
    return live_through(once, requests, request_rounds, k=k, x=x, clustering=clustering, rng=rng)


def _row(
    method: str,
    clusters: str,
    outcomes: Outcomes,
    work: npt.NDArray[np.float64],
    base: npt.NDArray[np.float64],
    drawn: npt.NDArray[np.int64],
) -> MonthlyWork:
    ratios = base[drawn].sum(axis=1) / work[drawn].sum(axis=1)
    low, high = (float(bound) for bound in np.percentile(ratios, _INTERVAL))
    mean, rollbacks = float(work.mean()), float(outcomes.rollbacks.mean())
    return MonthlyWork(method, clusters, rollbacks, mean, float(base.mean()) / mean, low, high)


def markdown(
    federation: Federation, found: list[MonthlyWork], *, epochs: int, streams: int, during: bool = False
) -> str:
    """Write the table.

    Args:
        federation: Who trains.
        found: Its rows.
        epochs: Local epochs of a round.
        streams: Over how many months.
        during: As for `measure`.

    """
    headings = ("", "clusters", "rollbacks", "client-epochs", "times less (95 %)")
    lines = aligned(headings, list(_cells(found)))
    about = (
        f"{REQUESTS} requests in a month, {'spread over' if during else 'after'} {federation.rounds} rounds of "
        f"{federation.clients} clients with "
        f"{epochs} local epochs (k = {K}, x = {X}); means over {streams:,} streams"
    )
    return "\n".join([about, "", *lines, ""])


def _cells(found: list[MonthlyWork]) -> Iterator[tuple[str, ...]]:
    for row in found:
        less = f"{row.ratio:.1f} ({row.low:.1f}-{row.high:.1f})"
        yield row.method, row.clusters, f"{row.rollbacks:.2f}", f"{row.mean:,.0f}", less
