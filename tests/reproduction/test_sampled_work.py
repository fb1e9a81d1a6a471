"""Work of FedAvg with a fraction of the clients: the same as a run that is followed client by client."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pytest

from disavow.erasure.plan import Federation, draw_requests, simulate
from disavow.rounds.participation import participants
from reproduction.sampled_work import StreamWork, retrained_clients, simulate_sampled


def followed(federation: Federation, request_rounds: list[int], ranks: npt.NDArray[np.float32], k: int) -> int:
    """Clients that train again in one stream, with `participants` saying who takes part in which round."""

    def executed(number: int, gone: int) -> tuple[str, ...]:
        clients = [f"{client:02}" for client in range(gone, federation.clients)]
        return participants(clients, fraction=1 / k, rank=rank, round_number=number) if clients else ()

    def rank(number: int, client: str) -> bytes:
        return struct.pack(">f", ranks[number - 1, int(client)])

    standing: dict[int, tuple[str, ...]] = {}
    trained = gone = 0
    for number in range(1, federation.rounds + 1):
        standing[number] = executed(number, gone)
        if number in request_rounds:
            leaver, gone = f"{gone:02}", gone + 1
            first = next((each for each in range(1, number + 1) if leaver in standing[each]), number + 1)
            for again in range(first, number + 1):
                standing[again] = executed(again, gone)
                trained += len(standing[again])
    return trained


@pytest.mark.parametrize(("clients", "k"), [(11, 3), (20, 4), (5, 2), (3, 10)])
def test_it_is_what_following_every_client_comes_to(clients: int, k: int) -> None:
    federation = Federation(clients=clients, rounds=9, request_rate=0.6)
    rng = np.random.default_rng(clients)
    requests, request_rounds = draw_requests(federation, 40, federation.most_requests(1), rng)
    ranks = rng.random((40, 9, clients), dtype=np.float32)
    found = retrained_clients(federation, requests, request_rounds, ranks, k=k)
    expected = [
        followed(federation, [int(each) for each in rounds[:count]], rank, k)
        for count, rounds, rank in zip(requests, request_rounds, ranks, strict=True)
    ]
    assert found.tolist() == expected
    assert sum(expected) > 0


def test_with_everybody_in_every_round_it_is_fedavg() -> None:
    federation = Federation(clients=12, rounds=10, request_rate=0.4)
    plain = simulate(federation, k=1, x=1, clustering="fresh", runs=30, rng=np.random.default_rng(3))
    found = simulate_sampled(federation, k=1, streams=30, rng=np.random.default_rng(3))
    assert [each.tolist() for each in found] == [each.tolist() for each in StreamWork.of(plain)]


def test_who_took_part_in_one_round_of_four_is_trained_without_a_quarter_of_the_time() -> None:
    """One round, then a request: a quarter of all streams train again, with five of the nineteen who are left."""
    federation = Federation(clients=20, rounds=1, request_rate=1.0)
    found = simulate_sampled(federation, k=4, streams=4000, rng=np.random.default_rng(1))
    assert set(found.retrained_clients.tolist()) == {0, 5}
    assert (found.retrained_clients == 5).mean() == pytest.approx(0.25, abs=0.03)
