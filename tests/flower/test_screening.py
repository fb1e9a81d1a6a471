"""Where the sampled figure is claimed, a reply is in a round or not by itself: whoever else answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import RecordDict

from disavow.domain import Policy
from disavow.errors import RoundRefused
from disavow.flower.screening import MOST_SAMPLES, Returned, left_out
from disavow.ledger import Ledger
from tests.flower.builders import make_grid, rounds_asked
from tests.flower.test_replies import BAD, metric, participants, silent, start, with_arrays
from tests.rounds.builders import POLICY

pytestmark = pytest.mark.flower

CALIBRATED = replace(POLICY, noise="calibrated", clip=1.0, tau=1.0, sticky=False)
SAMPLED = replace(CALIBRATED, clustering="fixed")
BROADCAST = np.array([5.0], dtype=np.float32)
FIXED: dict[str, Any] = {
    "noise": "calibrated",
    "settings": {"clustering": {"method": "fixed"}, "noise": {"clip": 1.0, "tau": 0.5}},
}
ABOUT_OTHERS = {"huge", "beyond float32", "samples beyond the others'"}


def returned(value: float, samples: int = 10) -> Returned:
    return Returned(np.array([value], dtype=np.float32), samples, RecordDict())


LENGTHS = {f"a{i}": returned(150.0) for i in range(5)} | {f"b{i}": returned(-1.0) for i in range(5)}
COUNTS = {f"a{i}": returned(1.0, 1500) for i in range(5)} | {f"b{i}": returned(1.0, 1) for i in range(5)}


@pytest.mark.parametrize("roster", [LENGTHS, COUNTS], ids=["lengths", "samples"])
@pytest.mark.parametrize("policy", [CALIBRATED, replace(POLICY, clustering="fixed", sticky=False), SAMPLED])
def test_a_removal_decides_who_else_is_in_only_where_no_sampled_figure_is_claimed(
    roster: dict[str, Returned], policy: Policy
) -> None:
    fewer = {client: each for client, each in roster.items() if client != "a0"}
    others = set(left_out(roster, policy, 100.0, BROADCAST)) - {"a0"}
    assert (others == set(left_out(fewer, policy, 100.0, BROADCAST))) == (policy is SAMPLED)
    assert others == set()  # the median lies between the two halves


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_reply_is_left_out_of_fixed_clusters_for_what_it_is_alone(kind: str, tmp_path: Path) -> None:
    grid = make_grid(6)
    grid.nodes[2].tamper = BAD[kind][0]
    start(grid, tmp_path / "run", **FIXED)
    bad = set() if kind in ABOUT_OTHERS else {"c2"}
    assert participants(tmp_path / "run") == {f"c{i}" for i in range(1, 7)} - bad
    with Ledger.open(tmp_path / "run") as ledger:
        assert np.linalg.norm(ledger.model_before(2)) < 100  # clipped, whatever was returned


@pytest.mark.parametrize(("samples", "counts"), [(MOST_SAMPLES, True), (MOST_SAMPLES + 1, False)])
def test_no_reply_counts_more_samples_than_an_absolute_number(samples: int, counts: bool, tmp_path: Path) -> None:
    grid = make_grid(6)
    grid.nodes[2].tamper = metric(samples)
    start(grid, tmp_path / "run", **FIXED)
    assert ("c2" in participants(tmp_path / "run")) == counts


@pytest.mark.parametrize("removed", [False, True])
def test_who_else_is_in_a_round_does_not_depend_on_a_client_that_left(removed: bool, tmp_path: Path) -> None:
    """Half of the replies are long; and with the client gone, fewer than k are good."""
    grid = make_grid(6)
    for number in (1, 2, 3):
        grid.nodes[number].tamper = with_arrays(lambda shape: 1e3)
    for number in (4, 5, 6):
        grid.nodes[number].tamper = silent
    if removed:
        grid.nodes[1].tamper = silent
    start(grid, tmp_path / "run", repeats=2, **FIXED)
    assert participants(tmp_path / "run") - {"c1"} == {"c2", "c3"}
    assert rounds_asked(grid.nodes[6]) == [1]


def test_a_round_that_nobody_answers_is_refused(tmp_path: Path) -> None:
    grid = make_grid(6)
    for node in grid.nodes.values():
        node.tamper = silent
    with pytest.raises(RoundRefused):
        start(grid, tmp_path / "run", **FIXED)
