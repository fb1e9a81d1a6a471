"""How many clients train in many streams of requests: at first, to answer requests, and to delete whoever left."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from disavow.config import participants_of
from disavow.erasure.plan import Clustering, Federation, draw_requests, live_through
from disavow.erasure.simulated import Integers


class StreamWork(NamedTuple):
    """The requests of each stream, and the clients that train, each counted once for each round."""

    requests: Integers
    training: Integers
    """When a round is executed for the first time."""
    answering: Integers
    """When rounds are trained again so that each request is answered at once."""
    deleting: Integers
    """When rounds are trained again so that nobody who left is in the last model, which may wait until the end.

    Clusters still answer at once; one more retraining removes those who are in the model. Without clusters nobody
    is answered before that one retraining.
    """


def simulate_clustered(
    federation: Federation, *, k: int, survivors: int, clustering: Clustering, streams: int, seed: int
) -> StreamWork:
    """Answer requests with clusters: only where too few survivors remain, rounds are trained again.

    Args:
        federation: Who trains, for how many rounds, and how often somebody asks.
        k: The least size of a cluster.
        survivors: That a cluster must keep.
        clustering: How clients are clustered.
        streams: How many streams of requests.
        seed: Of the random numbers; with the same one, requests come after the same rounds.

    """
    rng = np.random.default_rng(seed)
    requests, request_rounds = draw_requests(federation, streams, federation.most_requests(k), rng)
    once = replace(federation, purge_every=federation.rounds)
    outcomes = live_through(once, requests, request_rounds, k=k, x=survivors, clustering=clustering, rng=rng)
    return StreamWork(
        requests,
        (federation.clients - _gone(federation, requests, request_rounds)).sum(axis=1, dtype=np.int32),
        outcomes.retrained_clients,
        outcomes.retrained_clients + outcomes.purged_clients,
    )


def simulate_sampled(federation: Federation, *, k: int, streams: int, seed: int) -> StreamWork:
    """Answer requests without clusters, where a random 1/k of the clients takes part in each round.

    Nobody is deniable: the first round in which a leaver took part is trained again with all that follow; who never
    took part costs nothing. With k = 1 this is plain FedAvg.

    Args:
        federation: Who trains, for how many rounds, and how often somebody asks.
        k: One over the fraction.
        streams: How many streams of requests.
        seed: As for `simulate_clustered`.

    """
    rng = np.random.default_rng(seed)
    requests, request_rounds = draw_requests(federation, streams, federation.most_requests(1), rng)
    ranks = rng.random((streams, federation.rounds, federation.clients), dtype=np.float32)
    return follow_sampled(federation, requests, request_rounds, ranks, k=k)


def follow_sampled(
    federation: Federation,
    requests: Integers,
    request_rounds: Integers,
    ranks: npt.NDArray[np.float32],
    *,
    k: int,
) -> StreamWork:
    """Answer given requests, stream by stream at once, request by request.

    Participants of a round are those of the lowest ranks among the clients who are left when it is executed, as in
    `disavow.rounds.participation`. Clients are numbered in the order in which they ask.

    Args:
        federation: Who trains, and for how many rounds.
        requests: How many requests each stream has.
        request_rounds: After which round each of them comes, one stream a row, in order.
        ranks: Of each client in each round of each stream.
        k: One over the fraction.

    """
    counts = np.array([participants_of(left, 1 / k) if left else 0 for left in range(federation.clients + 1)])
    rounds = np.arange(1, federation.rounds + 1)
    never = federation.rounds + 1
    at_first = _gone(federation, requests, request_rounds)
    gone = np.zeros_like(at_first)  # leavers when a round was last executed
    answering = np.zeros(len(requests), dtype=np.int32)
    earliest = np.full(len(requests), never)  # round in which any leaver took part, if nothing is trained again

    def first_round(which: npt.NDArray[np.int64], number: int, absent: Integers) -> npt.NDArray[np.int64]:
        """The first round with the client who asks as the `number`-th; `never` where there is none."""
        now, rank = request_rounds[which, number - 1], ranks[which]
        lower = rank < rank[:, :, number - 1, None]
        ahead = (lower & (np.arange(federation.clients) >= absent[:, :, None])).sum(axis=2)
        was_in = (ahead < counts[federation.clients - absent]) & (rounds <= now[:, None])
        return np.where(was_in.any(axis=1), was_in.argmax(axis=1) + 1, never)

    for number in range(1, request_rounds.shape[1] + 1):
        which = np.flatnonzero(requests >= number)
        now = request_rounds[which, number - 1]
        earliest[which] = np.minimum(earliest[which], first_round(which, number, at_first[which]))
        again = first_round(which, number, gone[which])
        answering[which] += np.maximum(now + 1 - again, 0) * counts[federation.clients - number]
        redone = (rounds >= again[:, None]) | (rounds > now[:, None])
        gone[which] = np.where(redone, number, gone[which])
    return StreamWork(
        requests,
        counts[federation.clients - at_first].sum(axis=1, dtype=np.int32),
        answering,
        ((never - earliest) * counts[federation.clients - requests]).astype(np.int32),
    )


def _gone(federation: Federation, requests: Integers, request_rounds: Integers) -> Integers:
    """How many clients have left when each round is executed for the first time, one stream a row."""
    asked = np.arange(request_rounds.shape[1]) < requests[:, None]
    before = request_rounds[:, :, None] < np.arange(1, federation.rounds + 1)
    gone: Integers = (before & asked[:, :, None]).sum(axis=1, dtype=np.int32)
    return gone
