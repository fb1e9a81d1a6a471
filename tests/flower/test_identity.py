"""Who is behind a node."""

from __future__ import annotations

import logging
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from disavow.errors import ConfigError, RoundRefused
from disavow.flower.identity import Identity
from disavow.flower.node_keys import fingerprint
from disavow.ledger import Ledger
from tests.flower.builders import initial_arrays, learner, make_grid, moved, placing, rounds_received, strategy
from tests.flower.loopback import LoopbackGrid, Node, Tamper, untouched
from tests.flower.network import make_node_key
from tests.refusals import refuses

pytestmark = pytest.mark.flower


def pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def node_key() -> bytes:
    return pem(ec.generate_private_key(ec.SECP384R1()))


def clients_after_a_round(grid: LoopbackGrid, run: Path, identity: Identity) -> set[str]:
    made = strategy(run, identity=identity)
    made.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=1, timeout=0.5)
    with Ledger.open(run) as ledger:
        return {client for cluster in ledger.membership(1) for client in cluster}


def start_again(grid: LoopbackGrid, run: Path, rounds: int, **more: Any) -> None:
    made = strategy(run, identity="auto")
    made.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=rounds, timeout=0.5, **more)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen")
def test_the_fingerprint_is_the_one_that_ssh_keygen_prints(tmp_path: Path) -> None:
    path = make_node_key(tmp_path / "key").with_suffix(".pub")
    printed = subprocess.run(["ssh-keygen", "-l", "-f", path], capture_output=True, text=True, check=True).stdout
    public = serialization.load_ssh_public_key(path.read_bytes())
    public_pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert fingerprint(public_pem) == printed.split()[1]


@pytest.mark.parametrize("key", [b"", b"x" * 32, pem(ed25519.Ed25519PrivateKey.generate())])
def test_what_is_no_key_of_a_supernode_has_no_fingerprint(key: bytes) -> None:
    assert fingerprint(key) is None


@pytest.mark.parametrize("identity", ["auto", "key"])
def test_the_key_says_who_a_node_is_whatever_the_node_says(identity: Identity, tmp_path: Path) -> None:
    keys = [node_key() for _ in range(4)]
    grid = LoopbackGrid({i: Node(learner(), {"client-id": "ada"}, key) for i, key in enumerate(keys)})
    assert clients_after_a_round(grid, tmp_path / "run", identity) == {fingerprint(key) for key in keys}


def test_without_authentication_the_node_config_does(tmp_path: Path) -> None:
    grid = LoopbackGrid({i: Node(learner(), {"client-id": f"clinic {i}"}, node_key()) for i in range(4)})
    assert clients_after_a_round(grid, tmp_path / "run", "client-id") == {f"clinic {i}" for i in range(4)}


def test_two_nodes_that_claim_one_id_take_no_part_until_one_of_them_is_gone(tmp_path: Path) -> None:
    grid, run = make_grid(6), tmp_path / "run"
    grid.nodes[7] = Node(learner(), {"client-id": "c3"})
    assert clients_after_a_round(grid, run, "client-id") == {"c1", "c2", "c4", "c5", "c6"}
    assert rounds_received(grid.nodes[3]) == rounds_received(grid.nodes[7]) == []
    grid.nodes[7].connected = False
    strategy(run).start(grid=grid, initial_arrays=initial_arrays(), num_rounds=2, timeout=0.5)
    assert rounds_received(grid.nodes[3]) == [2]


@pytest.mark.parametrize("claim", ["SHA256:" + "A" * 43, "node-1", "", "a\nb", "x" * 300])
def test_an_id_of_another_kind_or_of_no_kind_cannot_be_claimed(claim: str, tmp_path: Path) -> None:
    grid = make_grid(4)
    grid.nodes[9] = Node(learner(), {"client-id": claim})
    assert clients_after_a_round(grid, tmp_path / "run", "client-id") == {"c1", "c2", "c3", "c4"}


def test_in_a_simulation_a_partition_is_a_client(tmp_path: Path) -> None:
    grid = LoopbackGrid({10 + i: Node(learner(), {"partition-id": i, "num-partitions": 4}) for i in range(4)})
    assert clients_after_a_round(grid, tmp_path / "run", "auto") == {f"partition-{i}" for i in range(4)}


