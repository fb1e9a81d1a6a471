"""What figures draw over the rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from reproduction import series
from reproduction.lines import Request, Round
from tests.reproduction.making import line

RUN = line(rounds=2)


def done(number: int, accuracy: float, kind: Literal["trained", "retrained", "rebuilt"] = "trained") -> Round:
    return Round(
        number=number, attempt=1, kind=kind, accuracy=accuracy, seconds=1.0, client_epochs=150.0, shared=False
    )


def request(after: int, seconds: float, epochs: float) -> Request:
    return Request(
        after_round=after, verdict="rollback", to_round=1, rounds=1, client_epochs=epochs, seconds=seconds
    )


def test_the_model_in_use_is_the_one_after_the_requests_of_a_round() -> None:
    rounds = (
        done(1, 0.1),
        done(2, 0.2),
        done(1, 0.15, "retrained"),
        done(2, 0.25, "retrained"),
        done(3, 0.3),
        done(3, 0.28, "rebuilt"),
        done(3, 0.29, "rebuilt"),
        done(4, 0.4),
    )
    assert series.served(replace(RUN, rounds=rounds)) == [0.1, 0.25, 0.29, 0.4]


def test_what_was_spent_adds_up_from_the_round_of_each_request_on() -> None:
    run = replace(
        RUN,
        rounds=tuple(done(number, 0.5) for number in range(1, 6)),
        requests=(request(2, 1.5, 150.0), request(2, 0.5, 0.0), request(4, 3.0, 300.0)),
    )
    assert series.spent(run, "seconds") == [0.0, 2.0, 2.0, 5.0, 5.0]
    assert series.spent(run, "client_epochs") == [0.0, 150.0, 150.0, 450.0, 450.0]


def test_a_mean_goes_as_far_as_all_runs_do_and_passes_over_those_without() -> None:
    runs = [
        replace(RUN, distance_to_fedavg=(1.0, 2.0, 3.0)),
        replace(RUN, distance_to_fedavg=(3.0, 4.0)),
        replace(RUN, distance_to_fedavg=None),
    ]
    assert series.mean(runs, series.distance) == [2.0, 3.0]
    assert series.mean([], series.distance) == []
    assert series.mean(runs[2:], series.distance) == []


def test_the_end_is_the_last_value_that_all_runs_have_one_for_each_seed() -> None:
    runs = [
        replace(RUN, seed=1, x=2, distance_to_fedavg=(1.0, 2.0, 9.0)),
        replace(RUN, seed=1, x=3, distance_to_fedavg=(1.0, 4.0)),
        replace(RUN, seed=2, distance_to_fedavg=(1.0, 5.0, 9.0)),
        replace(RUN, seed=3, distance_to_fedavg=None),
    ]
    found = series.at_the_end(runs, series.distance)
    assert found is not None
    assert found.values == (3.0, 5.0)
    assert series.at_the_end(runs[3:], series.distance) is None
