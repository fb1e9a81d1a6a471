"""The signing key as files: made once, read by its owner alone, replaced without being lost."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from disavow.errors import ConfigError, Unreadable
from disavow.proof import keys
from disavow.proof.keys import generate, load_signer, read_list, read_public, trusted_keys
from disavow.proof.notes import PublicKey
from disavow.proof.verify import TrustedKey

THEN = "2026-01-01T00:00:00.000000+00:00"
LATER = "2026-02-01T00:00:00.000000+00:00"
LAST = "2026-03-01T00:00:00.000000+00:00"
SECRET = "correct horse"


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
        "type": "disavow/keys/v1",
        "keys": [{"key": str(public), "from": THEN, "until": None}],
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
    with pytest.raises(ConfigError, match=r"is never overwritten; `disavow keygen --rotate` replaces the key"):
        made(folder, at=LATER)
    assert files(folder) == before


@pytest.mark.parametrize("left", ["signing.pem", "signing.pub"])
def test_half_a_key_is_not_overwritten_either(folder: Path, left: str) -> None:
    made(folder)
    for name in {"signing.pem", "signing.pub"} - {left}:
        (folder / name).unlink()
    before = files(folder)
    with pytest.raises(ConfigError, match="never overwritten"):
        made(folder)
    assert files(folder) == before


@pytest.mark.parametrize("name", ["", "a b", "a+b", "x" * 101, "a\n"])
def test_a_name_that_no_key_can_have_is_refused_before_anything_is_made(folder: Path, name: str) -> None:
    with pytest.raises(Unreadable, match="a key's name has 1 to 100 of"):
        generate(folder, name=name, passphrase=None, at=THEN)
    assert not folder.exists()


def test_a_folder_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used for keys: Not a directory"):
        made(tmp_path / "file" / "keys")


# -- rotation ----------------------------------------------------------------------------------------------------


def test_rotation_retires_the_old_key_and_dates_both(folder: Path) -> None:
    old = made(folder)
    private = (folder / "signing.pem").read_bytes()
    done = generate(folder, name="new.example", passphrase=SECRET, at=LATER, rotate=True)
    assert done.replaced == old
    assert done.public != old
    assert (folder / "retired" / f"{old.id[:16]}.pem").read_bytes() == private
    assert mode(folder / "retired") == 0o700
    assert mode(folder / "retired" / f"{old.id[:16]}.pem") == 0o600
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
    assert len(list((folder / "retired").iterdir())) == 2


def test_there_must_be_a_key_to_rotate(folder: Path) -> None:
    with pytest.raises(ConfigError, match="holds no key to rotate; `disavow keygen` makes one"):
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
    with pytest.raises(Unreadable, match=r"keys\.json is not JSON"):
        made(folder, at=LATER, rotate=True)
    assert files(folder) == before


@pytest.mark.parametrize("step", range(1, 5))
def test_a_rotation_that_is_cut_off_loses_neither_the_old_key_nor_the_list(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
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

    monkeypatch.setattr(os, "open", failing)
    with suppress(ConfigError):
        made(folder, at=LATER, rotate=True)
    assert private in files(folder).values()
    assert old in [each.key for each in read_list(folder / "keys.json")]


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
    with pytest.raises(ConfigError, match="cannot be opened: a wrong passphrase"):
        load_signer(folder)
    monkeypatch.setenv("DISAVOW_PASSPHRASE", "")
    with pytest.raises(ConfigError, match="a wrong passphrase"):
        load_signer(folder)


def test_a_locked_key_where_nobody_can_be_asked_says_what_to_set(folder: Path) -> None:
    made(folder, passphrase=SECRET)
    with pytest.raises(ConfigError, match=r"signing\.pem is locked; set DISAVOW_PASSPHRASE to its passphrase"):
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
    with pytest.raises(Unreadable, match="a key's name"):
        load_signer(folder)


def test_a_locked_key_in_the_environment_takes_the_passphrase_from_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = made(folder, passphrase=SECRET)
    monkeypatch.setenv("DISAVOW_SIGNING_KEY", (folder / "signing.pem").read_text())
    with pytest.raises(ConfigError, match="DISAVOW_SIGNING_KEY cannot be opened"):
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
    with pytest.raises(ConfigError, match="DISAVOW_SIGNING_KEY cannot be opened") as caught:
        load_signer(folder)
    assert value not in str(caught.value)


def test_a_key_of_another_kind_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    monkeypatch.setenv("DISAVOW_SIGNING_KEY", pem(other).decode())
    with pytest.raises(ConfigError, match="is not an Ed25519 key"):
        load_signer(folder)


@pytest.mark.parametrize("others", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_key_that_others_can_read_is_refused(folder: Path, others: int) -> None:
    made(folder)
    (folder / "signing.pem").chmod(others)
    with pytest.raises(ConfigError, match=r"can be read by others; `chmod 600 .*signing\.pem` first"):
        load_signer(folder)
    (folder / "signing.pem").chmod(0o600)
    assert load_signer(folder) is not None


def test_files_of_two_different_keys_are_refused(tmp_path: Path) -> None:
    made(tmp_path / "one")
    made(tmp_path / "two")
    (tmp_path / "one" / "signing.pub").write_bytes((tmp_path / "two" / "signing.pub").read_bytes())
    with pytest.raises(ConfigError, match=r"signing\.pub beside it are not of one key: restore them"):
        load_signer(tmp_path / "one")


def test_a_private_key_without_its_public_one_is_refused(folder: Path) -> None:
    made(folder)
    (folder / "signing.pub").unlink()
    with pytest.raises(Unreadable, match=r"signing\.pub cannot be read"):
        load_signer(folder)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\x00\xff" * 30])
def test_a_damaged_private_key_is_refused(folder: Path, content: bytes) -> None:
    made(folder)
    (folder / "signing.pem").write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be opened"):
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
        b'{"keys":[],"type":"disavow/keys/v2"}',
        b'{"keys":[{"from":null,"key":"a","until":null}],"type":"disavow/keys/v1"}',
        b'{"keys":[{"from":"2026-01-01T00:00:00.000000+00:00","key":"a","until":null}],"type":"disavow/keys/v1"}',
        b"x" * ((1 << 20) + 1),
    ],
)
def test_a_damaged_key_file_is_unreadable(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(Unreadable):
        trusted_keys(tmp_path / "key")


def test_a_missing_key_file_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="nowhere cannot be read: No such file"):
        trusted_keys(tmp_path / "nowhere")
    with pytest.raises(Unreadable, match="cannot be read: Is a directory"):
        trusted_keys(tmp_path)


def test_a_private_key_given_for_a_public_one_is_refused_and_not_repeated(folder: Path) -> None:
    made(folder)
    with pytest.raises(Unreadable) as caught:
        trusted_keys(folder / "signing.pem")
    secret = (folder / "signing.pem").read_text().splitlines()[1]
    assert secret not in str(caught.value)
