"""The whole story on a real network: TLS, authenticated SuperNodes, leavers, a record, a dead node, a killed server
app.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from disavow.domain import RequestState, VerdictKind
from disavow.flower.node_keys import fingerprint
from disavow.ledger import Ledger
from tests.cli.forked import disavow
from tests.flower.network import EXAMPLES, Network, make_node_key, wait_until

pytestmark = [pytest.mark.flower, pytest.mark.kill, pytest.mark.timeout(900)]

NODES, K, X = 7, 3, 2
HELD_OUT = 297
"""As few as can lose a leaver, one more and a dead node: every message starts a process on a node. The digits from
HELD_OUT on are the nodes', see the example.
"""
PATIENCE = 400.0
"""Seconds far beyond what anything here takes; only a test that has failed waits so long."""


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    made = disavow("keygen", "--no-passphrase")
    assert made.returncode == 0, made.stderr
    started = Network(tmp_path / "network")
    try:
        started.start_superlink()
        yield started
    finally:
        started.stop()


def client_of(key: Path) -> str:
    """The id that the run gives to the node with this key: what `ssh-keygen -l` prints of it."""
    from cryptography.hazmat.primitives import serialization

    public = serialization.load_ssh_public_key(key.with_suffix(".pub").read_bytes())
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    known = fingerprint(pem)
    assert known is not None
    return known


def start_nodes(network: Network, folder: Path) -> dict[str, str]:
    """Register and start the SuperNodes; client id to the name of its process."""
    keys = {f"node-{i}": make_node_key(folder / f"node-{i}") for i in range(NODES)}
    with ThreadPoolExecutor(4) as pool:
        publics = [key.with_suffix(".pub") for key in keys.values()]
        list(pool.map(lambda public: network.flwr("supernode", "register", public, "here"), publics))
    for i, (name, key) in enumerate(keys.items()):
        evidence = folder / f"{name}.evidence"
        node_config = f'partition-id={i} num-partitions={NODES} evidence-dir="{evidence}" node-key="{key}"'
        network.start_supernode(name, key, node_config)
    return {client_of(key): name for name, key in keys.items()}


class Story:
    """The run as it looks from outside: through its ledger, the command line and Flower's log."""

    def __init__(self, network: Network, run: Path) -> None:
        self.network, self.run, self.number = network, run, ""

    def start(self, **config: object) -> None:
        self.number = self.network.run(
            EXAMPLES / "flower-digits",
            ledger=self.run,
            k=K,
            x=X,
            fraction_evaluate=0.0,
            local_epochs=2,
            **config,
        )

    def standing(self) -> int:
        if not (self.run / "ledger.sqlite3").exists():
            return 0
        with Ledger.open(self.run) as ledger:
            return ledger.last_round

    def wait_for(self, rounds: int) -> None:
        wait_until(lambda: self.standing() >= rounds, f"round {rounds}", seconds=PATIENCE, log=self.log)

    def ask(self, *leavers: str) -> None:
        """Ask in another process, while the server app holds the run: the request is placed, and waits for it."""
        placed = disavow("erase", self.run, *leavers, "--yes", "--wait", "0")
        assert placed.returncode == 4, placed.stdout + placed.stderr
        assert "flwr-serverapp" in placed.stderr
        assert "The request is placed" in placed.stderr

    def state_of(self, number: int) -> tuple[RequestState, VerdictKind | None]:
        with Ledger.open(self.run) as ledger:
            [request] = ledger.requests([number])
        return request.state, None if request.verdict is None else request.verdict.kind

    def wait_for_state(self, number: int, state: RequestState, verdict: VerdictKind) -> None:
        wait_until(
            lambda: self.state_of(number) == (state, verdict),
            f"request {number} {state}",
            seconds=PATIENCE,
            log=self.log,
        )

    def finished(self) -> bool:
        return self.network.status(self.number).startswith("finished")

    def log(self) -> str:
        return self.network.said(self.number) + self.network.log("superlink")[-3000:]

    def kill_server_app(self) -> None:
        """The process that holds the run says who it is in the run's lock."""
        os.kill(json.loads((self.run / "lock").read_text())["pid"], signal.SIGKILL)


def ask_for_a_digit(folder: Path, name: str) -> None:
    """Ask on a node that one of its digits be erased."""
    digit = f"digit-{HELD_OUT + int(name.removeprefix('node-'))}"
    result = disavow("ask", folder / f"{name}.evidence", "--record", digit, "--key", folder / name)
    assert result.returncode == 0, result.stderr


