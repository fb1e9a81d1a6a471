"""Runs whose heads witnesses cosign: with all of them there, one away, one late, one that saw another log."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow import config
from disavow.cosigning import Cosigner
from disavow.errors import ConfigError
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, log
from disavow.ledger.schema import cosignatures
from disavow.ledger.schema import log as log_table
from disavow.proof.cosignatures import WitnessSigner
from disavow.proof.keys import generate, load_signer
from disavow.proof.leaves import RoundLeaf, decode_leaf
from disavow.proof.merkle import appended
from disavow.proof.notes import Signer, read_note
from disavow.run_checks import check_run
from disavow.server import views
from disavow.witness.answers import Answer, KnownLog, Witness
from disavow.witness.heads import SeenHeads
from tests.cli.process import disavow
from tests.refusals import refuses
from tests.witness.logs import Serving, process, served

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "data": {"clients": 8},
    "model": {"name": "convnet"},
    "training": {"epochs": 1, "batch_size": 64},
    "clustering": {"k": 4},
    "deniability": {"x": 1},
    "engine": {"name": "sequential"},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run of two rounds that no witness has seen."""
    folder = tmp_path_factory.mktemp("witnesses")
    generate(folder / "keys", name="fl.example.org", passphrase=None, at="2026-01-01T00:00:00.000000+00:00")
    settings = config.from_values(SETTINGS, source="tests")
    with Federation.create(folder / "run", settings, keys=folder / "keys") as federation:
        federation.train()
    return folder


def copied(folder: Path, target: Path) -> Path:
    """The run and its keys, as somebody who holds both can copy them."""
    for name in ("run", "keys"):
        shutil.copytree(folder / name, target / name)
    return target


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return copied(trained, tmp_path / "server")


def with_witnesses(folder: Path, witnesses: Sequence[Serving], **more: Any) -> None:
    """Name witnesses in the settings of a run, as its operator may at any time."""
    path = folder / "run" / "config.toml"
    values = {"servers": [each.setting for each in witnesses], "timeout": 20.0, **more}
    settings = config.load(path).model_copy(update={"witness": config.WitnessSettings.model_validate(values)})
    path.write_text(config.to_toml(settings), encoding="utf-8")


@pytest.fixture
def serve(folder: Path, tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """Start a witness of the run's server under a name; again with a port, to go on where it ended."""
    with ExitStack() as stack:

        def start(name: str, *, kind: type[Witness] = Witness) -> Serving:
            heads = SeenHeads(tmp_path / name)
            stack.callback(heads.close)
            return stack.enter_context(served(kind(signer(name), heads, [known(folder)])))

        yield start


def signer(name: str) -> WitnessSigner:
    return WitnessSigner(f"{name}.example.net", Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32)))


def known(folder: Path) -> KnownLog:
    return KnownLog.parse(f"disavow/run/*={folder / 'keys' / 'signing.pub'}")


def opened(folder: Path) -> Federation:
    return Federation.open(folder / "run", keys=folder / "keys")


def train(folder: Path, rounds: int) -> list[str]:
    """Train until so many rounds stand; what is not as it should be."""
    notes: list[str] = []
    with opened(folder) as federation:
        federation.train(Callbacks(on_note=notes.append), rounds=rounds)
    return notes


def cosigned_by(folder: Path) -> list[str]:
    with opened(folder) as federation:
        standing = federation.cosigned()
    return [] if standing is None else list(standing.by)


# -- all of them are there ----------------------------------------------------------------------------------------


def test_heads_are_cosigned_and_proofs_and_checkpoints_carry_it(
    folder: Path, serve: Callable[..., Serving], tmp_path: Path
) -> None:
    witnesses = [serve("one"), serve("two")]
    with_witnesses(folder, witnesses)
    assert train(folder, 3) == []
    with opened(folder) as federation:
        status = federation.status().to_json()
        assert status["cosigned"]["enough"]
        assert status["cosigned"]["by"] == ["one.example.net", "two.example.net"]
        note = read_note(federation.signed_head(), "the head", cosigned=True)
        assert len(note.signatures) == 3
        assert views.checkpoint("run", federation)["checkpoint"] == federation.signed_head()
        [request] = federation.erase(["client-03"]).requests.values()
        proof = federation.proof(request)
        assert not proof.renewed
    (tmp_path / "proof.json").write_bytes(proof.data)
    third = str(signer("three").public)
    keys = [argument for each in witnesses for argument in ("--witness", str(each.key))]
    command: tuple[str | Path, ...] = (
        "verify",
        tmp_path / "proof.json",
        "--key",
        folder / "keys" / "signing.pub",
        "--json",
        *keys,
    )
    assert _checked(*command) == (3, True)
    assert _checked(*command, "--witness", third) == (1, False)
    assert _checked(*command, "--witness", third, "--quorum", "2") == (3, True)
    assert disavow(*command, "--quorum", "3").returncode == ConfigError.exit_code
    assert check_run(folder / "run", keys=folder / "keys") == []


