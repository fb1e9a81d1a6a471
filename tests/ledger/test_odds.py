"""The odds and chances that `status` and `account` print, against a plain computation over every client."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from disavow.domain import Cluster, Slot
from disavow.ledger import Ledger
from tests.erasure.mechanisms.contract import toy_settings, trained_toy
from tests.ledger.making import POLICY, create, member, record_next


def log10_odds(ratio: float) -> float:
    return (ratio * ratio / 2 + 1.645 * ratio) / math.log(10)


@pytest.mark.parametrize("representatives", [1, 2])
def test_the_worst_and_the_median_client_over_all_standing_rounds(tmp_path: Path, representatives: int) -> None:
    settings = toy_settings(
        clients=11,
        clustering={"representatives": representatives},
        deniability={"x": 1},
        training={"fraction": 0.8},
    )
    with trained_toy(tmp_path / "run", settings) as run:
        ledger = run.ledger
        ratios: defaultdict[str, list[float]] = defaultdict(list)
        never: defaultdict[str, float] = defaultdict(lambda: 1.0)
        for number in range(1, settings.rounds + 1):
            clusters = ledger.round(number).clusters
            moved = [cluster.weight * cluster.spread for cluster in clusters]
            tau = settings.noise.sigma * math.hypot(*moved)
            for cluster, each in zip(clusters, moved, strict=True):
                for client in cluster.clients:
                    ratios[client].append(each / tau)
                    never[client] *= 1 - representatives / len(cluster.slots)
        found = ledger.odds()
    assert found is not None
    every = [ratio for mine in ratios.values() for ratio in mine]
    composed = [math.hypot(*mine) for mine in ratios.values()]
    assert found.worst_round == pytest.approx(log10_odds(max(every)))
    assert found.median_round == pytest.approx(log10_odds(median(every)))
    assert found.worst_composed == pytest.approx(log10_odds(max(composed)))
    assert found.median_composed == pytest.approx(log10_odds(median(composed)))
    assert found.worst_drawn == pytest.approx(1 - min(never.values()))
    assert found.median_drawn == pytest.approx(1 - median(never.values()))


def one_cluster(ledger: Ledger, spread: float = 0.25) -> None:
    ids = ledger.clients()
    record_next(ledger, delta=spread, clusters=(Cluster(1.0, spread, tuple(Slot(member(c)) for c in ids)),))


def test_without_noise_the_odds_have_no_bound_unless_there_is_nothing_to_tell_apart(tmp_path: Path) -> None:
    silent = replace(POLICY, noise="none")
    with create(tmp_path / "apart", policy=silent) as ledger:
        assert ledger.odds() is None  # before anybody took part
        one_cluster(ledger)
        found = ledger.odds()
        assert found is not None
        assert (found.worst_round, found.worst_composed, found.median_composed) == (None, None, None)
        assert found.worst_drawn == 1 / 4
    with create(tmp_path / "alike", policy=silent) as ledger:
        one_cluster(ledger, spread=0.0)
        found = ledger.odds()
        assert found is not None
        assert (found.worst_round, found.worst_composed) == (0.0, 0.0)


def test_whoever_is_surely_drawn_has_a_chance_of_one(tmp_path: Path) -> None:
    with create(tmp_path / "run", policy=replace(POLICY, representatives=4)) as ledger:
        one_cluster(ledger)
        one_cluster(ledger)
        found = ledger.odds()
    assert found is not None
    assert found.worst_drawn == found.median_drawn == 1.0
