"""Keys are rotated and revoked without a moment in which none can sign."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from disavow.errors import ConfigError, Unreadable
from disavow.proof.keys import generate, load_signer, read_list, read_public, revoke, rewrap, trusted_keys
from disavow.proof.verify import TrustedKey
from tests.proof.keys.key_folders import LAST, LATER, SECRET, THEN, files, made, mode
from tests.refusals import refuses

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
    expected = [TrustedKey(old, THEN, LATER, LAST), TrustedKey(new, LATER, None)]
    assert read_list(folder / "keys.json") == trusted_keys(folder / "keys.json") == expected
    assert revoke(folder, old.id, at="2027-01-01T00:00:00.000000+00:00") == old
    assert read_list(folder / "keys.json") == expected  # the first moment stays


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
