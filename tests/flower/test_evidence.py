"""Receipts, the server's key and the proof reach the client, and a client checks what it gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from disavow.flower.client import answer, evidence_mod
from disavow.flower.evidence import Evidence
from disavow.flower.node_keys import fingerprint
from disavow.flower.protocol import CLIENT, KEY_PREFIX, NUMBER_PREFIX, OPENING, PROOF, PUBLIC_KEY, RECEIPT, RUN
from disavow.ledger import Ledger
from disavow.proof.keys import generate, load_signer
from disavow.proof.notes import KeyIndex
from disavow.proof.receipt import check_receipt, decode_receipt
from tests.flower.builders import initial_arrays, learner, make_grid, placing, strategy
from tests.flower.loopback import LoopbackGrid, Node

pytestmark = pytest.mark.flower


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operator") / "keys"
    generate(folder, name="fl.example.org", passphrase=None, at="2024-05-06T07:08:09.000000+00:00")
    return folder


@pytest.fixture(scope="module")
def erased(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> tuple[LoopbackGrid, Path]:
    """Three rounds of eight clients who keep their evidence in folders; after the second, c5 leaves.

    In a simulation, whose nodes the server itself runs: there it hands over openings. Nobody changes it.
    """
    folder = tmp_path_factory.mktemp("erased")
    grid, run = make_grid(8), folder / "run"
    for node in grid.nodes.values():
        node.config = {**node.config, "evidence-dir": str(folder / "evidence" / node.config["client-id"])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISAVOW_KEYS", str(keys))
        strategy(run, identity="auto").start(
            grid=grid,
            initial_arrays=initial_arrays(),
            num_rounds=3,
            timeout=2.0,
            evaluate_fn=placing(run, {2: ["c5"]}),
        )
    return grid, folder


def evidence_of(folder: Path, client: str) -> Path:
    [found] = (folder / "evidence" / client).iterdir()
    return found


def test_the_train_message_brings_the_key_and_the_receipt_of_the_round_before(
    erased: tuple[LoopbackGrid, Path], keys: Path
) -> None:
    grid, _ = erased
    signer = load_signer(keys)
    assert signer is not None
    sent = [m.content["config"] for m in grid.nodes[1].received if m.metadata.message_type == "train"]
    assert [config.get(PUBLIC_KEY) for config in sent] == [str(signer.public)] * 3
    assert RECEIPT not in sent[0]
    for number, config in enumerate(sent[1:], start=1):
        receipt = decode_receipt(config[RECEIPT])
        check_receipt(receipt, KeyIndex([signer.public]))
        assert (receipt.client, receipt.header.number) == ("c1", number)


def test_a_client_keeps_its_receipts_the_last_one_too(erased: tuple[LoopbackGrid, Path]) -> None:
    kept = sorted(path.name for path in (evidence_of(erased[1], "c1") / "receipts").iterdir())
    assert [name.partition("-leaf")[0] for name in kept] == [f"round-{n}-attempt-1" for n in (1, 2, 3)]
    assert not (evidence_of(erased[1], "c1") / "complaints.txt").exists()


def test_the_leaver_verifies_its_own_proof_with_the_receipts_it_kept(erased: tuple[LoopbackGrid, Path]) -> None:
    kept = evidence_of(erased[1], "c5")
    verification = (kept / "verification.txt").read_text()
    assert verification.startswith("the proof holds\n")
    assert "receipts: " in verification
    assert "opening: " in verification


def test_a_proof_is_handed_over_once(erased: tuple[LoopbackGrid, Path]) -> None:
    messages = [message for message in erased[0].nodes[5].received if "proof" in message.content.get("disavow", {})]
    assert len(messages) == 1


def test_an_opening_is_not_given_to_who_only_claims_to_be_the_leaver(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(keys))
    grid, run = make_grid(8), tmp_path / "run"
    strategy(run, identity="client-id").start(
        grid=grid, initial_arrays=initial_arrays(), num_rounds=3, timeout=2.0, evaluate_fn=placing(run, {2: ["c5"]})
    )
    with Ledger.open(run) as ledger:
        assert "c5" not in ledger.clients()
    assert [m for m in grid.nodes[5].received if "proof" in m.content.get("disavow", {})] == []


def test_without_a_signing_key_there_are_no_receipts_and_training_goes_on(tmp_path: Path) -> None:
    grid = make_grid(5)
    strategy(tmp_path / "run", keys=tmp_path / "none").start(
        grid=grid, initial_arrays=initial_arrays(), num_rounds=2, timeout=2.0
    )
    sent = [m.content["config"] for m in grid.nodes[1].received if m.metadata.message_type == "train"]
    assert [set(config) & {PUBLIC_KEY, RECEIPT} for config in sent] == [set(), set()]


# -- what a client does not accept -------------------------------------------------------------------------


@pytest.fixture
def train_config(erased: tuple[LoopbackGrid, Path]) -> ConfigRecord:
    """The config of a train message with a good receipt."""
    sent = [m.content["config"] for m in erased[0].nodes[1].received if m.metadata.message_type == "train"]
    return sent[2]


def kept_by(record: ConfigRecord, state: RecordDict | None = None) -> tuple[list[bytes], str]:
    """What a node that never saw this run keeps of a message: receipts, and complaints."""
    context = Context(1, 1, {}, RecordDict() if state is None else state, {})
    Evidence(context).take(record)
    complaints = context.state["disavow-evidence"].get(f"{record[RUN]}/complaints.txt", b"")
    return Evidence(context).receipts(record[RUN]), complaints.decode()


def test_a_good_receipt_is_kept_in_the_context_where_no_folder_is_named(train_config: ConfigRecord) -> None:
    assert kept_by(train_config) == ([train_config[RECEIPT]], "")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({RECEIPT: b"{}"}, "a receipt does not hold"),
        ({CLIENT: "c2"}, "for another client"),
    ],
)
def test_a_receipt_that_does_not_hold_is_a_complaint(
    train_config: ConfigRecord, change: dict[str, object], complaint: str
) -> None:
    receipts, complaints = kept_by(ConfigRecord({**train_config, **change}))
    assert receipts == []
    assert complaint in complaints


def test_another_server_key_is_a_complaint_and_not_believed(train_config: ConfigRecord, tmp_path: Path) -> None:
    generate(tmp_path / "other", name="evil.example.org", passphrase=None, at="2024-05-06T07:08:09.000000+00:00")
    other = load_signer(tmp_path / "other")
    assert other is not None
    state = RecordDict()
    kept_by(train_config, state)
    _, complaints = kept_by(ConfigRecord({**train_config, PUBLIC_KEY: str(other.public)}), state)
    assert "another key" in complaints


def test_a_message_of_anybody_else_is_none_of_its_business() -> None:
    node = Node(make_grid(1).nodes[1].app)
    context = Context(1, 1, dict(node.config), RecordDict(), {})
    Evidence(context).take(ConfigRecord({"lr": 0.1}))
    Evidence(context).take(ConfigRecord({RUN: "../../etc", CLIENT: "c1", PUBLIC_KEY: "x"}))
    assert dict(context.state["disavow-evidence"]) == {}


# -- what a server cannot make a node do -------------------------------------------------------------------


def deliver(node: Node, record: ConfigRecord, kind: str = "query.disavow") -> RecordDict:
    """What a node replies to a message with this record, as the server sees it."""
    content = RecordDict({"disavow": record})
    if kind == "train":
        content = RecordDict({"arrays": initial_arrays(), "config": record})
    [reply] = LoopbackGrid({1: node}).send_and_receive([Message(content, 1, kind)])
    assert reply.has_content(), reply.error.reason
    answered: RecordDict = reply.content
    return answered


RUN_ID = "0123456789abcdef" * 2


@pytest.mark.parametrize("run", ["{outside}", "../outside", "..", "outside", RUN_ID + "\n", RUN_ID.upper(), ""])
@pytest.mark.parametrize("kind", ["query.disavow", "train"])
@pytest.mark.parametrize("folder", [True, False])
def test_nothing_is_written_under_what_is_no_run_id(run: str, kind: str, folder: bool, tmp_path: Path) -> None:
    node = Node(learner(), {"evidence-dir": str(tmp_path / "evidence")} if folder else {})
    train_config = {
        RUN: run.format(outside=tmp_path / "outside"),
        CLIENT: "c1",
        PUBLIC_KEY: "k",
        PROOF: b"any",
        OPENING: b"any",
        RECEIPT: b"any",
        "disavow-seed": 1,
        "server-round": 1,
    }
    reply = deliver(node, ConfigRecord(train_config), kind)
    if kind != "train":
        assert reply["disavow"]["verified"] is False
    assert list(tmp_path.rglob("*")) == []
    assert node.context is not None
    assert dict(node.context.state["disavow-evidence"]) == {}


def test_a_folder_that_cannot_be_used_keeps_nobody_from_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    node = Node(learner(), {"evidence-dir": str(tmp_path / "file" / "evidence")})
    train_config = ConfigRecord({RUN: RUN_ID, CLIENT: "c1", PUBLIC_KEY: "k", "disavow-seed": 1, "server-round": 1})
    reply = deliver(node, train_config, "train")
    assert "arrays" in reply
    assert "disavow" not in reply  # no evidence is claimed
    assert "evidence cannot be kept" in caplog.text
    train_config = ConfigRecord({RUN: RUN_ID, CLIENT: "c1", PROOF: b"any", OPENING: b"any"})
    assert dict(deliver(node, train_config)["disavow"]) == {
        "verified": False,
        "reason": "this node cannot use its evidence-dir",
    }


@pytest.fixture
def handed(erased: tuple[LoopbackGrid, Path]) -> ConfigRecord:
    """The message with the proof of c5's erasure and its opening."""
    [sent] = [m.content["disavow"] for m in erased[0].nodes[5].received if PROOF in m.content.get("disavow", {})]
    return ConfigRecord(dict(sent))


