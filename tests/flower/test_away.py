"""A rollback while most nodes are away: the earlier model is served, and the report says why."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, MetricRecord

from disavow.domain import RequestState
from disavow.errors import RoundRefused
from disavow.ledger import Ledger, fsck
from tests.flower.builders import initial_arrays, make_grid, place, strategy
from tests.flower.test_replies import silent
from tests.flower.test_strategy import leave_together

pytestmark = pytest.mark.flower


@pytest.mark.parametrize("silently", [False, True])
def test_the_remark_of_an_unfinished_retraining_does_not_say_that_nothing_changed(
    silently: bool, tmp_path: Path
) -> None:
    grid, run = make_grid(9), tmp_path / "run"
    leavers = leave_together(run, grid, strategy(run))
    staying = [node for node in grid.nodes.values() if node.config["client-id"] not in leavers]

    def going(number: int, arrays: ArrayRecord) -> MetricRecord:
        if number == 3:
            place(run, leavers)
            for node in staying[2:]:
                if silently:
                    node.tamper = silent
                else:
                    node.connected = False
        return MetricRecord({"accuracy": 0.5})

    with pytest.raises(RoundRefused):  # of the round after
        strategy(run).start(
            grid=grid,
            initial_arrays=initial_arrays(),
            num_rounds=4,
            timeout=0.5,
            evaluate_fn=going,
        )
    with Ledger.open(run) as ledger:
        [remark] = {request.remark for request in ledger.requests()}
        assert {request.state for request in ledger.requests()} == {RequestState.ANSWERED}
    assert remark.startswith("not retrained: round 1 refused: ")
    assert remark.endswith("; the initial model is served")
    assert "k = 3" in remark
    assert "unchanged" not in remark
    assert "nothing was recorded" not in remark
    assert [finding for finding in fsck(run) if finding.fault] == []
