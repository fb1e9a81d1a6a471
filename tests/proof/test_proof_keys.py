"""The signing key as files: made once, read by its owner alone, replaced without being lost."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from disavow.errors import ConfigError, Unreadable
from disavow.proof import keys
from disavow.proof.keys import generate, load_signer, read_list, read_public, revoke, rewrap, trusted_keys
from disavow.proof.notes import PublicKey
from disavow.proof.pkcs8 import ITERATIONS, encrypt, iterations_of
from disavow.proof.verify import TrustedKey
from tests.proof.world import SERVER
from tests.refusals import refuses

THEN = "2026-01-01T00:00:00.000000+00:00"
LATER = "2026-02-01T00:00:00.000000+00:00"
LAST = "2026-03-01T00:00:00.000000+00:00"
SECRET = "correct horse"
KEY = str(SERVER.public).encode()


@pytest.fixture(autouse=True)
def _no_keys_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (keys.KEY_VARIABLE, keys.NAME_VARIABLE, keys.PASSPHRASE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "keys"


def made(folder: Path, *, at: str = THEN, passphrase: str | None = None, **more: Any) -> PublicKey:
    return generate(folder, name="fl.example", passphrase=passphrase, at=at, **more).public


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def pem(key: Any) -> bytes:
    data: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return data


# -- making ------------------------------------------------------------------------------------------------------


def test_a_new_key_is_three_files_of_which_only_the_private_one_is_secret(folder: Path) -> None:
    before = os.umask(0)
    try:
        public = made(folder, passphrase=SECRET)
    finally:
        os.umask(before)
    assert files(folder).keys() == {"signing.pem", "signing.pub", "keys.json"}
    assert mode(folder / "signing.pem") == 0o600
    assert mode(folder) == 0o700
    assert mode(folder / "signing.pub") == mode(folder / "keys.json") == 0o644
    assert (folder / "signing.pub").read_text() == f"{public}\n"
    assert read_public(folder / "signing.pub") == public
    assert json.loads((folder / "keys.json").read_bytes()) == {
        "type": "disavow/keys/v2",
        "keys": [{"key": str(public), "from": THEN, "until": None, "revoked": None}],
    }


def test_the_private_key_is_encrypted_with_the_passphrase(folder: Path) -> None:
    public = made(folder, passphrase=SECRET)
    data = (folder / "signing.pem").read_bytes()
    assert data.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    key = load_pem_private_key(data, SECRET.encode())
    assert isinstance(key, Ed25519PrivateKey)
    assert key.public_key().public_bytes_raw() == public.raw
    assert key.private_bytes_raw() not in b"".join(files(folder).values())
    with pytest.raises(TypeError):
        load_pem_private_key(data, None)


def test_guessing_the_passphrase_takes_600_000_iterations_a_guess_and_openssl_reads_the_key(folder: Path) -> None:
    made(folder, passphrase=SECRET)
    path = folder / "signing.pem"
    assert iterations_of(path.read_bytes()) == ITERATIONS >= 600_000
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    read = [openssl, "pkey", "-in", str(path), "-passin", f"pass:{SECRET}", "-text", "-noout"]
    assert "ED25519 Private-Key" in subprocess.run(read, capture_output=True, check=True, text=True).stdout
    asn1 = subprocess.run([openssl, "asn1parse", "-in", str(path)], capture_output=True, check=True, text=True)
    assert all(name in asn1.stdout for name in ("PBES2", "PBKDF2", "hmacWithSHA256", "aes-256-cbc"))


@pytest.mark.parametrize("passphrase", ["x", "ü" * 15, "p" * 200])
def test_any_passphrase_opens_what_it_closed(passphrase: str) -> None:
    key = Ed25519PrivateKey.generate()
    data = encrypt(key, passphrase.encode(), iterations=1000)
    again = load_pem_private_key(data, passphrase.encode())
    assert isinstance(again, Ed25519PrivateKey)
    assert again.private_bytes_raw() == key.private_bytes_raw()
    assert iterations_of(data) == 1000
    assert encrypt(key, passphrase.encode(), iterations=1000) != data


@pytest.mark.parametrize("data", [b"", b"rubbish", b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n", b"\xff" * 40])
def test_the_iterations_of_what_is_no_such_key_are_not_known(data: bytes) -> None:
    assert iterations_of(data) is None


def old_key(folder: Path) -> None:
    """A key as it was encrypted before: with the few iterations that are the library's default."""
    made(folder)
    key = load_pem_private_key((folder / "signing.pem").read_bytes(), None)
    encryption = BestAvailableEncryption(SECRET.encode())
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    (folder / "signing.pem").write_bytes(data)
    few = iterations_of(data)
    assert few is not None
    assert few < ITERATIONS