@pytest.mark.parametrize("called", ["c4", "c5"])
def test_another_clients_proof_is_refused_by_who_kept_no_receipts(handed: ConfigRecord, called: str) -> None:
    handed[CLIENT] = called
    app = ClientApp()
    app.query("disavow")(answer)
    node = Node(app, {"client-id": "c4"})
    assert dict(deliver(node, handed)["disavow"]) == {
        "verified": False,
        "reason": "the opening is another client's",
    }


def test_another_clients_proof_is_refused_by_who_was_called_otherwise_in_training(
    handed: ConfigRecord, train_config: ConfigRecord
) -> None:
    node = Node(learner(), {})
    deliver(node, ConfigRecord({key: v for key, v in train_config.items() if key != RECEIPT}), "train")  # it is c1
    assert dict(deliver(node, handed)["disavow"]) == {
        "verified": False,
        "reason": "the opening is another client's",
    }


@pytest.mark.parametrize(
    ("config", "remark"),
    [({"client-id": "c5"}, "this node keeps none"), ({}, "does not know under which id it took part")],
)
def test_a_proof_that_no_receipt_was_compared_with_is_reported_as_that(
    handed: ConfigRecord, config: dict[str, str], remark: str, tmp_path: Path
) -> None:
    node = Node(learner(), {**config, "evidence-dir": str(tmp_path / "late")})
    reply = deliver(node, handed)["disavow"]
    assert reply["verified"] is True
    assert reply["reason"].startswith("not checked against receipts: ")
    assert reply["reason"].endswith(remark)
    [kept] = (tmp_path / "late").rglob("verification.txt")
    assert reply["reason"] in kept.read_text().splitlines()


