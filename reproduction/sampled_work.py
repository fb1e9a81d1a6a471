"""What leavers of FedAvg with a random fraction of the clients in each round cost, over many streams of requests.

There are no clusters and nobody is deniable: whoever leaves was in some rounds or in none. The first round in which
it took part is trained again with all that follow; who never took part costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from disavow.config import participants_of
from disavow.erasure.plan import Federation, Outcomes, draw_requests
from disavow.erasure.simulated import Integers


class StreamWork(NamedTuple):
    """Of each stream, how many requests it has, and the clients that train again, once for each round."""

    requests: Integers
    retrained_clients: Integers

    @classmethod
    def of(cls, outcomes: Outcomes) -> StreamWork:
        """Take what counts here from a simulation of `disavow.erasure.plan`."""
        return cls(outcomes.requests, outcomes.retrained_clients)


def simulate_sampled(federation: Federation, *, k: int, streams: int, rng: np.random.Generator) -> StreamWork:
    """Draw requests as `disavow.erasure.plan.simulate` does, and answer them where 1/k of the clients take part.

    Args:
        federation: Who trains, for how many rounds, and how often somebody asks.
        k: One over the fraction.
        streams: How many streams of requests.
        rng: The random numbers. In the same state as for `simulate`, the requests come after the same rounds.

    """
    requests, request_rounds = draw_requests(federation, streams, federation.most_requests(1), rng)
    ranks = rng.random((streams, federation.rounds, federation.clients), dtype=np.float32)
    return StreamWork(requests, retrained_clients(federation, requests, request_rounds, ranks, k=k))


def retrained_clients(
    federation: Federation,
    requests: Integers,
    request_rounds: Integers,
    ranks: npt.NDArray[np.float32],
    *,
    k: int,
) -> Integers:
    """Answer given requests, stream by stream at once, request by request.

    Participants of a round are those of the lowest ranks among the clients who are left when it is executed, as in
    `disavow.rounds.participation`. Clients are numbered in the order in which they ask.

    Args:
        federation: Who trains, and for how many rounds.
        requests: How many requests each stream has.
        request_rounds: After which round each of them comes, one stream a row, in order.
        ranks: Of each client in each round of each stream.
        k: One over the fraction.

    Returns:
        How many clients train again in each stream, counted once for each round.
    """
    counts = np.array([participants_of(left, 1 / k) if left else 0 for left in range(federation.clients + 1)])
    rounds = np.arange(1, federation.rounds + 1)
    trained = np.zeros(len(requests), dtype=np.int32)
    gone = np.zeros((len(requests), federation.rounds), dtype=np.int32)  # leavers when a round was last executed
    for number in range(1, request_rounds.shape[1] + 1):
        which = np.flatnonzero(requests >= number)
        now, absent, rank = request_rounds[which, number - 1], gone[which], ranks[which]
        lower = rank < rank[:, :, number - 1, None]
        ahead = (lower & (np.arange(federation.clients) >= absent[:, :, None])).sum(axis=2)
        was_in = (ahead < counts[federation.clients - absent]) & (rounds <= now[:, None])
        again = np.where(was_in.any(axis=1), was_in.argmax(axis=1) + 1, now + 1)
        left = federation.clients - number
        trained[which] += (now + 1 - again) * counts[left]
        gone[which] = np.where(rounds >= again[:, None], number, absent)
    return trained