def _checked(*command: str | Path) -> tuple[int, bool | None]:
    """The exit code, and what became of check 18."""
    ended = disavow(*command)
    [check] = [each for each in json.loads(ended.stdout)["checks"] if each["name"] == "witnesses"]
    assert check["number"] == 18
    return ended.returncode, check["passed"]


def test_a_proof_is_renewed_once_more_witnesses_have_cosigned_its_head(
    folder: Path, serve: Callable[..., Serving]
) -> None:
    with opened(folder) as federation:
        [request] = federation.erase(["client-03"]).requests.values()
        first = federation.proof(request)
    with_witnesses(folder, [serve("one")])
    train(folder, 2)
    with opened(folder) as federation:
        renewed = federation.proof(request)
    assert (first.renewed, renewed.renewed, renewed.as_of) == (False, True, first.as_of)
    assert len(renewed.data) - len(first.data) < 400


# -- one of them is not -------------------------------------------------------------------------------------------


def test_a_witness_that_is_away_is_told_of_once_and_caught_up_with(
    folder: Path, serve: Callable[..., Serving], tmp_path: Path
) -> None:
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    away = Serving(f"http://127.0.0.1:{port}", signer("two").public)
    with_witnesses(folder, [serve("one"), away])
    [note] = train(folder, 4)
    assert "two.example.net" in note
    assert cosigned_by(folder) == ["one.example.net"]
    with opened(folder) as federation:
        assert not federation.status().to_json()["cosigned"]["enough"]
    heads = SeenHeads(tmp_path / "two")
    with served(Witness(signer("two"), heads, [known(folder)]), port=port):
        assert train(folder, 4) == []  # there is nothing to train, and still a head to cosign
        assert cosigned_by(folder) == ["one.example.net", "two.example.net"]
        assert train(folder, 5) == []
    heads.close()


def test_it_is_told_that_all_is_well_again(folder: Path, serve: Callable[..., Serving]) -> None:
    serving, notes = serve("one"), list[str]()
    with_witnesses(folder, [serving])
    with Ledger.open(folder / "run", write=True, signer=_signer_of(folder), keys=folder / "keys") as ledger:
        cosigner = Cosigner(config.load(folder / "run" / "config.toml").witness, notes.append)
        url, cosigner._witnesses[0].url = serving.url, "http://127.0.0.1:9"
        cosigner.cosign(ledger)
        cosigner.cosign(ledger, proving=True)
        assert len(notes) == 1
        cosigner._witnesses[0].url = url
        cosigner.cosign(ledger)  # it is left alone for a while
        assert len(notes) == 1
        cosigner.cosign(ledger, proving=True)
        assert len(notes) == 2
        cosigner.close()


class Late(Witness):
    """Answers once it is allowed to."""

    allowed = threading.Event()
    answered = threading.Event()

    def add_checkpoint(self, body: bytes) -> Answer:
        self.allowed.wait(60)
        answer = super().add_checkpoint(body)
        self.answered.set()
        return answer


def test_nobody_waits_longer_than_is_set_and_what_comes_late_is_kept(
    folder: Path, serve: Callable[..., Serving]
) -> None:
    with_witnesses(folder, [serve("one"), serve("two", kind=Late)], timeout=0.3, quorum=1)
    settings, notes = config.load(folder / "run" / "config.toml").witness, list[str]()
    with Ledger.open(folder / "run", write=True, signer=_signer_of(folder), keys=folder / "keys") as ledger:
        cosigner = Cosigner(settings, notes.append)
        cosigner.cosign(ledger)  # or else this never ends
        while not lines_in(ledger):  # where even 0.3 seconds are too short
            cosigner.cosign(ledger, proving=True)
        assert "two.example.net" in notes[-1]
        Late.allowed.set()
        assert Late.answered.wait(60)
        while len(lines_in(ledger)) < 2:  # the answer is on its way
            cosigner.cosign(ledger, proving=True)
        cosigner.close()


def lines_in(ledger: Ledger) -> list[str]:
    head = ledger.cosigned_head()
    return [] if head is None else list(head.lines)


def _signer_of(folder: Path) -> Signer | None:
    return load_signer(folder / "keys")