def test_an_id_that_the_server_gives_is_not_measured_by_the_node_config(tmp_path: Path) -> None:
    key = generate_private_key(SECP384R1()).public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert (fingerprint(pem) or "").startswith(KEY_PREFIX)
    app = ClientApp()  # does not say who its nodes are

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        content = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 10})}
        return Message(RecordDict(content), reply_to=message)

    made = strategy(tmp_path / "run", identity="auto")
    made.start(grid=make_grid(3, app), initial_arrays=initial_arrays(), num_rounds=1, timeout=2.0)
    with Ledger.open(tmp_path / "run") as ledger:
        assert [client for client in ledger.clients() if not client.startswith(NUMBER_PREFIX)] == []
        assert len(ledger.clients()) == 3


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_receipts_hold_whatever_the_models_numbers_are(
    dtype: type[np.floating], keys: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(keys))
    app = ClientApp(mods=[evidence_mod])
    app.query("disavow")(answer)

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        stream = np.random.default_rng(message.content["config"]["disavow-seed"])
        start = message.content["arrays"]["w"].numpy()
        arrays = ArrayRecord({"w": Array((start + 0.1 * stream.standard_normal(start.shape)).astype(dtype))})
        return Message(
            RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})}), reply_to=message
        )

    grid = make_grid(6, app)
    first = ArrayRecord({"w": Array(np.linspace(-1, 1, 10).astype(dtype))})
    strategy(tmp_path / "run").start(grid=grid, initial_arrays=first, num_rounds=3, timeout=2.0)
    for node in grid.nodes.values():
        assert node.context is not None
        names = [name.partition("/")[2] for name in node.context.state["disavow-evidence"]]
        assert sum(name.startswith("receipts/") for name in names) == 3
        assert "complaints.txt" not in names
