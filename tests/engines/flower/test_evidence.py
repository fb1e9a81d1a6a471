"""Receipts, the server's key and the proof reach the client, and a client checks what it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, RecordDict

from disavow.engines.flower.evidence import Evidence
from disavow.engines.flower.names import CLIENT, PUBLIC_KEY, RECEIPT, RUN
from disavow.ledger import Ledger
from disavow.proof.keys import generate, load_signer
from disavow.proof.receipt import check_receipt, read_receipt
from tests.engines.flower.farm import farm, initial_arrays, placing, strategy
from tests.engines.flower.loopback import LoopbackGrid, Node

pytestmark = pytest.mark.flower


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    generate(tmp_path / "keys", name="fl.example.org", passphrase=None, at="2024-05-06T07:08:09.000000+00:00")
    return tmp_path / "keys"


@pytest.fixture
def erased(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[LoopbackGrid, Path]:
    """Three rounds of eight clients who keep their evidence in folders; after the second, c5 leaves.

    In a simulation, whose nodes the server itself runs: there it hands over openings.
    """
    monkeypatch.setenv("DISAVOW_KEYS", str(keys))
    grid, run = farm(8), tmp_path / "run"
    for node in grid.nodes.values():
        node.config = {**node.config, "evidence-dir": str(tmp_path / "evidence" / node.config["client-id"])}
    made = strategy(run, identity="auto")
    made.start(
        grid=grid,
        initial_arrays=initial_arrays(),
        num_rounds=3,
        timeout=2.0,
        evaluate_fn=placing(run, {2: ["c5"]}),
    )
    return grid, tmp_path


def evidence_of(folder: Path, client: str) -> Path:
    [found] = (folder / "evidence" / client).iterdir()
    return found


def test_the_train_message_brings_the_key_and_the_receipt_of_the_round_before(
    erased: tuple[LoopbackGrid, Path], keys: Path
) -> None:
    grid, _ = erased
    signer = load_signer(keys)
    assert signer is not None
    sent = [m.content["config"] for m in grid.nodes[1].asked if m.metadata.message_type == "train"]
    assert [config.get(PUBLIC_KEY) for config in sent] == [str(signer.public)] * 3
    assert RECEIPT not in sent[0]
    for number, config in enumerate(sent[1:], start=1):
        receipt = check_receipt(read_receipt(config[RECEIPT]), [signer.public])
        assert (receipt.client, receipt.header["number"]) == ("c1", number)


def test_a_client_keeps_its_receipts_the_last_one_too(erased: tuple[LoopbackGrid, Path]) -> None:
    kept = sorted(path.name for path in (evidence_of(erased[1], "c1") / "receipts").iterdir())
    assert [name.partition("-leaf")[0] for name in kept] == ["round-1", "round-2", "round-3"]
    assert not (evidence_of(erased[1], "c1") / "complaints.txt").exists()


def test_the_leaver_verifies_its_own_proof_with_the_receipts_it_kept(erased: tuple[LoopbackGrid, Path]) -> None:
    kept = evidence_of(erased[1], "c5")
    told = (kept / "verification.txt").read_text()
    assert told.startswith("the proof holds\n")
    assert "receipts: " in told
    assert "opening: " in told


def test_a_proof_is_handed_over_once(erased: tuple[LoopbackGrid, Path]) -> None:
    asked = [message for message in erased[0].nodes[5].asked if "proof" in message.content.get("disavow", {})]
    assert len(asked) == 1


def test_an_opening_is_not_given_to_who_only_claims_to_be_the_leaver(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(keys))
    grid, run = farm(8), tmp_path / "run"
    strategy(run, identity="client-id").start(
        grid=grid, initial_arrays=initial_arrays(), num_rounds=3, timeout=2.0, evaluate_fn=placing(run, {2: ["c5"]})
    )
    with Ledger.open(run) as ledger:
        assert "c5" not in ledger.clients()
    assert [m for m in grid.nodes[5].asked if "proof" in m.content.get("disavow", {})] == []


def test_without_a_signing_key_there_are_no_receipts_and_training_goes_on(tmp_path: Path) -> None:
    grid = farm(5)
    strategy(tmp_path / "run", keys=tmp_path / "none").start(
        grid=grid, initial_arrays=initial_arrays(), num_rounds=2, timeout=2.0
    )
    sent = [m.content["config"] for m in grid.nodes[1].asked if m.metadata.message_type == "train"]
    assert [set(config) & {PUBLIC_KEY, RECEIPT} for config in sent] == [set(), set()]


# -- what a client does not accept -------------------------------------------------------------------------


@pytest.fixture
def letter(erased: tuple[LoopbackGrid, Path]) -> ConfigRecord:
    """The config of a train message with a good receipt."""
    sent = [m.content["config"] for m in erased[0].nodes[1].asked if m.metadata.message_type == "train"]
    return sent[2]


def kept_by(told: ConfigRecord, state: RecordDict | None = None) -> tuple[list[bytes], str]:
    """What a node that never saw this run keeps of a message: receipts, and complaints."""
    context = Context(1, 1, {}, RecordDict() if state is None else state, {})
    Evidence.of(context).take(told)
    complaints = context.state["disavow-evidence"].get(f"{told[RUN]}/complaints.txt", b"")
    return Evidence.of(context).receipts(told[RUN]), complaints.decode()


def test_a_good_receipt_is_kept_in_the_context_where_no_folder_is_named(letter: ConfigRecord) -> None:
    assert kept_by(letter) == ([letter[RECEIPT]], "")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({RECEIPT: b"{}"}, "a receipt does not hold"),
        ({CLIENT: "c2"}, "for another client"),
    ],
)
def test_a_receipt_that_does_not_hold_is_a_complaint(
    letter: ConfigRecord, change: dict[str, object], complaint: str
) -> None:
    receipts, complaints = kept_by(ConfigRecord({**letter, **change}))
    assert receipts == []
    assert complaint in complaints


def test_another_server_key_is_a_complaint_and_not_believed(letter: ConfigRecord, tmp_path: Path) -> None:
    generate(tmp_path / "other", name="evil.example.org", passphrase=None, at="2024-05-06T07:08:09.000000+00:00")
    other = load_signer(tmp_path / "other")
    assert other is not None
    state = RecordDict()
    kept_by(letter, state)
    _, complaints = kept_by(ConfigRecord({**letter, PUBLIC_KEY: str(other.public)}), state)
    assert "another key" in complaints


def test_a_receipt_for_an_update_that_was_never_returned_is_a_complaint(letter: ConfigRecord) -> None:
    state = RecordDict({"disavow-evidence": ConfigRecord({f"{letter[RUN]}/updates.txt": b"00" * 32 + b"\n"})})
    receipts, complaints = kept_by(letter, state)
    assert receipts == []
    assert "did not return" in complaints


def test_a_message_of_anybody_else_is_none_of_its_business() -> None:
    node = Node(farm(1).nodes[1].app)
    context = Context(1, 1, dict(node.config), RecordDict(), {})
    Evidence.of(context).take(ConfigRecord({"lr": 0.1}))
    Evidence.of(context).take(ConfigRecord({RUN: "../../etc", CLIENT: "c1", PUBLIC_KEY: "x"}))
    assert dict(context.state["disavow-evidence"]) == {}
