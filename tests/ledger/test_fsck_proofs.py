"""Whatever is kept as a proof holds, and is about its request; everything else among the proofs is found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.erasure.prove import prove_what_if, sign_late
from disavow.errors import Unreadable
from disavow.ledger import Ledger, fsck, log
from disavow.ledger.proofs import ProofStore
from disavow.proof import canonical
from disavow.proof.envelope import Envelope, seal
from disavow.proof.merkle import root_of
from disavow.proof.notes import Checkpoint, Signer, origin_of
from tests.erasure.mechanisms.contract import SIGNER, leave, mates, start_toy, toy_settings
from tests.ledger.making import change, files_of

STRANGER = Signer("somebody", Ed25519PrivateKey.from_private_bytes(bytes(reversed(range(32)))))

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with three answered requests each, one deniable and two with a rollback: signed, not signed, another."""
    folder = tmp_path_factory.mktemp("proofs")
    for name, signer in (("signed", SIGNER), ("unsigned", None), ("other", SIGNER)):
        with start_toy(folder / name, toy_settings(), signer=signer) as run:
            run.train()
            if name == "signed":
                sealed = prove_what_if(run.ledger, "client-01").sealed(SIGNER)
                (folder / "what-if.json").write_bytes(sealed)
            leave(run, "client-08")
            leave(run, *mates(run))
    return folder


@pytest.fixture
def signed(answered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(answered / "signed", tmp_path / "signed"))


@pytest.fixture
def unsigned(answered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(answered / "unsigned", tmp_path / "unsigned"))


def found(run: Path) -> list[tuple[str, bool]]:
    return [(finding.where, finding.fault) for finding in fsck(run)]


def test_proofs_as_they_are_made_are_clean(answered: Path) -> None:
    for name in ("signed", "unsigned"):
        before = files_of(answered / name)
        assert [str(finding) for finding in fsck(answered / name)] == []
        assert files_of(answered / name) == before
    # three that go with answers, and the second of the one whose last round another rollback undid
    assert [proof.purged for proof in ProofStore(answered / "signed").kept()].count(False) == 3


def rewritten(predicate: dict[str, object], path: Path, signer: Signer | None) -> None:
    """A statement with another predicate, signed anew."""
    data = path.read_bytes()
    statement = json.loads(Envelope.decode(data).statement if signer else data)
    statement["predicate"] |= predicate
    payload = canonical.encode(statement)
    path.write_bytes(seal(payload, signer) if signer else payload)


def signed_again(path: Path, signer: Signer) -> None:
    path.write_bytes(seal(Envelope.decode(path.read_bytes()).statement, signer))


def swapped(one: Path, two: Path) -> None:
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


FIRST, SECOND, THIRD = (f"request-{number}.json" for number in (1, 2, 3))
SIGNED: dict[str, tuple[Callable[[Path, Path], object], set[str]]] = {
    "no text": (lambda proofs, _: (proofs / FIRST).write_bytes(b"\xff\xfe garbage"), {FIRST}),
    "nothing": (lambda proofs, _: (proofs / FIRST).write_bytes(b""), {FIRST}),
    "cut short": (lambda proofs, _: (proofs / FIRST).write_bytes((proofs / FIRST).read_bytes()[:-1]), {FIRST}),
    "of other requests of one erasure": (lambda p, _: swapped(p / SECOND, p / THIRD), {SECOND, THIRD}),
    "of another erasure": (lambda p, _: swapped(p / FIRST, p / SECOND), {FIRST, SECOND}),
    "of another run": (lambda p, all_: shutil.copyfile(all_ / "other" / "proofs" / FIRST, p / FIRST), {FIRST}),
    "a what-if": (lambda p, all_: shutil.copyfile(all_ / "what-if.json", p / FIRST), {FIRST}),
    "signed by a stranger": (lambda p, _: signed_again(p / FIRST, STRANGER), {FIRST}),
    "another verdict": (
        lambda p, _: rewritten({"verdict": {"kind": "never present", "from": None}}, p / FIRST, SIGNER),
        {FIRST},
    ),
    "of nobody": (lambda p, _: shutil.copyfile(p / FIRST, p / "request-9.json"), {"request-9.json"}),
    "by another name": (lambda p, _: (p / "request-01.json").write_bytes(b"{}"), {"request-01.json"}),
    "notes": (lambda p, _: (p / "notes.txt").write_text("client-08"), {"notes.txt"}),
    "a folder": (lambda p, _: (p / "request-9.json").mkdir(), {"request-9.json"}),
    "a link": (lambda p, all_: (p / "request-9.json").symlink_to(all_ / "what-if.json"), {"request-9.json"}),
    "a pipe": (lambda p, _: os.mkfifo(p / "request-9.json"), {"request-9.json"}),
    "an unsigned one beside it": (
        lambda p, _: (p / "request-1.unsigned.json").write_bytes(b"{}"),
        {"request-1.unsigned.json"},
    ),
}


@pytest.mark.parametrize(("damage", "due"), SIGNED.values(), ids=SIGNED.keys())
def test_what_is_no_proof_of_its_request_is_a_fault(
    signed: Path, answered: Path, damage: Callable[[Path, Path], object], due: set[str]
) -> None:
    damage(signed / "proofs", answered)
    faults = [finding for finding in fsck(signed) if finding.fault]
    assert {finding.where for finding in faults} == {f"proofs/{name}" for name in due}
    assert all(finding.spare for finding in faults)  # no reason not to honour others who want to leave