def test_an_older_key_is_read_with_an_offer_and_can_be_encrypted_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old_key(folder)
    before = (folder / "signing.pem").read_bytes()
    monkeypatch.setenv("DISAVOW_PASSPHRASE", SECRET)
    signer = load_signer(folder)
    assert signer is not None
    assert "disavow keygen --rewrap" in caplog.text
    caplog.clear()
    held = (folder / "signing.pem").open("rb")  # as whoever undeletes files would read it
    assert rewrap(folder) == signer.public
    with held:
        assert held.read() == bytes(len(before))
    assert iterations_of((folder / "signing.pem").read_bytes()) == ITERATIONS
    assert mode(folder / "signing.pem") == 0o600
    assert files(folder).keys() == {"signing.pem", "signing.pub", "keys.json"}
    again = load_signer(folder)
    assert again is not None
    assert again.public == signer.public
    assert caplog.text == ""


def test_a_key_that_cannot_be_opened_or_is_not_encrypted_is_not_rewritten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_key(folder)
    before = files(folder)
    monkeypatch.setenv("DISAVOW_PASSPHRASE", "wrong")
    with pytest.raises(ConfigError):
        rewrap(folder)
    assert files(folder) == before
    plain = folder.with_name("plain")
    made(plain)
    with refuses(ConfigError, plain / "signing.pem", "not encrypted"):
        rewrap(plain)
    with refuses(ConfigError, folder.with_name("none"), "no key"):
        rewrap(folder.with_name("none"))


def test_without_a_passphrase_it_is_plain_and_still_nobody_elses(folder: Path) -> None:
    public = made(folder)
    assert (folder / "signing.pem").read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert mode(folder / "signing.pem") == 0o600
    signer = load_signer(folder)
    assert signer is not None
    assert signer.public == public


def test_two_keys_are_never_the_same(tmp_path: Path) -> None:
    assert made(tmp_path / "one") != made(tmp_path / "two")


def test_a_key_is_never_overwritten(folder: Path) -> None:
    made(folder)
    before = files(folder)
    with refuses(ConfigError, folder, "`disavow keygen --rotate`"):
        made(folder, at=LATER)
    assert files(folder) == before


@pytest.mark.parametrize("left", ["signing.pem", "signing.pub"])
def test_half_a_key_is_not_overwritten_either(folder: Path, left: str) -> None:
    made(folder)
    for name in {"signing.pem", "signing.pub"} - {left}:
        (folder / name).unlink()
    before = files(folder)
    with refuses(ConfigError, folder, "`disavow keygen --rotate`"):
        made(folder)
    assert files(folder) == before


@pytest.mark.parametrize("name", ["", "a b", "a+b", "x" * 101, "a\n"])
def test_a_name_that_no_key_can_have_is_refused_before_anything_is_made(folder: Path, name: str) -> None:
    with refuses(Unreadable, "name", "1 to 100"):
        generate(folder, name=name, passphrase=None, at=THEN)
    assert not folder.exists()


def test_a_folder_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refuses(ConfigError, tmp_path / "file" / "keys", "Not a directory"):
        made(tmp_path / "file" / "keys")


# -- rotation ----------------------------------------------------------------------------------------------------


