"""What a month of requests costs, answered at once and purged once."""

from __future__ import annotations

from disavow.erasure.plan import Federation
from reproduction.purge_work import REQUESTS, K, measure

PAPER = Federation(clients=50, rounds=50, request_rate=0.2)


def test_a_month_purged_once_costs_a_fifteenth_of_retraining_at_each_request() -> None:
    rows = {(row.method, row.clusters): row for row in measure(PAPER, epochs=3, streams=1000, seed=1)}
    plain = rows["FedAvg, retrained at each request", ""]
    assert plain.mean == 3 * 50 * sum(range(50 - REQUESTS, 50))
    assert plain.rollbacks == REQUESTS
    purged = rows["answered at once, purged once", "sticky"]
    assert purged.low >= 15
    never = rows["answered at once, never purged", "sticky"]
    assert never.mean < purged.mean <= never.mean + 3 * 50 * (50 - REQUESTS)
    assert never.rollbacks == purged.rollbacks
    assert 50 - REQUESTS >= K  # or nothing could be retrained in the end


def test_requests_during_the_training_cost_less_to_retrain_for_and_so_less_is_saved() -> None:
    after, during = (
        {(row.method, row.clusters): row for row in measure(PAPER, epochs=3, streams=200, seed=1, during=spread)}
        for spread in (False, True)
    )
    plain = "FedAvg, retrained at each request", ""
    purged = "answered at once, purged once", "sticky"
    assert during[plain].rollbacks == REQUESTS
    # the i-th of 30 of 50 rounds, drawn at random, is round 51 i / 31 in the mean
    expected = 3 * sum(51 * i / 31 * (50 - i) for i in range(1, REQUESTS + 1))
    assert abs(during[plain].mean / expected - 1) < 0.01
    assert during[purged].mean < after[purged].mean
    assert 8 < during[purged].ratio < 10 < after[purged].ratio
