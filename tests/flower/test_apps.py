"""The example apps in Flower's own simulation: one that knows nothing of disavow, and what two lines make of it."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray")

from disavow.ledger import Ledger, fsck
from tests.flower.network import EXAMPLES, Network, wait_until

pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]

NODES = 8
PATIENCE = 400.0

STRATEGY_LINES = {
    "from flwr.serverapp.strategy import FedAvg\n": "from disavow.flower import KIPFedAvg\n",
    '    strategy = FedAvg(fraction_evaluate=config["fraction-evaluate"])\n': (
        '    strategy = KIPFedAvg(fraction_evaluate=config["fraction-evaluate"], ledger="{run}", k=4, x=2)\n'
    ),
}


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    network = Network(tmp_path_factory.mktemp("simulation") / "network", simulation=True, nodes=NODES)
    try:
        network.start_superlink()
        yield network
    finally:
        network.stop()


def completed(simulation: Network, app: Path, **config: object) -> str:
    """Run an app to its end; what it wrote to Flower's log."""
    run = simulation.run(app, **config)
    wait_until(
        lambda: simulation.status(run).startswith("finished"),
        app.name,
        seconds=PATIENCE,
        every=4.0,  # whoever asks is a process, and takes a second of a core
        log=lambda: simulation.said(run),
    )
    said = simulation.said(run)
    assert simulation.status(run) == "finished:completed", said
    return said


def accuracy_in(said: str) -> float:
    found = re.findall(r"^round \d+: accuracy ([0-9.]+)$", said, re.MULTILINE)
    assert len(found) == 1, said
    return float(found[0])


PLAIN = EXAMPLES / "flower-quickstart"


@pytest.mark.torture  # it is Flower's own FedAvg: the next test runs the same code under another strategy
def test_the_plain_app_works(simulation: Network) -> None:
    assert accuracy_in(completed(simulation, PLAIN)) > 0.6


def test_the_plain_app_works_after_changing_the_strategy_lines_alone(simulation: Network, tmp_path: Path) -> None:
    assert "disavow" not in "".join(path.read_text() for path in PLAIN.rglob("*.py"))
    changed, run = Path(shutil.copytree(PLAIN, tmp_path / "changed")), tmp_path / "run"
    server = changed / "quickstart" / "server_app.py"
    text = server.read_text()
    for old, new in STRATEGY_LINES.items():
        assert text.count(old) == 1
        text = text.replace(old, new.format(run=run))
    server.write_text(text)
    assert accuracy_in(completed(simulation, changed)) > 0.4
    with Ledger.open(run) as ledger:
        assert ledger.next_round() == (4, 1)
        assert len(ledger.clients()) == NODES
        assert [len(cluster) for cluster in ledger.membership(3)] == [4, 4]
        assert ledger.unevaluated() == ()
    assert [finding for finding in fsck(run) if finding.fault] == []


def test_the_complete_app_runs_in_a_simulation(simulation: Network, tmp_path: Path) -> None:
    run = tmp_path / "run"
    app = EXAMPLES / "flower-digits"
    completed(simulation, app, ledger=run, num_server_rounds=1, min_available_nodes=NODES)
    said = completed(simulation, app, ledger=run, num_server_rounds=2, min_available_nodes=NODES)
    assert "1 of 2 rounds stand" in said
    with Ledger.open(run) as ledger:  # another simulation, other nodes, the same clients
        assert ledger.clients() == tuple(f"partition-{i}" for i in range(NODES))
        assert ledger.next_round() == (3, 1)


def test_the_readme_shows_the_difference_between_the_two() -> None:
    readme = (EXAMPLES / "flower-digits" / "README.md").read_text()
    for name in ("server_app.py", "client_app.py"):
        old = (EXAMPLES / "flower-quickstart" / "quickstart" / name).read_text().splitlines()
        new = (EXAMPLES / "flower-digits" / "digits" / name).read_text().splitlines()
        changes = [
            line for line in difflib.unified_diff(old, new, n=0, lineterm="") if line[:2] not in ("--", "++", "@@")
        ]
        ours = [line for line in changes if ".task import" not in line]
        assert ours, name
        for line in ours:
            assert line in readme, line