def test_rotation_dates_both_keys_and_destroys_the_old_private_one(folder: Path) -> None:
    """Whoever finds a retired private key signs with it for ever, within its dates."""
    old = made(folder)
    private = (folder / "signing.pem").read_bytes()
    with (folder / "signing.pem").open("rb") as held:  # as whoever undeletes files would read it
        done = generate(folder, name="new.example", passphrase=SECRET, at=LATER, rotate=True)
        assert held.read() == bytes(len(private))
    assert done.replaced == old
    assert done.public != old
    assert files(folder).keys() == {"signing.pem", "signing.pub", "keys.json"}
    assert private not in files(folder).values()
    assert mode(folder / "signing.pem") == 0o600
    assert read_list(folder / "keys.json") == [
        TrustedKey(old, THEN, LATER),
        TrustedKey(done.public, LATER, None),
    ]
    assert read_public(folder / "signing.pub") == done.public
    third = made(folder, at=LAST, rotate=True)
    assert read_list(folder / "keys.json") == [
        TrustedKey(old, THEN, LATER),
        TrustedKey(done.public, LATER, LAST),
        TrustedKey(third, LAST, None),
    ]
    assert files(folder).keys() == {"signing.pem", "signing.pub", "keys.json"}


def test_rotation_destroys_private_keys_that_earlier_ones_left_behind(folder: Path) -> None:
    made(folder)
    (folder / "retired").mkdir()
    left = folder / "retired" / "0123456789abcdef.pem"
    left.write_bytes(b"secret")
    with left.open("rb") as held:
        made(folder, at=LATER, rotate=True)
        assert held.read() == bytes(6)
    assert files(folder).keys() == {"signing.pem", "signing.pub", "keys.json"}


def test_a_key_whose_private_half_was_lost_can_be_rotated(folder: Path) -> None:
    old = made(folder)
    (folder / "signing.pem").unlink()
    new = made(folder, at=LATER, rotate=True)
    assert [each.key for each in read_list(folder / "keys.json")] == [old, new]
    assert load_signer(folder) is not None


def test_there_must_be_a_key_to_rotate(folder: Path) -> None:
    with refuses(ConfigError, folder, "`disavow keygen`"):
        made(folder, rotate=True)
    assert files(folder) == {}


def test_a_rotation_without_the_list_still_lists_the_key_that_it_retires(folder: Path) -> None:
    """Proofs of the retired key are checked under the list: a key that is missing there makes them worthless."""
    old = made(folder)
    (folder / "keys.json").unlink()
    new = made(folder, at=LATER, rotate=True)
    assert [each.key for each in read_list(folder / "keys.json")] == [old, new]


def test_a_damaged_list_stops_a_rotation_before_anything_is_moved(folder: Path) -> None:
    made(folder)
    (folder / "keys.json").write_bytes(b"{")
    before = files(folder)
    with refuses(Unreadable, "keys.json", "JSON"):
        made(folder, at=LATER, rotate=True)
    assert files(folder) == before