def test_a_cosignature_that_was_lost_in_a_crash_is_asked_for_again(
    folder: Path, serve: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = serve("one")
    with_witnesses(folder, [serving])

    def killed(self: Ledger, size: int, lines: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "note_cosignatures", killed)
        with pytest.raises(KeyboardInterrupt):
            train(folder, 3)
    assert train(folder, 3) == []
    assert cosigned_by(folder) == ["one.example.net"]
    with opened(folder) as federation, federation.ledger._connect() as connection:
        rows = connection.execute(sa.select(cosignatures.c.position)).scalars().all()
    assert len(rows) == len(set(rows))


def test_without_a_key_nothing_is_cosigned_and_that_is_said(tmp_path: Path) -> None:
    witness = {"servers": [{"url": "http://127.0.0.1:9", "key": str(signer("one").public)}]}
    settings = config.from_values({**SETTINGS, "rounds": 1, "witness": witness}, source="tests")
    notes: list[str] = []
    with Federation.create(tmp_path / "run", settings, keys=tmp_path / "keys") as federation:
        federation.train(Callbacks(on_note=notes.append))
        assert federation.cosigned() is None
    assert len(notes) == 1


# -- a server that holds its own key, and lies ---------------------------------------------------------------------


@contextmanager
def writing(folder: Path) -> Iterator[sa.Connection]:
    """Change whatever somebody who holds the run can change."""
    with (
        Ledger.open(folder / "run", write=True, signer=_signer_of(folder), keys=folder / "keys") as ledger,
        ledger._begin() as connection,
    ):
        yield connection


def forget_cosignatures(folder: Path) -> None:
    """Make a run ask for a cosignature of its head again."""
    with writing(folder) as connection:
        connection.execute(cosignatures.delete())


def rewrite_round(folder: Path, place: int) -> None:
    """Change what a leaf of the log says, and make everything behind it fit, the signature of the head too."""
    with Ledger.open(folder / "run", write=True, signer=_signer_of(folder), keys=folder / "keys") as ledger:
        assert ledger.signer is not None
        with ledger._begin() as connection:
            rows = connection.execute(sa.select(log_table).order_by(log_table.c.position)).all()
            frontier: list[bytes] = []
            for row in rows:
                leaf = decode_leaf(row.leaf.encode(), "a leaf")
                if row.position == place:
                    assert isinstance(leaf, RoundLeaf)
                    leaf = replace(leaf, update_norm=leaf.update_norm / 2)
                frontier = appended(frontier, row.position, leaf.hash)
                values = {"leaf": leaf.encode().decode(), "hash": leaf.hash, "frontier": b"".join(frontier)}
                connection.execute(log_table.update().where(log_table.c.position == row.position).values(values))
            connection.execute(cosignatures.delete())
            log.sign_head(connection, ledger.run_id, ledger.signer)


def test_a_fork_a_truncation_and_a_rewritten_round_are_refused(folder: Path, tmp_path: Path) -> None:
    with process(tmp_path / "witness", str(folder / "keys" / "signing.pub")) as (serving, _):
        with_witnesses(folder, [serving])
        assert train(folder, 3) == []
        before = copied(folder, tmp_path / "before")
        assert train(folder, 4) == []
        honest = copied(folder, tmp_path / "honest")

        cut = copied(before, tmp_path / "cut")  # an older copy: all that came since is cut off
        forget_cosignatures(cut)
        _refused(train(cut, 3))
        _refused(train(copied(before, tmp_path / "fork"), 4))  # the same size, another round 4
        _refused(train(tmp_path / "fork", 5))  # and longer
        rewritten = copied(folder, tmp_path / "rewritten")
        rewrite_round(rewritten, place=2)
        _refused(train(rewritten, 4))
        _refused(train(rewritten, 5))

        assert train(honest, 5) == []  # the true history goes on
        assert cosigned_by(honest) == ["witness.example.net"]


def _refused(notes: Sequence[str]) -> None:
    assert len(notes) == 1
    assert "refuses" in notes[0]


# -- what the ledger keeps -----------------------------------------------------------------------------------------


def test_fsck_finds_a_cosignature_that_is_none(folder: Path, serve: Callable[..., Serving]) -> None:
    serving = serve("one")
    with_witnesses(folder, [serving])
    train(folder, 2)
    with writing(folder) as connection:
        [last] = connection.execute(sa.select(sa.func.max(cosignatures.c.position))).scalars()
        connection.execute(cosignatures.update().values(position=last - 1))
    findings = [found.what for found in check_run(folder / "run", keys=folder / "keys")]
    assert len(findings) == 1
    assert "one.example.net" in findings[0]


def test_keys_of_witnesses_are_checked_before_a_run_uses_them(folder: Path) -> None:
    wrong = str(signer("one").public)[:-1] + "A"
    with_witnesses(folder, [])
    path = folder / "run" / "config.toml"
    witness = config.WitnessSettings.model_validate({"servers": [{"url": "http://127.0.0.1:9", "key": wrong}]})
    path.write_text(config.to_toml(config.load(path).model_copy(update={"witness": witness})), encoding="utf-8")
    with opened(folder) as federation, refuses(ConfigError, "witness.servers"):
        federation.train()
