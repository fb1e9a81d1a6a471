"""Signing keys are loaded from a folder or the environment, and trusted ones from a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow.errors import ConfigError, Unreadable
from disavow.proof.keys import generate, load_signer, revoke, trusted_keys
from disavow.proof.notes import PublicKey
from disavow.proof.verify import TrustedKey
from tests.proof.keys.key_folders import KEY, LATER, SECRET, THEN, made, pem
from tests.refusals import refuses

# -- loading -----------------------------------------------------------------------------------------------------


def test_where_there_is_no_key_there_is_no_signer(folder: Path) -> None:
    assert load_signer(folder) is None
    folder.mkdir(parents=True)
    assert load_signer(folder) is None


def test_the_passphrase_comes_from_the_environment_or_from_a_person(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = made(folder, passphrase=SECRET)
    prompted = []

    def person(path: Path) -> str | None:
        prompted.append(path)
        return SECRET

    signer = load_signer(folder, person)
    assert signer is not None
    assert signer.public == public
    assert signer.name == "fl.example"
    assert public.holds(signer.sign(b"message"), b"message")
    assert prompted == [folder / "signing.pem"]
    monkeypatch.setenv("DISAVOW_PASSPHRASE", SECRET)
    signer = load_signer(folder, person)
    assert signer is not None
    assert signer.public == public
    assert len(prompted) == 1


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
