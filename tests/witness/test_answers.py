"""What a witness answers: a cosignature for what extends what it has seen, and C2SP's statuses for the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from disavow.errors import ConfigError, WitnessInUse
from disavow.proof.cosignatures import Cosignature
from disavow.proof.keys import generate
from disavow.proof.notes import Signer, read_note
from disavow.proof.witness_client import SIZE_TYPE
from disavow.witness.answers import KnownLog
from disavow.witness.heads import SeenHeads
from tests.refusals import refuses
from tests.witness.logs import LOG, WITNESS, MadeLog, witness_at


def test_a_head_that_extends_the_last_is_cosigned_and_kept(tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    one, two = MadeLog().grown(3), MadeLog().grown(7)
    for log, old in ((one, 0), (two, 3), (two, 7)):
        answer = witness.add_checkpoint(log.request(old))
        assert answer.status == 200
        assert Cosignature.parse(answer.body[:-1]).holds(WITNESS.public, log.head)
    [path] = (tmp_path / "seen").glob("*.txt")
    kept = read_note(path.read_text(encoding="utf-8"), "the head", cosigned=True)
    assert kept.head == two.head
    assert {name for name, _ in kept.signatures} == {LOG.name, WITNESS.name}
    heads.close()


def test_what_is_signed_is_the_message_of_c2sp(tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen", clock=1_700_000_000)
    log = MadeLog().grown(1)
    [line] = witness.add_checkpoint(log.request(0)).body.splitlines()
    data = Cosignature.parse(line).data
    assert data[:8] == (1_700_000_000).to_bytes(8, "big")
    message = f"cosignature/v1\ntime 1700000000\n{log.head.body}".encode()
    Ed25519PublicKey.from_public_bytes(WITNESS.public.raw).verify(data[8:], message)
    heads.close()


def test_whoever_is_behind_or_ahead_is_told_the_size_that_was_seen(tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    assert witness.add_checkpoint(MadeLog().grown(5).request(0)).status == 200
    for old in (0, 3, 6):
        answer = witness.add_checkpoint(MadeLog().grown(8).request(old))
        assert (answer.status, answer.kind, answer.body) == (409, SIZE_TYPE, "5\n")
    heads.close()


def test_a_fork_a_shorter_log_and_a_false_proof_are_refused(tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    log = MadeLog().grown(4).grown(4, "true")
    assert witness.add_checkpoint(log.request(0)).status == 200
    fork = log.cut(4).grown(4, "false")
    assert witness.add_checkpoint(fork.request(8)).status == 409  # the same size, another root
    assert witness.add_checkpoint(fork.grown(3).request(8)).status == 422
    assert witness.add_checkpoint(log.grown(3).request(8, [])).status == 422
    assert witness.add_checkpoint(log.grown(3).request(8, [*log.grown(3).proof(8), bytes(32)])).status == 422
    assert witness.add_checkpoint(log.cut(6).request(6)).status == 409
    assert witness.add_checkpoint(log.cut(6).request(8)).status == 400
    assert witness.add_checkpoint(log.request(8, [bytes(32)])).status == 422
    assert witness.add_checkpoint(log.grown(3).request(8)).status == 200
    heads.close()


def test_unknown_logs_and_keys_are_refused(tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    stranger = Signer(LOG.name, Ed25519PrivateKey.generate())
    assert witness.add_checkpoint(MadeLog(origin="example.org/log").grown(1).request(0)).status == 404
    assert witness.add_checkpoint(MadeLog(signer=stranger).grown(1).request(0)).status == 403
    assert not list((tmp_path / "seen").glob("*.txt"))
    heads.close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"old 0\n",
        b"old 0\n\n",
        b"old -1\n\n" + MadeLog().grown(1).note.encode(),
        b"old 00\n\n" + MadeLog().grown(1).note.encode(),
        b"new 0\n\n" + MadeLog().grown(1).note.encode(),
        b"old 0\nAAAA\n\n" + MadeLog().grown(1).note.encode(),
        b"old 0\n" + MadeLog().grown(1).note.encode(),
        MadeLog().grown(1).request(0, [bytes(32)] * 64),
        MadeLog().grown(1).request(0).replace(b"disavow/run/first\n", b"disavow/run/first\nmore\n"),
        b"old 0\n\n" + MadeLog(origin="disavow/run/" + "x" * 16_000).grown(1).note.encode(),
    ],
)
def test_what_is_no_request_is_refused(body: bytes, tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    assert witness.add_checkpoint(body).status == 400
    heads.close()


def test_logs_do_not_touch_each_other(tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    for origin in ("disavow/run/first", "disavow/run/second"):
        assert witness.add_checkpoint(MadeLog(origin=origin).grown(3, origin).request(0)).status == 200
    assert len(heads) == 2
    heads.close()


def test_no_more_logs_are_kept_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disavow.witness.answers.MOST_LOGS", 1)
    witness, heads = witness_at(tmp_path / "seen")
    assert witness.add_checkpoint(MadeLog().grown(1).request(0)).status == 200
    assert witness.add_checkpoint(MadeLog(origin="disavow/run/second").grown(1).request(0)).status == 503
    assert witness.add_checkpoint(MadeLog().grown(2).request(1)).status == 200
    heads.close()


def test_what_cannot_be_kept_is_not_cosigned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    assert witness.add_checkpoint(MadeLog().grown(1).request(0)).status == 200

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("disavow.durable_files.os.fsync", full)
        assert witness.add_checkpoint(MadeLog().grown(2).request(1)).status == 507
    assert witness.add_checkpoint(MadeLog().grown(1).grown(2, "another").request(1)).status == 200
    heads.close()


def test_the_state_is_found_again_and_one_process_has_it(tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    log = MadeLog().grown(5)
    assert witness.add_checkpoint(log.request(0)).status == 200
    with refuses(WitnessInUse, tmp_path / "seen"):
        SeenHeads(tmp_path / "seen")
    heads.close()
    again, heads = witness_at(tmp_path / "seen")
    assert again.add_checkpoint(log.cut(3).grown(4, "another").request(5)).status == 422
    assert again.add_checkpoint(log.grown(1).request(5)).status == 200
    heads.close()


def test_a_damaged_or_misplaced_head_is_refused_at_the_start(tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    assert witness.add_checkpoint(MadeLog().grown(5).request(0)).status == 200
    heads.close()
    [path] = (tmp_path / "seen").glob("*.txt")
    whole = path.read_bytes()
    for data in (b"", whole[:40], b"\xff"):
        path.write_bytes(data)
        with refuses(ConfigError, path):
            SeenHeads(tmp_path / "seen")
    path.write_bytes(whole.replace(b"disavow/run/first", b"disavow/run/other"))
    with refuses(ConfigError, path):
        SeenHeads(tmp_path / "seen")
    path.write_bytes(whole)
    (tmp_path / "seen" / ".next").write_bytes(b"half")
    SeenHeads(tmp_path / "seen").close()
    assert not (tmp_path / "seen" / ".next").exists()


def test_logs_are_named_by_origin_and_key(tmp_path: Path) -> None:
    generate(tmp_path / "keys", name="example.org", passphrase=None, at="2026-01-01T00:00:00.000000+00:00")
    for given in (str(LOG.public), str(tmp_path / "keys" / "signing.pub"), str(tmp_path / "keys" / "keys.json")):
        log = KnownLog.parse(f"disavow/run/*={given}")
        assert log.covers("disavow/run/x")
        assert not log.covers("disavow/runs")
        assert len(log.keys) == 1
    assert not KnownLog.parse(f"disavow/run/x={LOG.public}").covers("disavow/run/xy")
    for wrong in ("", "name", "=key", f"a*b={LOG.public}", "name=nothing", f"name={WITNESS.public}"):
        with refuses(ConfigError, "--log"):
            KnownLog.parse(wrong)