UNSIGNED: dict[str, Callable[[Path], object]] = {
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "an empty object": lambda path: path.write_bytes(b"{}"),
    "another head": lambda path: rewritten({"checkpoint": "disavow/run/0\n1\nAA==\n"}, path, None),
    "another verdict": lambda path: rewritten({"verdict": {"kind": "rollback", "from": 1}}, path, None),
    "no clusters": lambda path: rewritten({"clusters": []}, path, None),
    "fewer leaves": lambda path: rewritten(
        {"leaves": json.loads(path.read_bytes())["predicate"]["leaves"][:-1]}, path, None
    ),
    "spaces": lambda path: path.write_bytes(json.dumps(json.loads(path.read_bytes())).encode()),
}


@pytest.mark.parametrize("damage", UNSIGNED.values(), ids=UNSIGNED.keys())
def test_a_statement_without_signature_is_examined_all_the_same(
    unsigned: Path, damage: Callable[[Path], object]
) -> None:
    damage(unsigned / "proofs" / "request-1.unsigned.json")
    assert found(unsigned) == [("proofs/request-1.unsigned.json", True)]


def test_statements_that_were_signed_late_are_clean_whichever_key_the_log_has_then(unsigned: Path) -> None:
    store = ProofStore(unsigned)
    with Ledger.open(unsigned) as ledger:
        for number, signer in ((1, STRANGER), (2, SIGNER)):
            statement = store.read(number, signed=False)
            assert statement is not None
            store.write(number, sign_late(ledger, statement, signer))
    assert found(unsigned) == []
    with Ledger.open(unsigned, write=True, signer=SIGNER) as ledger, ledger._connect() as connection:
        assert log.keys_of(connection) == [SIGNER.public]
    assert found(unsigned) == []


def test_proofs_of_keys_that_were_replaced_are_clean(signed: Path) -> None:
    with Ledger.open(signed, write=True, signer=STRANGER) as ledger, ledger._connect() as connection:
        assert log.keys_of(connection) == [SIGNER.public, STRANGER.public]
    assert found(signed) == []


def test_a_missing_proof_is_noted(signed: Path) -> None:
    (signed / "proofs" / FIRST).unlink()
    assert found(signed) == [("request 1", False)]
    shutil.rmtree(signed / "proofs")
    assert found(signed) == [(f"request {number}", False) for number in (1, 2, 3)]


def test_half_a_proof_is_noted_and_removed_by_a_writer(signed: Path) -> None:
    half = signed / "proofs" / f".{FIRST}.0123abcd"
    half.write_bytes(b"{")
    half.chmod(0o600)
    assert found(signed) == [(f"proofs/{half.name}", False)]
    Ledger.open(signed, write=True, signer=SIGNER).close()
    assert found(signed) == []


# -- a head that was kept ------------------------------------------------------------------------------------------


def heads(run: Path) -> list[bytes]:
    """All heads that were ever signed, oldest first; as files."""
    with Ledger.open(run) as ledger, ledger._connect() as connection:
        rows = connection.exec_driver_sql("SELECT head FROM log WHERE head IS NOT NULL ORDER BY position")
        return [str(head).encode() for head in rows.scalars()]


def test_every_head_that_was_given_out_is_one_of_the_log(signed: Path) -> None:
    kept = heads(signed)
    assert len(kept) > 3
    for head in kept:
        assert fsck(signed, checkpoint=head) == []


def test_a_log_that_was_cut_short_does_not_go_on_from_its_last_head(signed: Path) -> None:
    kept = heads(signed)[-1]
    change(signed, "DELETE FROM log WHERE position = (SELECT max(position) FROM log)")
    assert [finding for finding in fsck(signed, checkpoint=kept) if "cut short" in finding.what]


def test_a_log_that_was_rewritten_does_not_go_on_from_a_head_of_before(signed: Path) -> None:
    """Signed anew by the same key, it is a log like any other; only who kept a head can tell."""
    before, *_, kept = heads(signed)
    with Ledger.open(signed) as ledger, ledger._connect() as connection:
        run_id, hashes = ledger.run_id, log.hashes_of(connection)
    hashes[-1] = bytes(32)
    head = Checkpoint(origin_of(run_id), len(hashes), root_of(hashes)).signed(SIGNER)
    change(
        signed,
        "UPDATE log SET hash = :hash, head = :head WHERE head = :kept",
        hash=bytes(32),
        head=head,
        kept=kept.decode(),
    )
    assert [finding for finding in fsck(signed, checkpoint=kept) if "rewritten" in finding.what]
    assert not [finding for finding in fsck(signed, checkpoint=before) if "rewritten" in finding.what]


@pytest.mark.parametrize("kept", [b"", b"\xff", b"disavow/run/0\n1\nAAAA\n", b"{}", bytes(1 << 15)], ids=len)
def test_what_is_no_head_is_unreadable(signed: Path, kept: bytes) -> None:
    with pytest.raises(Unreadable):
        fsck(signed, checkpoint=kept)


def test_a_head_of_another_run_or_key_is_a_fault(signed: Path, answered: Path, unsigned: Path) -> None:
    for run, kept in (
        (signed, heads(answered / "other")[0]),
        (unsigned, heads(signed)[0]),
    ):
        assert [finding.where for finding in fsck(run, checkpoint=kept) if finding.fault] == ["table log"]
