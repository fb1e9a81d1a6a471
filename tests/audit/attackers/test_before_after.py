"""Who has both models ranks the clients by how much worse they are fitted."""

from __future__ import annotations

import numpy as np

from disavow.audit.attackers import BEFORE_AFTER
from disavow.audit.attackers.before_after import ranks
from disavow.audit.roc import auc
from tests.audit.attackers.builders import with_worlds, worlds_of


def test_the_leaver_is_ranked_by_how_much_its_loss_rose() -> None:
    before = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    after = np.array([[2.0, 1.5, 0.5], [1.2, 1.5, 0.5], [0.0, 1.5, 0.5]])
    assert ranks(before, after).tolist() == [1, 2, 3]


def test_a_tie_goes_against_the_leaver() -> None:
    assert ranks(np.ones((1, 4)), np.ones((1, 4))).tolist() == [4]


def test_a_leaver_whose_old_model_fitted_it_stands_out_and_one_that_was_in_neither_does_not() -> None:
    rng = np.random.default_rng(1)
    before, after, never, absent = 1 + 0.1 * rng.normal(size=(4, 200, 10))
    before[:, 0] -= 0.3
    seen = with_worlds(
        worlds_of(200, client_loss=after),
        worlds_of(200, client_loss=absent),
        before=worlds_of(200, client_loss=before),
        never=worlds_of(200, client_loss=never),
    )
    scores = BEFORE_AFTER.scores(seen)
    assert (auc(scores).estimate or 0) > 0.9
    assert abs(np.median(scores.absent)) < 0.2
    assert (ranks(before, after) == 1).mean() > 0.5 > (ranks(never, absent) == 1).mean() * 4


def test_two_models_that_are_the_same_give_nothing_away() -> None:
    kept = worlds_of(3, client_loss=np.random.default_rng(2).normal(size=(3, 5)))
    scores = BEFORE_AFTER.scores(with_worlds(kept, kept, before=kept, never=kept))
    assert not scores.present.any()
    assert not scores.absent.any()
