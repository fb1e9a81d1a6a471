"""The command line on a run whose clients are Flower nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from disavow.domain import RequestState
from disavow.errors import CannotRetrain, ConfigError, RecordErased
from disavow.ledger import Ledger
from tests.cli.forked import disavow
from tests.cli.process import error_code
from tests.flower.builders import initial_arrays, make_grid, strategy
from tests.flower.hospitals import Hospitals
from tests.flower.loopback import LoopbackGrid

pytestmark = pytest.mark.flower


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, LoopbackGrid]:
    """Two rounds of nine clients, and no server app."""
    grid = make_grid(9)
    strategy(tmp_path / "run").start(grid=grid, initial_arrays=initial_arrays(), num_rounds=2, timeout=2.0)
    return tmp_path / "run", grid


def test_a_deniable_request_is_answered_without_any_node(run: tuple[Path, LoopbackGrid]) -> None:
    erased = disavow("erase", run[0], "c1")
    assert erased.returncode == 0, erased.stderr
    assert "request 1: deniable" in erased.stdout
    with Ledger.open(run[0]) as ledger:
        assert ledger.requests()[0].state is RequestState.ANSWERED


def test_a_rollback_waits_for_the_server_app_and_undoes_nothing_before(run: tuple[Path, LoopbackGrid]) -> None:
    directory, grid = run
    with Ledger.open(directory) as ledger:
        cluster = min(ledger.membership(1), key=len)
    leavers = cluster[: len(cluster) - 1]
    foretold = disavow("erase", directory, *leavers, "--dry-run")
    assert "rollback to round 1; 2 rounds to retrain" in foretold.stdout, foretold.stderr
    erased = disavow("erase", directory, *leavers, "--yes")
    assert erased.returncode == CannotRetrain.exit_code, erased.stderr
    assert leavers[-1] in erased.stderr
    with Ledger.open(directory) as ledger:
        assert ledger.next_round() == (3, 1)
        assert ledger.requests()[-1].state is RequestState.WAITING
    strategy(directory).start(grid=grid, initial_arrays=initial_arrays(), num_rounds=2, timeout=2.0)
    with Ledger.open(directory) as ledger:
        assert ledger.next_round() == (3, 1)
        assert {request.state for request in ledger.requests()} == {RequestState.ANSWERED}
    assert disavow("fsck", directory).returncode == 0


def test_nothing_here_trains_it(run: tuple[Path, LoopbackGrid]) -> None:
    assert error_code(disavow("resume", run[0])) == ConfigError.code
    assert error_code(disavow("audit", run[0], "--client", "c1")) == ConfigError.code


def test_settings_that_name_another_engine_do_not_train_it_here(run: tuple[Path, LoopbackGrid]) -> None:
    """`engine` may be edited; what trains the run does not change with it."""
    settings = run[0] / "config.toml"
    settings.write_text(settings.read_text().replace('"flower"', '"sequential"'))
    assert error_code(disavow("resume", run[0])) == CannotRetrain.code


def test_status_says_who_goes_on(run: tuple[Path, LoopbackGrid]) -> None:
    strategy_of_more = (run[0] / "config.toml").read_text().replace("rounds = 2", "rounds = 5")
    (run[0] / "config.toml").write_text(strategy_of_more)
    assert "2 of 5; its Flower server app goes on" in disavow("status", run[0]).stdout


def test_a_record_is_erased_without_any_node(run: tuple[Path, LoopbackGrid]) -> None:
    foretold = disavow("erase", run[0], "c1", "--record", "patient-17", "--dry-run")
    assert foretold.returncode == 0, foretold.stderr
    erased = disavow("erase", run[0], "c1", "--record", "patient-17")
    assert erased.returncode == 0, erased.stderr
    with Ledger.open(run[0]) as ledger:
        assert [(request.state, request.records) for request in ledger.requests()] == [(RequestState.ANSWERED, 1)]
        assert "c1" in ledger.clients()
    assert error_code(disavow("erase", run[0], "c1", "--record", "patient-17")) == RecordErased.code
    assert disavow("fsck", run[0]).returncode == 0


def test_a_node_asks_on_its_own_machine(tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path / "hospitals", nodes=4)
    hospitals.train(1)
    evidence = hospitals.evidence(1)
    result = disavow("ask", evidence, "--record", "a", "--record", "b", "--key", hospitals.keys[1], "--json")
    found = json.loads(result.stdout)
    assert (found["client"], found["unit"], found["records"]) == (hospitals.client(1), "record", ["a", "b"])
    assert found["signed"] is True
    assert Path(found["request"]).is_file()
    whole = disavow("ask", evidence)
    assert whole.returncode == 0, whole.stderr
    assert f"all of {hospitals.client(1)}" in whole.stdout
    assert "not signed" in whole.stdout
    assert error_code(disavow("ask", evidence, "--key", hospitals.keys[2])) == ConfigError.code
    assert error_code(disavow("ask", evidence, "--run", "0" * 32)) == ConfigError.code
    assert error_code(disavow("ask", tmp_path)) == ConfigError.code
