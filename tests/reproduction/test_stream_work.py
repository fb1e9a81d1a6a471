"""Work of streams of requests: the same as runs that are followed client by client."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pytest

from disavow.erasure.plan import Federation, draw_requests, simulate
from disavow.rounds.participation import participants
from reproduction.stream_work import StreamWork, follow_sampled, simulate_clustered, simulate_sampled


def followed(
    federation: Federation, request_rounds: list[int], ranks: npt.NDArray[np.float32], k: int, *, wait: bool = False
) -> tuple[int, int]:
    """Clients that train at first, and again, in one stream, with `participants` saying who is in which round.

    With `wait` nothing is trained again before the last round.
    """

    def executed(number: int, gone: int) -> tuple[str, ...]:
        clients = [f"{client:02}" for client in range(gone, federation.clients)]
        return participants(clients, fraction=1 / k, rank=rank, round_number=number) if clients else ()

    def rank(number: int, client: str) -> bytes:
        return struct.pack(">f", ranks[number - 1, int(client)])

    def train_again(first: int, last: int, gone: int) -> int:
        for number in range(first, last + 1):
            standing[number] = executed(number, gone)
        return sum(len(standing[number]) for number in range(first, last + 1))

    standing: dict[int, tuple[str, ...]] = {}
    trained = again = gone = 0
    for number in range(1, federation.rounds + 1):
        standing[number] = executed(number, gone)
        trained += len(standing[number])
        if number in request_rounds:
            leaver, gone = f"{gone:02}", gone + 1
            if not wait:
                first = next((each for each in range(1, number + 1) if leaver in standing[each]), number + 1)
                again += train_again(first, number, gone)
    if wait:
        leavers = {f"{client:02}" for client in range(gone)}
        first = next((each for each in standing if leavers & set(standing[each])), federation.rounds + 1)
        again = train_again(first, federation.rounds, gone)
    return trained, again


@pytest.mark.parametrize(("clients", "k"), [(11, 3), (20, 4), (5, 2), (3, 10)])
def test_it_is_what_following_every_client_comes_to(clients: int, k: int) -> None:
    federation = Federation(clients=clients, rounds=9, request_rate=0.6)
    rng = np.random.default_rng(clients)
    requests, request_rounds = draw_requests(federation, 40, federation.most_requests(1), rng)
    ranks = rng.random((40, 9, clients), dtype=np.float32)
    found = follow_sampled(federation, requests, request_rounds, ranks, k=k)
    for again, wait in ((found.answering, False), (found.deleting, True)):
        expected = [
            followed(federation, [int(each) for each in rounds[:count]], rank, k, wait=wait)
            for count, rounds, rank in zip(requests, request_rounds, ranks, strict=True)
        ]
        assert list(zip(found.training.tolist(), again.tolist(), strict=True)) == expected
        assert sum(more for _, more in expected) > 0


def test_with_everybody_in_every_round_it_is_fedavg() -> None:
    federation = Federation(clients=12, rounds=10, request_rate=0.4)
    plain = simulate(federation, k=1, x=1, clustering="fresh", runs=30, rng=np.random.default_rng(3))
    found = simulate_sampled(federation, k=1, streams=30, seed=3)
    assert found.requests.tolist() == plain.requests.tolist()
    assert found.answering.tolist() == plain.retrained_clients.tolist()
    assert found.deleting.tolist() == [10 * (12 - asked) if asked else 0 for asked in plain.requests.tolist()]


def test_who_took_part_in_one_round_of_four_is_trained_without_a_quarter_of_the_time() -> None:
    """One round, then a request: a quarter of all streams train again, with five of the nineteen who are left."""
    federation = Federation(clients=20, rounds=1, request_rate=1.0)
    found = simulate_sampled(federation, k=4, streams=4000, seed=1)
    assert set(found.answering.tolist()) == {0, 5}
    assert (found.answering == 5).mean() == pytest.approx(0.25, abs=0.03)
    assert found.deleting.tolist() == found.answering.tolist()


def clustered(federation: Federation, k: int, survivors: int) -> StreamWork:
    return simulate_clustered(federation, k=k, survivors=survivors, clustering="sticky", streams=200, seed=1)


def test_clusters_train_everybody_who_is_left_and_delete_all_leavers_once() -> None:
    """Four requests, after rounds 1 to 4, each of them deniable."""
    found = clustered(Federation(clients=60, rounds=4, request_rate=1.0), 10, 1)
    assert set(found.training.tolist()) == {60 + 59 + 58 + 57}
    assert set(found.answering.tolist()) == {0}
    assert set(found.deleting.tolist()) == {4 * 56}


def test_whom_a_rollback_to_the_first_round_removed_nobody_deletes_again() -> None:
    found = clustered(Federation(clients=8, rounds=1, request_rate=1.0), 4, 4)
    assert set(found.answering.tolist()) == set(found.deleting.tolist()) == {7}