def check_record(story: Story, folder: Path, number: int) -> None:
    """The node that stays has its own proof, and its word that the digit is removed is in the renewed one."""
    [evidence] = folder.iterdir()
    [answer] = (evidence / "requests").glob("*.answer.txt")
    assert answer.read_text().startswith(f"request {number}: answered, deniable")
    assert (evidence / f"request-{number}" / "verification.txt").read_text().startswith("the proof holds")
    assert not (evidence / "complaints.txt").exists(), (evidence / "complaints.txt").read_text()
    renewed = folder.with_name("renewed.json")
    made = disavow("prove", story.run, "--request", str(number), "-o", renewed)
    assert made.returncode == 0, made.stdout + made.stderr
    [word] = (evidence / "words").iterdir()
    checked = disavow(
        "verify",
        renewed,
        *("--key", evidence / "server.pub", "--word", word),
        *("--opening", evidence / f"request-{number}" / "opening.json"),
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_clients_leave_a_node_dies_the_server_is_killed_and_every_promise_is_kept(
    network: Network, tmp_path: Path
) -> None:
    names = start_nodes(network, tmp_path)
    story = Story(network, tmp_path / "run")

    # a run that would never end by itself: what happens does not depend on who is faster
    story.start(num_server_rounds=99, min_available_nodes=NODES)
    story.wait_for(1)
    with Ledger.open(story.run) as ledger:
        assert set(ledger.clients()) == set(names)
        smallest = min(ledger.membership(1), key=len)
    assert len(smallest) == K < NODES - K

    # deniable: asked by another process while the server app holds the run
    first, *others = smallest
    story.ask(first)
    story.wait_for_state(1, RequestState.ANSWERED, VerdictKind.DENIABLE)

    # a node dies: rounds close with those who answer
    dead = next(client for client in names if client not in smallest)
    network.kill(names[dead])

    # rollback: so many leave that their cluster of round 1 runs short; the server app dies while it retrains
    leavers = others[: len(smallest) - X]
    story.ask(*leavers)
    story.wait_for_state(2, RequestState.REBUILDING, VerdictKind.ROLLBACK)
    story.kill_server_app()
    assert story.state_of(2)[0] is RequestState.REBUILDING

    # meanwhile a node asks for itself that one of its digits be erased, and nobody asks on the server
    staying = next(client for client in names if client not in {first, *leavers, dead})
    ask_for_a_digit(tmp_path, names[staying])

    # started again, it completes the erasure, and goes on where the ledger stands
    with Ledger.open(story.run) as ledger:
        target = max(summary.number for summary in ledger.summaries())
    story.start(num_server_rounds=target + 1, min_available_nodes=K)
    # its lock is empty once it has let go of the run
    wait_until(
        lambda: story.standing() > target and not (story.run / "lock").read_text(),
        "the end",
        seconds=PATIENCE,
        log=story.log,
    )
    wait_until(story.finished, "Flower's own end", seconds=PATIENCE, every=4.0, log=story.log)
    said = story.log()
    assert story.network.status(story.number) == "finished:completed", said
    assert story.standing() == target + 1

    with Ledger.open(story.run) as ledger:
        answered = ledger.requests()
        survivors = set(ledger.clients())
        last = ledger.membership(target + 1)
    assert [request.state for request in answered] == [RequestState.ANSWERED] * (2 + len(leavers)), said
    assert [request.records for request in answered] == [None] * (1 + len(leavers)) + [1], said
    # the clients trained from the seed in the message, so the retraining is the same to the last bit
    assert [request.remark for request in answered] == [""] * len(answered), said
    assert survivors == set(names) - {first, *leavers}
    assert {client for cluster in last for client in cluster} <= survivors - {dead}

    # proofs: verified by the leavers on their own nodes, with the receipts they kept, and by anybody else
    for number, leaver in enumerate([first, *leavers], start=1):
        [evidence] = (tmp_path / f"{names[leaver]}.evidence").iterdir()
        assert (evidence / "verification.txt").read_text().startswith("the proof holds"), leaver
        assert not (evidence / "complaints.txt").exists(), (evidence / "complaints.txt").read_text()
        checked = disavow(
            "verify",
            story.run / "proofs" / f"request-{number}.json",
            *("--key", evidence / "server.pub", "--opening", evidence / "opening.json"),
            *("--receipts", evidence / "receipts"),
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
    check_record(story, tmp_path / f"{names[staying]}.evidence", len(answered))
    checked = disavow("fsck", story.run, *(word for leaver in (first, *leavers) for word in ("--absent", leaver)))
    assert checked.returncode == 0, checked.stdout + checked.stderr
