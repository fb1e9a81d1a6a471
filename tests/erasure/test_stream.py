"""The stream of requests of experiments: seeded, at most one a round, and never the same one twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from disavow.data import client_ids
from disavow.erasure.stream import asks, place_from_stream
from disavow.errors import RoundRefused
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, RoundSummary, fsck
from disavow.ledger.schema import requests
from disavow.rounds.randomness import training_stream
from tests.erasure.mechanisms.contract import ask, digests, reopen_toy, start_toy, toy_settings, trained_toy
from tests.refusals import refuses
from tests.selection import some_of

IDS = client_ids(50)


def stream_rounds(ledger: Ledger) -> list[int | None]:
    with ledger._connect() as connection:
        return list(connection.execute(sa.select(requests.c.stream_round).order_by(requests.c.id)).scalars())


def place(run: Federation, rate: float = 1.0) -> None:
    place_from_stream(run.ledger, run.options, rate=rate)


# -- who asks ----------------------------------------------------------------------------------------------------


def test_it_asks_with_the_probability_it_is_given() -> None:
    for rate in (0.0, 0.2, 0.9, 1.0):
        count = sum(asks(IDS, rate=rate, seed=1, round_number=t) is not None for t in range(1, 2001))
        # four standard deviations at the most; the draws are seeded, so this never changes
        assert abs(count / 2000 - rate) <= 4 * (rate * (1 - rate) / 2000) ** 0.5


def test_everybody_is_equally_likely() -> None:
    count = Counter(asks(IDS[:5], rate=1.0, seed=1, round_number=t) for t in range(1, 2001))
    assert set(count) == set(IDS[:5])
    assert all(abs(n - 400) < 4 * (2000 * 0.2 * 0.8) ** 0.5 for n in count.values())


def test_it_is_seeded() -> None:
    def story(seed: int) -> list[str | None]:
        return [asks(IDS, rate=0.5, seed=seed, round_number=t) for t in range(1, 30)]

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_whether_anybody_asks_does_not_depend_on_who_is_left_and_who_only_if_they_left() -> None:
    for number in range(1, 50):
        everyone = asks(IDS, rate=0.5, seed=4, round_number=number)
        if everyone is None:
            assert asks(IDS[:7], rate=0.5, seed=4, round_number=number) is None
            continue
        without_others = [client for client in IDS if client == everyone or client > IDS[20]]
        assert asks(without_others, rate=0.5, seed=4, round_number=number) == everyone
        assert asks([c for c in IDS if c != everyone], rate=0.5, seed=4, round_number=number) not in (
            None,
            everyone,
        )


def test_when_nobody_is_left_nobody_asks() -> None:
    assert asks([], rate=1.0, seed=1, round_number=1) is None


def test_it_draws_from_a_stream_of_its_own() -> None:
    """A training draw: changing the rate must not change what is trained."""
    assert training_stream(1, "request", round_number=1).uniform(1) != training_stream(1, "request").uniform(1)


# -- in a run ----------------------------------------------------------------------------------------------------


def test_before_the_first_round_nobody_asks(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings()) as run:
        place(run)
        assert run.ledger.requests() == ()


def test_a_run_with_a_stream_places_at_most_one_request_a_round(tmp_path: Path) -> None:
    settings = toy_settings(clients=20, rounds=12, requests={"rate": 0.6})
    with trained_toy(tmp_path / "run", settings) as run:
        placed = stream_rounds(run.ledger)
        present = list(client_ids(20))
        due = []
        for number in range(1, 13):
            client = asks(present, rate=0.6, seed=settings.seed, round_number=number)
            if client is not None:
                due.append(number)
                present.remove(client)
        assert placed == due
        assert 3 < len(placed) < 12
        assert run.ledger.clients() == tuple(present)
        assert all(request.state.value == "answered" for request in run.ledger.requests())
    assert fsck(tmp_path / "run") == []


def test_rebuilt_rounds_ask_nobody_a_second_time(tmp_path: Path) -> None:
    """x = k: every request rolls back to round 1, and twelve rounds bring twelve requests at the most."""
    settings = toy_settings(clients=20, rounds=6, requests={"rate": 1.0}, deniability={"x": 3})
    with trained_toy(tmp_path / "run", settings) as run:
        assert stream_rounds(run.ledger) == [1, 2, 3, 4, 5, 6]
        assert any(request.verdict and request.verdict.round for request in run.ledger.requests())
        assert len(run.ledger.clients()) == 14
        before = run.ledger.summaries()
        run.train()  # a complete run stays as it is
        assert run.ledger.summaries() == before
        assert len(run.ledger.requests()) == 6


def test_placing_twice_after_one_round_is_placing_once(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings(rounds=1)) as run:
        for _ in range(3):
            place(run)
            assert stream_rounds(run.ledger) == [1]
        run.answer()
        place(run)
        assert stream_rounds(run.ledger) == [1]


def test_the_stream_asks_once_a_round_and_never_for_somebody_who_has_asked(tmp_path: Path) -> None:
    """Once for each round, whatever happens: also when the one it would draw asked by itself a moment before."""
    with trained_toy(tmp_path / "run", toy_settings(rounds=1)) as run:
        drawn = asks(run.ledger.clients(), rate=1.0, seed=run.options.seed, round_number=1)
        assert drawn is not None
        ask(run, drawn)
        for _ in range(2):
            place(run)
            run.answer()
        assert len(run.ledger.requests()) == 2
        assert stream_rounds(run.ledger) == [None, 1]


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("x", some_of([2, 3], [3]))
def test_interrupted_anywhere_the_same_clients_ask_and_the_same_models_result(tmp_path: Path, x: int) -> None:
    settings = toy_settings(clients=14, rounds=5, requests={"rate": 0.7}, deniability={"x": x})

    def story(run: Federation) -> list[object]:
        return [(r.verdict, r.cost and r.cost.rounds) for r in run.ledger.requests()]

    with trained_toy(tmp_path / "undisturbed", settings) as run:
        due = (run.ledger.clients(), stream_rounds(run.ledger), digests(run.ledger), story(run))
    run = start_toy(tmp_path / "run", settings)
    stops = 0
    while True:
        events = 0
        stops += 1

        def stop(*_: object, at: int = stops) -> None:
            nonlocal events
            events += 1
            if events == at:  # a little later each time, so that every kind of event is met
                raise Interrupted

        try:
            run.train(Callbacks(stop, stop, stop))
        except Interrupted:
            run.close()
            run = reopen_toy(tmp_path / "run")
        else:
            break
    assert stops > 3
    assert (run.ledger.clients(), stream_rounds(run.ledger), digests(run.ledger), story(run)) == due
    run.close()
    assert fsck(tmp_path / "run") == []


def test_a_stream_that_empties_the_run_ends_it_with_a_reason(tmp_path: Path) -> None:
    settings = toy_settings(clients=4, rounds=9, requests={"rate": 1.0}, deniability={"x": 1})
    with start_toy(tmp_path / "run", settings) as run:
        with refuses(RoundRefused, "k = 3"):
            run.train()
        assert len(run.ledger.clients()) == 2
        assert run.ledger.next_round() == (3, 1)
    assert fsck(tmp_path / "run") == []


def test_requests_by_hand_and_by_stream_live_together(tmp_path: Path) -> None:
    settings = toy_settings(clients=16, rounds=4, requests={"rate": 1.0})
    with start_toy(tmp_path / "run", settings) as run:

        def on_round(summary: RoundSummary) -> None:
            if (summary.number, summary.attempt) == (2, 1):
                drawn = asks(run.ledger.clients(), rate=1.0, seed=run.options.seed, round_number=2)
                ask(run, next(client for client in run.ledger.clients() if client != drawn))

        run.train(Callbacks(on_round))
        assert sorted(stream_rounds(run.ledger), key=lambda n: n or 0) == [None, 1, 2, 3, 4]
        assert len(run.ledger.clients()) == 11


def test_without_a_rate_no_key_is_made(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", toy_settings()) as run:
        replace(run, keys=tmp_path / "no keys").train()
    assert not (tmp_path / "no keys").exists()
