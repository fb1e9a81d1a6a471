"""The signing key as files: made once, read by its owner alone, replaced without being lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
)

from disavow.errors import ConfigError, Unreadable
from disavow.proof.keys import generate, load_signer, read_public, rewrap
from disavow.proof.pkcs8 import ITERATIONS, encrypt, iterations_of
from tests.proof.keys.key_folders import LATER, SECRET, THEN, files, made, mode, old_key
from tests.refusals import refuses

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
