"""A stream of requests for experiments: after each round, with some probability, a client asks to be forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from disavow.domain import RequestState
from disavow.ledger import Ledger
from disavow.rounds.options import RoundOptions
from disavow.rounds.randomness import derive, training_stream


def asks(clients: Sequence[str], *, rate: float, seed: int, round_number: int) -> str | None:
    """Draw who asks after a round: with probability `rate` one client, uniformly. A training draw.

    Drawn by a hash of each id, so that who asks does not depend on who else has left.

    Args:
        clients: Who is in and has not asked.
        rate: The probability that somebody asks.
        seed: The seed of training draws.
        round_number: The round.

    """
    if not clients or float(training_stream(seed, "request", round_number=round_number).uniform(1)) >= rate:
        return None
    return min(clients, key=lambda client: derive("request", seed, round_number, client))


def place_from_stream(ledger: Ledger, options: RoundOptions, *, rate: float) -> None:
    """Place the request that is drawn after the newest standing round; once for each round, whatever happens.

    Args:
        ledger: The run.
        options: How its rounds are run.
        rate: The probability that somebody asks.

    """
    newest = ledger.last_round
    if newest <= ledger.latest_stream_round():
        return  # a round that was rebuilt, or an interruption after the request was placed
    free_again = (RequestState.CANCELLED, RequestState.REFUSED)
    requesters = {request.client for request in ledger.requests() if request.state not in free_again}
    free = [client for client in ledger.clients() if client not in requesters]
    client = asks(free, rate=rate, seed=options.seed, round_number=newest)
    if client is not None:
        ledger.place_requests([client], at=options.clock(), stream_round=newest)