def unaware() -> ClientApp:
    """An app that was written without disavow in mind."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        arrays = moved(message.content["arrays"], lambda shape: 0.1)
        return Message(RecordDict({"a": arrays, "m": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


def test_an_app_that_knows_nothing_of_disavow_goes_by_the_nodes_number(tmp_path: Path) -> None:
    grid = LoopbackGrid({10 + i: Node(unaware(), {"partition-id": i}) for i in range(4)})
    assert clients_after_a_round(grid, tmp_path / "run", "auto") == {f"node-{10 + i}" for i in range(4)}
    questions = [m for node in grid.nodes.values() for m in node.received if m.metadata.message_type != "train"]
    assert len(questions) == 1  # every question that is not understood is a traceback in the log


def failing(times: int) -> Tamper:
    """A node whose process dies of so many questions who it is."""
    left = times

    def tamper(reply: Message) -> Message | None:
        nonlocal left
        if left == 0 or (reply.has_content() and "arrays" in reply.content):
            return reply
        left -= 1
        broken = Message(Error(code=8, reason="the process has died"), reply_to=reply)
        broken.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
        return broken

    return tamper


@pytest.mark.parametrize("number", [1, 5])
def test_a_node_that_fails_to_answer_is_nobody_until_it_answers(tmp_path: Path, number: int) -> None:
    grid = make_grid(6)
    grid.nodes[number].tamper = failing(100)
    others = {f"c{i}" for i in range(1, 7) if i != number}
    assert clients_after_a_round(grid, tmp_path / "run", "auto") == others
    grid.nodes[number].tamper = untouched
    start_again(grid, tmp_path / "run", 2)
    assert rounds_received(grid.nodes[number]) == [2]


def test_it_is_asked_again_in_later_rounds(tmp_path: Path) -> None:
    grid = make_grid(6)
    grid.nodes[1].tamper = failing(6)
    start_again(grid, tmp_path / "run", 6)
    rounds = rounds_received(grid.nodes[1])
    assert rounds
    assert rounds == list(range(rounds[0], 7))
    assert rounds[0] > 1
    with Ledger.open(tmp_path / "run") as ledger:
        assert ledger.clients() == tuple(f"c{i}" for i in range(1, 7))


@pytest.mark.parametrize("number", [1, 5])
def test_a_leaver_does_not_return_by_an_answer_that_fails(tmp_path: Path, number: int) -> None:
    grid, run = make_grid(7), tmp_path / "run"
    start_again(grid, run, 2, evaluate_fn=placing(run, {1: ["c5"]}))
    grid.nodes[number].tamper = failing(100)
    start_again(grid, run, 3)
    assert rounds_received(grid.nodes[5]) == [1]
    with Ledger.open(run) as ledger:
        assert ledger.clients() == tuple(f"c{i}" for i in range(1, 8) if i != 5)


def test_who_has_said_its_name_once_is_not_numbered_later(tmp_path: Path) -> None:
    grid, run = make_grid(6), tmp_path / "run"
    start_again(grid, run, 1)
    for node in grid.nodes.values():
        node.app = unaware()  # its author has taken the line out again
    with pytest.raises(RoundRefused):
        start_again(grid, run, 2)
    with Ledger.open(run) as ledger:
        assert ledger.clients() == tuple(f"c{i}" for i in range(1, 7))


def test_but_not_where_ids_must_be_told(tmp_path: Path) -> None:
    grid = make_grid(4)
    grid.nodes[9] = Node(unaware(), {"client-id": "mute"})
    assert clients_after_a_round(grid, tmp_path / "run", "client-id") == {"c1", "c2", "c3", "c4"}


def test_a_node_without_a_key_takes_no_part_where_keys_are_asked_for(tmp_path: Path) -> None:
    keys = [node_key() for _ in range(4)]
    grid = LoopbackGrid({i: Node(learner(), {}, key) for i, key in enumerate(keys)})
    grid.nodes[9] = Node(learner(), {"client-id": "keyless"})
    assert len(clients_after_a_round(grid, tmp_path / "run", "key")) == 4


# -- numbers, which do not survive a restart ---------------------------------------------------------------


def simulation(first: int, app: ClientApp | None = None) -> LoopbackGrid:
    """Six partitions on nodes whose numbers begin there, as Flower gives new ones at each start."""
    return LoopbackGrid({first + i: Node(app or unaware(), {"partition-id": i}) for i in range(6)})


def test_the_first_start_warns_that_numbers_do_not_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    start_again(simulation(10), tmp_path / "run", 2)
    [warning] = [record for record in caplog.records if "do not survive a restart" in record.getMessage()]
    assert warning.levelno == logging.WARNING
    assert 'app.query("disavow")(answer)' in warning.getMessage()


def test_a_run_does_not_go_on_with_other_numbers(tmp_path: Path) -> None:
    start_again(simulation(10), tmp_path / "run", 1)
    again = simulation(20)
    with refuses(ConfigError, "`ledger`"):
        start_again(again, tmp_path / "run", 2)
    assert [rounds_received(node) for node in again.nodes.values()] == [[]] * 6


def test_ids_that_last_may_take_over_where_nobody_has_been_erased(tmp_path: Path) -> None:
    run = tmp_path / "run"
    start_again(simulation(10), run, 1)
    start_again(simulation(20, learner()), run, 3, evaluate_fn=placing(run, {2: ["partition-3"]}))
    again = simulation(30, learner())
    start_again(again, run, 4)
    rounds = {node.config["partition-id"]: rounds_received(node) for node in again.nodes.values()}
    assert rounds == {i: [] if i == 3 else [4] for i in range(6)}


@pytest.mark.parametrize("aware", [False, True])
def test_nobody_returns_by_a_new_number_or_a_new_kind_of_id(tmp_path: Path, aware: bool) -> None:
    run = tmp_path / "run"
    start_again(simulation(10), run, 2, evaluate_fn=placing(run, {1: ["node-12"]}))
    again = simulation(20, learner() if aware else None)
    with refuses(ConfigError, "`ledger`"):
        start_again(again, run, 4)
    assert [rounds_received(node) for node in again.nodes.values()] == [[]] * 6


def test_a_new_number_is_not_admitted_where_somebody_has_been_erased(tmp_path: Path) -> None:
    grid, run = simulation(10), tmp_path / "run"
    start_again(grid, run, 1)
    grid.nodes[30] = Node(unaware(), {"partition-id": 6})
    start_again(grid, run, 2, evaluate_fn=placing(run, {2: ["node-12"]}))
    grid.nodes[40] = grid.nodes.pop(12)  # the leaver, under another number
    start_again(grid, run, 4)
    assert rounds_received(grid.nodes[30]) == [2, 3, 4]
    assert rounds_received(grid.nodes[40]) == [1, 2]