@pytest.mark.parametrize("step", range(1, 4))
def test_a_rotation_without_room_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """There is no room for one of the files that it makes."""
    old = made(folder)
    private = (folder / "signing.pem").read_bytes()
    real, opened = os.open, 0

    def failing(path: Any, flags: int, *more: Any) -> int:
        nonlocal opened
        opened += bool(flags & os.O_CREAT)
        if flags & os.O_CREAT and opened == step:
            raise OSError(28, "No space left on device")
        return real(path, flags, *more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        with pytest.raises(ConfigError):
            made(folder, at=LATER, rotate=True)
    assert (folder / "signing.pem").read_bytes() == private
    assert read_list(folder / "keys.json") == [TrustedKey(old, THEN, None)]
    signer = load_signer(folder)
    assert signer is not None
    assert signer.public == old
    new = made(folder, at=LATER, rotate=True)
    assert read_public(folder / "signing.pub") == new
    assert files(folder).keys() == {"signing.pem", "signing.pub", "keys.json"}


@pytest.mark.parametrize("step", range(1, 4))
def test_a_rotation_that_is_killed_leaves_a_key_that_signs_and_is_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Killed just before one of its renames: of the private key, of the public one, of the list."""
    old = made(folder)
    real, renamed = Path.replace, 0

    class Killed(BaseException):
        pass

    def killing(path: Path, target: Path) -> Path:
        nonlocal renamed
        renamed += 1
        if renamed == step:
            raise Killed
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killing)
        with pytest.raises(Killed):
            made(folder, at=LATER, rotate=True)
    signer = load_signer(folder)
    assert signer is not None
    assert (signer.public == old) == (step == 1)
    listed = read_list(folder / "keys.json")
    assert [each.key for each in listed] == list(dict.fromkeys([old, signer.public]))
    assert [each.until is None for each in listed] == [each.key == signer.public for each in listed]
    assert made(folder, at=LAST, rotate=True) == read_public(folder / "signing.pub")
    assert files(folder).keys() == {"signing.pem", "signing.pub", "keys.json"}


def test_what_a_killed_rotation_left_does_not_come_back_with_an_encryption_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = made(folder, passphrase=SECRET)
    for name in ("signing.pem", "signing.pub"):  # killed before its renames
        (folder / f".{name}").write_bytes(b"of the key that was to come")
    monkeypatch.setenv("DISAVOW_PASSPHRASE", SECRET)
    assert rewrap(folder) == public
    signer = load_signer(folder)
    assert signer is not None
    assert signer.public == public
    assert files(folder).keys() == {"signing.pem", "signing.pub", "keys.json"}


# -- revocation --------------------------------------------------------------------------------------------------


def test_a_replaced_key_is_revoked_in_the_list_by_its_id(folder: Path) -> None:
    old = made(folder)
    new = made(folder, at=LATER, rotate=True)
    assert revoke(folder, old.id[:16], at=LAST) == old
    told = [TrustedKey(old, THEN, LATER, LAST), TrustedKey(new, LATER, None)]
    assert read_list(folder / "keys.json") == trusted_keys(folder / "keys.json") == told
    assert revoke(folder, old.id, at="2027-01-01T00:00:00.000000+00:00") == old
    assert read_list(folder / "keys.json") == told  # the first moment stays


def test_the_key_in_use_is_rotated_before_it_is_revoked(folder: Path) -> None:
    key = made(folder)
    before = files(folder)
    with refuses(ConfigError, "--rotate"):
        revoke(folder, key.id, at=LATER)
    for unknown in ("", key.id[:7], "0" * 64, "nonsense"):
        with pytest.raises(ConfigError):
            revoke(folder, unknown, at=LATER)
    assert files(folder) == before


def test_a_revoked_key_that_is_put_back_does_not_sign(folder: Path) -> None:
    old = made(folder)
    kept = files(folder)
    made(folder, at=LATER, rotate=True)
    revoke(folder, old.id, at=LAST)
    for name in ("signing.pem", "signing.pub"):
        (folder / name).write_bytes(kept[name])
    with refuses(ConfigError, "revoked"):
        load_signer(folder)


def test_a_list_from_before_there_were_revocations_is_read(folder: Path) -> None:
    old = made(folder)
    entries = [{"key": str(old), "from": THEN, "until": None}]
    (folder / "keys.json").write_text(json.dumps({"type": "disavow/keys/v1", "keys": entries}))
    assert read_list(folder / "keys.json") == [TrustedKey(old, THEN, None)]
    new = made(folder, at=LATER, rotate=True)
    assert read_list(folder / "keys.json") == [TrustedKey(old, THEN, LATER), TrustedKey(new, LATER, None)]


# -- loading -----------------------------------------------------------------------------------------------------


def test_where_there_is_no_key_there_is_no_signer(folder: Path) -> None:
    assert load_signer(folder) is None
    folder.mkdir(parents=True)
    assert load_signer(folder) is None


def test_the_passphrase_comes_from_the_environment_or_from_a_person(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = made(folder, passphrase=SECRET)
    asked = []

    def person(path: Path) -> str | None:
        asked.append(path)
        return SECRET

    signer = load_signer(folder, person)
    assert signer is not None
    assert signer.public == public
    assert signer.name == "fl.example"
    assert public.holds(signer.sign(b"message"), b"message")
    assert asked == [folder / "signing.pem"]
    monkeypatch.setenv("DISAVOW_PASSPHRASE", SECRET)
    signer = load_signer(folder, person)
    assert signer is not None
    assert signer.public == public
    assert len(asked) == 1


def test_a_wrong_passphrase_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(folder, passphrase=SECRET)
    monkeypatch.setenv("DISAVOW_PASSPHRASE", "wrong")
    with refuses(ConfigError, folder / "signing.pem", "wrong passphrase"):
        load_signer(folder)
    monkeypatch.setenv("DISAVOW_PASSPHRASE", "")
    with refuses(ConfigError, "wrong passphrase"):
        load_signer(folder)


def test_a_locked_key_where_nobody_can_be_asked_says_what_to_set(folder: Path) -> None:
    made(folder, passphrase=SECRET)
    with refuses(ConfigError, "signing.pem", "locked", "DISAVOW_PASSPHRASE"):
        load_signer(folder)


def test_a_passphrase_that_an_unlocked_key_does_not_need_does_no_harm(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = made(folder)
    monkeypatch.setenv("DISAVOW_PASSPHRASE", SECRET)
    signer = load_signer(folder)
    assert signer is not None
    assert signer.public == public


def test_a_key_in_the_environment_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder = made(folder)
    key = Ed25519PrivateKey.generate()
    monkeypatch.setenv("DISAVOW_SIGNING_KEY", pem(key).decode())
    signer = load_signer(folder)
    assert signer is not None
    assert (signer.name, signer.public.raw) == ("disavow", key.public_key().public_bytes_raw())
    assert signer.public != in_folder
    monkeypatch.setenv("DISAVOW_SIGNING_NAME", "ci.example")
    named = load_signer(folder / "nowhere")
    assert named is not None
    assert named.public == PublicKey("ci.example", signer.public.raw)
    monkeypatch.setenv("DISAVOW_SIGNING_NAME", "no name")
    with refuses(Unreadable, "name", "1 to 100"):
        load_signer(folder)


def test_a_locked_key_in_the_environment_takes_the_passphrase_from_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = made(folder, passphrase=SECRET)
    monkeypatch.setenv("DISAVOW_SIGNING_KEY", (folder / "signing.pem").read_text())
    with refuses(ConfigError, "DISAVOW_SIGNING_KEY"):
        load_signer(folder)
    monkeypatch.setenv("DISAVOW_PASSPHRASE", SECRET)
    signer = load_signer(folder)
    assert signer is not None
    assert signer.public.raw == public.raw


@pytest.mark.parametrize("value", ["rubbish", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_rubbish_in_the_environment_is_refused_and_not_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("DISAVOW_SIGNING_KEY", value)
    with refuses(ConfigError, "DISAVOW_SIGNING_KEY") as caught:
        load_signer(folder)
    assert value not in str(caught.value)


def test_a_key_of_another_kind_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    monkeypatch.setenv("DISAVOW_SIGNING_KEY", pem(other).decode())
    with refuses(ConfigError, "DISAVOW_SIGNING_KEY", "Ed25519"):
        load_signer(folder)


@pytest.mark.parametrize("others", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_key_that_others_can_read_is_refused(folder: Path, others: int) -> None:
    made(folder)
    (folder / "signing.pem").chmod(others)
    with refuses(ConfigError, f"`chmod 600 {folder / 'signing.pem'}`"):
        load_signer(folder)
    (folder / "signing.pem").chmod(0o600)
    assert load_signer(folder) is not None


def test_files_of_two_different_keys_are_refused(tmp_path: Path) -> None:
    made(tmp_path / "one")
    made(tmp_path / "two")
    (tmp_path / "one" / "signing.pub").write_bytes((tmp_path / "two" / "signing.pub").read_bytes())
    with refuses(ConfigError, "signing.pem", "signing.pub", "one key"):
        load_signer(tmp_path / "one")


def test_a_private_key_without_its_public_one_is_refused(folder: Path) -> None:
    made(folder)
    (folder / "signing.pub").unlink()
    with refuses(Unreadable, "signing.pub"):
        load_signer(folder)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\x00\xff" * 30])
def test_a_damaged_private_key_is_refused(folder: Path, content: bytes) -> None:
    made(folder)
    (folder / "signing.pem").write_bytes(content)
    with refuses(ConfigError, folder / "signing.pem"):
        load_signer(folder)


# -- what a verifier was given -----------------------------------------------------------------------------------


def test_a_verifier_takes_one_key_or_a_list(folder: Path) -> None:
    old = made(folder)
    new = made(folder, at=LATER, rotate=True)
    assert trusted_keys(folder / "signing.pub") == [TrustedKey(new, None, None)]
    assert trusted_keys(folder / "keys.json") == [TrustedKey(old, THEN, LATER), TrustedKey(new, LATER, None)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"rubbish",
        b"\xff\xff",
        b"{",
        b"{}",
        b'{"keys":[],"type":"disavow/keys/v3"}',
        b'{"keys":[{"from":"2026-01-01T00:00:00.000000+00:00","key":"%s","until":null}],"type":"disavow/keys/v2"}'
        % KEY,
        b'{"keys":[{"from":"2026-01-01T00:00:00.000000+00:00","key":"%s","revoked":null,"until":null}],'
        b'"type":"disavow/keys/v1"}' % KEY,
        b'{"keys":[{"from":null,"key":"a","until":null}],"type":"disavow/keys/v1"}',
        b'{"keys":[{"from":"2026-01-01T00:00:00.000000+00:00","key":"a","until":null}],"type":"disavow/keys/v1"}',
        b"x" * ((1 << 20) + 1),
    ],
)
def test_a_damaged_key_file_is_unreadable(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(Unreadable):
        trusted_keys(tmp_path / "key")


def test_a_revoked_key_in_the_environment_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = generate(folder, name="server.example", passphrase=None, at=THEN).public
    monkeypatch.setenv("DISAVOW_SIGNING_KEY", (folder / "signing.pem").read_text())
    assert load_signer(folder) is not None
    generate(folder, name="server.example", passphrase=None, at=LATER, rotate=True)
    revoke(folder, old.id, at=LATER)
    with pytest.raises(ConfigError):
        load_signer(folder)


def test_a_private_key_given_by_mistake_is_not_repeated_in_the_error(folder: Path) -> None:
    generate(folder, name="server.example", passphrase=None, at=THEN)
    secret = (folder / "signing.pem").read_text().splitlines()[1]
    with pytest.raises(Unreadable) as refused:
        trusted_keys(folder / "signing.pem")
    assert not any(secret[i : i + 8] in str(refused.value) for i in range(len(secret) - 8))


@pytest.mark.parametrize("name", ["signing.pub", "keys.json"])
def test_a_pipe_is_read_once(folder: Path, name: str) -> None:
    """As the shell gives it for `--key <(...)`."""
    public = made(folder)
    reader, writer = os.pipe()
    try:
        os.write(writer, (folder / name).read_bytes())
        os.close(writer)
        assert [each.key for each in trusted_keys(Path(f"/dev/fd/{reader}"))] == [public]
    finally:
        os.close(reader)


def test_a_missing_key_file_is_unreadable(tmp_path: Path) -> None:
    with refuses(Unreadable, tmp_path / "nowhere", "No such file"):
        trusted_keys(tmp_path / "nowhere")
    with refuses(Unreadable, tmp_path, "Is a directory"):
        trusted_keys(tmp_path)


def test_a_private_key_given_for_a_public_one_is_refused_and_not_repeated(folder: Path) -> None:
    made(folder)
    with pytest.raises(Unreadable) as caught:
        trusted_keys(folder / "signing.pem")
    secret = (folder / "signing.pem").read_text().splitlines()[1]
    assert secret not in str(caught.value)
