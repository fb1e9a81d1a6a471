"""The parameter attacker: finds what lies in the numbers, weighs out what varies, and accuses no clean server."""

from __future__ import annotations

import numpy as np
import pytest

from disavow.audit.attackers import ParameterProjection
from disavow.audit.difference import difference
from disavow.audit.game import Floats, Handed, Scores, Weights
from disavow.audit.roc import auc
from tests.audit.attackers.builders import with_worlds, worlds_of
from tests.audit.scoring import known

SIZE = 1000
LEVEL = 1 - 0.05 / 6


class Universe:
    """Worlds whose models differ in few directions of large variance, as secret draws make them, and a little else.

    The client moves a model by `effect`, a fixed vector of this length.
    """

    def __init__(self, seed: int, *, effect: float, draws: float = 3.0) -> None:
        self._rng = np.random.default_rng(seed)
        self._directions = self._rng.normal(size=(4, SIZE)) / np.sqrt(SIZE)
        shift = self._rng.normal(size=SIZE)
        self.client: Floats = effect * shift / np.linalg.norm(shift)
        self._draws = draws

    def models(self, count: int, share: float = 0.0) -> Weights:
        drawn = self._draws * self._rng.normal(size=(count, 4)) @ self._directions
        noise = self._rng.normal(size=(count, SIZE)) / np.sqrt(SIZE)
        return np.asarray(drawn + noise + share * self.client, dtype=np.float32)


def handed(present: Weights, absent: Weights, before: Weights) -> Handed:
    return with_worlds(
        worlds_of(len(present), weights=present),
        worlds_of(len(absent), weights=absent),
        before=worlds_of(len(before), weights=before),
    )


def served_and_retrained(seed: int, share: float, effect: float, side: int = 32) -> tuple[Scores, Scores]:
    """Scores of worlds that keep so much of what the client did, and of exact retrainings."""
    universe = Universe(seed, effect=effect)
    before, absent = universe.models(side, 1.0), universe.models(side)
    served, retrained = universe.models(side, share), universe.models(side)
    attacker = ParameterProjection()
    return attacker.scores(handed(served, absent, before)), attacker.scores(handed(retrained, absent, before))


def test_the_client_is_recognised_in_models_that_have_it() -> None:
    kept, none = served_and_retrained(1, 1.0, effect=1.0)
    assert auc(kept).estimate == 1.0
    assert auc(none).estimate == pytest.approx(0.5, abs=0.15)


def test_a_fifth_of_the_client_is_found_though_other_directions_vary_much_more() -> None:
    """Unweighed, the draws hide it: their variance along the estimated difference is what is left to weigh out."""
    found = [difference(served, [retrained], LEVEL).interval.low > 0 for served, retrained in _many(0.2)]
    assert sum(found) >= 9
    blunt = [difference(*_unweighed(seed, 0.2), LEVEL).interval.low > 0 for seed in range(10)]
    assert sum(blunt) <= 5


def _many(share: float) -> list[tuple[Scores, Scores]]:
    return [served_and_retrained(seed, share, effect=3.0) for seed in range(10)]


def _unweighed(seed: int, share: float) -> tuple[Scores, list[Scores]]:
    universe = Universe(seed, effect=3.0)
    before, absent = universe.models(32, 1.0), universe.models(32)
    served, retrained = universe.models(32, share), universe.models(32)
    along = before.mean(axis=0) - absent.mean(axis=0)
    scores = [np.asarray(each @ along, np.float64) for each in (served, retrained, absent)]
    return Scores(scores[0], scores[2]), [Scores(scores[1], scores[2])]


@pytest.mark.parametrize("effect", [0.0, 3.0])
def test_clean_servers_are_hardly_ever_accused(effect: float) -> None:
    """At the level of one attacker of six: 0.8 % of clean audits."""
    accused = 0
    for seed in range(100):
        served, retrained = served_and_retrained(seed, 0.0, effect=effect, side=16)
        accused += not difference(served, [retrained], LEVEL).contains_zero
    assert accused <= 3


def test_a_server_that_keeps_a_model_in_which_noise_hides_the_client_is_hardly_ever_accused() -> None:
    """The served worlds are those that the direction is learned from, fold by fold."""
    accused, attacker = 0, ParameterProjection()
    for seed in range(100):
        kept, absent, retrained = np.random.default_rng(seed).normal(size=(3, 32, 300)).astype(np.float32)
        served = attacker.scores(handed(kept, absent, kept))
        accused += not difference(served, [attacker.scores(handed(retrained, absent, kept))], LEVEL).contains_zero
    assert accused <= 4


def test_no_world_has_a_part_in_the_direction_that_scores_it() -> None:
    """Models that have nothing in common with each other: fitted to itself, each would stand out."""
    areas = []
    for seed in range(40):
        before, absent = np.random.default_rng(seed).normal(size=(2, 16, 500)).astype(np.float32)
        areas.append(known(auc(ParameterProjection().scores(handed(before, absent, before))))[0])
    assert np.mean(areas) == pytest.approx(0.5, abs=0.06)


def test_a_world_is_scored_alike_whatever_it_was_before() -> None:
    before, absent = np.random.default_rng(3).normal(size=(2, 32, 500)).astype(np.float32)
    scores = ParameterProjection().scores(handed(before, absent, before))
    changed = before.copy()
    changed[5] += 100  # neither in the direction that scores world 5, nor in that of its fold
    other = ParameterProjection().scores(handed(before, absent, changed))
    same = np.isclose(other.present, scores.present)
    assert [i for i in range(32) if same[i]] == [5, 13, 21, 29]


def test_worlds_that_are_all_the_same_get_finite_scores() -> None:
    one = np.ones((8, 5), np.float32)
    for before in (one, 2 * one):
        scores = ParameterProjection().scores(handed(before, one, before))
        assert np.isfinite([*scores.present, *scores.absent]).all()
    assert (scores.present > scores.absent).all()
