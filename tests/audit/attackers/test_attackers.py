"""What all attackers share: names, units, one score for each unit, and no knowledge of which is which."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from disavow.audit.attackers import ATTACKERS, BEFORE_AFTER
from disavow.audit.game import Attacker, Handed, Worlds
from tests.audit.attackers.builders import game

EVERYONE = (*ATTACKERS.values(), BEFORE_AFTER)


def all_handed() -> Handed:
    def worlds(count: int) -> Worlds:
        rng = np.random.default_rng(count)
        own, held_out, alignment = rng.normal(size=(3, count))
        weights = rng.normal(size=(count, 7)).astype(np.float32)
        return Worlds(own, held_out, alignment, weights, rng.normal(size=(count, 4)))

    seen = game(1.0, own=11, held_out=23, shadows=16, seed=1)
    return replace(seen, present=worlds(5), absent=worlds(6), before=worlds(5), never=worlds(6))


def test_they_go_by_these_names() -> None:
    assert {name: attacker.unit for name, attacker in ATTACKERS.items()} == {
        "loss threshold": "record",
        "LiRA online": "record",
        "LiRA offline": "record",
        "subject level": "world",
        "update alignment": "world",
        "parameters": "world",
    }
    assert BEFORE_AFTER.name not in ATTACKERS  # it accuses nobody
    assert all(attacker.name == name for name, attacker in ATTACKERS.items())


@pytest.mark.parametrize("attacker", EVERYONE, ids=lambda attacker: attacker.name)
def test_every_unit_gets_one_finite_score(attacker: Attacker) -> None:
    scores = attacker.scores(all_handed())
    assert (scores.present.shape, scores.absent.shape) == (
        ((11,), (23,)) if attacker.unit == "record" else ((5,), (6,))
    )
    assert scores.present.dtype == scores.absent.dtype == np.float64
    assert np.isfinite(scores.present).all()
    assert np.isfinite(scores.absent).all()


@pytest.mark.parametrize("attacker", EVERYONE, ids=lambda attacker: attacker.name)
def test_asked_again_they_answer_the_same(attacker: Attacker) -> None:
    first, second = attacker.scores(all_handed()), attacker.scores(all_handed())
    np.testing.assert_array_equal(first.present, second.present)
    np.testing.assert_array_equal(first.absent, second.absent)


@pytest.mark.parametrize("attacker", EVERYONE, ids=lambda attacker: attacker.name)
def test_they_are_values(attacker: Attacker) -> None:
    assert attacker == type(attacker)()
    with pytest.raises((FrozenInstanceError, AttributeError)):
        attacker.name = "another"  # type: ignore[misc]
