"""Whatever the other side says is escaped where a person reads it: in the log, in errors, in the evidence files."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from disavow.errors import RoundRefused
from disavow.flower.evidence import Evidence
from disavow.flower.protocol import ATTEMPT, CLIENT, OPENING, PROOF, PUBLIC_KEY, RECEIPT, RECORD, ROUND, RUN
from disavow.proof.keys import generate
from tests.flower.builders import initial_arrays, make_grid, placing, strategy
from tests.flower.loopback import Tamper
from tests.flower.test_evidence import RUN_ID

pytestmark = pytest.mark.flower

HOSTILE = "all is well\n\x1b[2J\u202e\r"


@pytest.fixture(autouse=True)
def _signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(tmp_path / "keys", name="fl.example.org", passphrase=None, at="2024-05-06T07:08:09.000000+00:00")
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)


def printable(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def failing(reply: Message) -> Message | None:
    """A node whose app fails at training, and says why in its own words."""
    if reply.has_content() and "arrays" not in reply.content:
        return reply
    failed = Message(Error(code=2, reason=HOSTILE), reply_to=reply)
    failed.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return failed


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What disavow has logged."""
    return [record.getMessage() for record in caplog.records if "disavow: " in record.getMessage()]


def test_why_a_node_failed_is_escaped_in_the_servers_log_and_in_its_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = make_grid(4)
    for number in (1, 2):
        grid.nodes[number].tamper = failing
    with pytest.raises(RoundRefused) as refused:
        strategy(tmp_path / "run").start(grid=grid, initial_arrays=initial_arrays(), num_rounds=1, timeout=0.2)
    assert str(refused.value).isprintable()
    assert "all is well\\n\\x1b" in str(refused.value)
    assert [line for line in said(caplog) if not line.isprintable()] == []
    assert any("all is well" in line for line in said(caplog))


def with_reason(*, verified: bool) -> Tamper:
    def tamper(reply: Message) -> Message | None:
        if reply.has_content() and "verified" in reply.content.get(RECORD, {}):
            reply.content[RECORD] = ConfigRecord({"verified": verified, "reason": HOSTILE})
        return reply

    return tamper


@pytest.mark.parametrize("verified", [True, False])
def test_what_a_node_says_of_its_proof_is_escaped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, verified: bool
) -> None:
    grid, run = make_grid(8), tmp_path / "run"
    grid.nodes[5].tamper = with_reason(verified=verified)
    strategy(run, identity="auto").start(
        grid=grid, initial_arrays=initial_arrays(), num_rounds=2, timeout=2.0, evaluate_fn=placing(run, {1: ["c5"]})
    )
    assert [line for line in said(caplog) if not line.isprintable()] == []
    assert any("all is well" in line for line in said(caplog))


def test_why_a_node_does_not_say_who_it_is_is_escaped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = make_grid(4)
    app = ClientApp()

    @app.query("disavow")  # type: ignore[untyped-decorator]
    def failing_answer(message: Message, context: Context) -> Message:
        raise RuntimeError(HOSTILE)

    grid.nodes[4].app = app
    strategy(tmp_path / "run").start(grid=grid, initial_arrays=initial_arrays(), num_rounds=1, timeout=0.2)
    assert any("all is well" in line for line in said(caplog))
    assert [line for line in said(caplog) if not line.isprintable()] == []


def test_what_a_server_says_is_escaped_on_the_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = Context(1, 1, {"evidence-dir": str(tmp_path / "evidence")}, RecordDict(), {})
    for client in (f"c1{HOSTILE}", f"c2{HOSTILE}"):
        fields = {RUN: RUN_ID, CLIENT: client, PUBLIC_KEY: HOSTILE + client, RECEIPT: HOSTILE.encode()}
        Evidence(context).take(ConfigRecord({**fields, ROUND: 1, ATTEMPT: 1}))
    Evidence(context).receive(ConfigRecord({RUN: RUN_ID, CLIENT: "c1", PROOF: b"{}", OPENING: HOSTILE.encode()}))
    kept = tmp_path / "evidence" / RUN_ID
    names = {"client.txt", "server.pub", "complaints.txt", "verification.txt"}
    assert names <= {path.name for path in kept.iterdir()}
    for name in names:
        assert printable((kept / name).read_text()), name
    complaints = (kept / "complaints.txt").read_text().splitlines()
    assert any("called this client c2all is well\\n\\x1b" in line for line in complaints)
    assert [line for line in said(caplog) if not line.isprintable()] == []


def test_an_id_that_is_not_printable_is_still_told_from_another(tmp_path: Path) -> None:
    context = Context(1, 1, {}, RecordDict(), {})
    fields = {RUN: RUN_ID, CLIENT: "c1\n", ROUND: 1, ATTEMPT: 1}
    for client in ("c1\n", "c1\n", "c1"):
        Evidence(context).take(ConfigRecord({**fields, CLIENT: client}))
    [complaint] = context.state["disavow-evidence"][f"{RUN_ID}/complaints.txt"].decode().splitlines()
    assert complaint.endswith("called this client c1")
