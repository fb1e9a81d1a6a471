"""Notes and checkpoints are those of C2SP, and a note is believed only under the key that signed it."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from disavow.errors import Unreadable, VerificationError
from disavow.proof.notes import LARGEST, Checkpoint, PublicKey, Signer, check_name, open_checkpoint, origin_of
from tests.refusals import refuses
from tests.rounds.builders import PROPERTY

SERVER = Signer("fl.example.org", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
WITNESS = Signer("witness.example", Ed25519PrivateKey.from_private_bytes(b"w" * 32))
HEAD = Checkpoint(origin_of("ab" * 16), 17, hashlib.sha256(b"root").digest())
NOTE = HEAD.signed(SERVER)


def with_signatures(*signers: Signer) -> str:
    return HEAD.body + "\n" + "".join(HEAD.signed(signer).rpartition("\n\n")[2] for signer in signers)


# -- the form ----------------------------------------------------------------------------------------------------


def test_a_note_is_byte_for_byte_what_c2sp_says() -> None:
    raw = SERVER.private.public_key().public_bytes_raw()
    key_hash = hashlib.sha256(b"fl.example.org\n\x01" + raw).digest()[:4]
    body = f"disavow/run/{'ab' * 16}\n17\n{base64.b64encode(HEAD.root).decode()}\n"
    signature = base64.b64encode(key_hash + SERVER.private.sign(body.encode())).decode()
    assert f"{body}\n\u2014 fl.example.org {signature}\n" == NOTE
    assert HEAD.body == body
    assert NOTE.isascii() is False  # the dash is the long one


def test_a_public_key_is_written_as_c2sps_verifier_key() -> None:
    raw = SERVER.public.raw
    key_hash = hashlib.sha256(b"fl.example.org\n\x01" + raw).digest()[:4].hex()
    assert str(SERVER.public) == f"fl.example.org+{key_hash}+{base64.b64encode(bytes([1]) + raw).decode()}"
    assert SERVER.public.id == hashlib.sha256(raw).hexdigest()


def test_a_verifier_key_of_the_specification_is_read() -> None:
    """The example of golang.org/x/mod/sumdb/note."""
    text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    key = PublicKey.parse(text)
    assert (key.name, key.hash.hex(), str(key)) == ("PeterNeumann", "c74f20a3", text)
    message = (
        "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    )
    signature = base64.b64decode(
        "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
    )
    assert signature[:4] == key.hash
    assert key.holds(signature[4:], message.encode())


def test_a_signer_does_not_show_its_key() -> None:
    private = SERVER.private.private_bytes_raw()
    assert private.hex() not in repr(SERVER)
    assert repr(private) not in repr(SERVER)


# -- round trips -------------------------------------------------------------------------------------------------


@PROPERTY
@given(
    st.integers(0, 10**15 - 1),
    st.binary(min_size=32, max_size=32),
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=20),
)
def test_a_checkpoint_comes_back_from_its_note(size: int, root: bytes, origin: str) -> None:
    head = Checkpoint(origin, size, root)
    assert open_checkpoint(head.signed(SERVER), SERVER.public) == head


@PROPERTY
@given(st.text("aZ0.-+ é\n", min_size=1, max_size=5), st.binary(min_size=32, max_size=32))
def test_a_key_comes_back_from_its_text_if_its_name_may_be_one(name: str, raw: bytes) -> None:
    key = PublicKey(name, raw)
    try:
        check_name(name)
    except Unreadable:
        with pytest.raises(Unreadable):
            PublicKey.parse(str(key))
    else:
        assert PublicKey.parse(str(key)) == key


# -- who signed --------------------------------------------------------------------------------------------------


def test_a_note_of_another_key_is_not_believed() -> None:
    with refuses(VerificationError, "not signed by witness.example"):
        open_checkpoint(NOTE, WITNESS.public)
    same_name = replace(WITNESS, name=SERVER.name)
    with refuses(VerificationError, f"not signed by {SERVER.name}"):
        open_checkpoint(NOTE, same_name.public)


def test_a_key_of_another_name_is_another_key_though_its_bytes_are_the_same() -> None:
    renamed = Signer("other.example", SERVER.private)
    assert renamed.public.id == SERVER.public.id
    assert renamed.public.hash != SERVER.public.hash
    assert renamed.public != SERVER.public
    with refuses(VerificationError, "not signed by other.example"):
        open_checkpoint(NOTE, renamed.public)
    # nor does it help to write the other name over the signature
    with refuses(VerificationError, "not signed by other.example"):
        open_checkpoint(NOTE.replace(SERVER.name, renamed.name), renamed.public)


def test_the_same_name_with_the_hash_of_a_key_that_did_not_sign_is_a_false_signature() -> None:
    signature = base64.b64encode(SERVER.public.hash + WITNESS.sign(HEAD.body.encode())).decode()
    with refuses(VerificationError, SERVER.name, "false signature"):
        open_checkpoint(f"{HEAD.body}\n— {SERVER.name} {signature}\n", SERVER.public)


def test_others_may_have_signed_only_where_that_is_asked_for() -> None:
    both = with_signatures(SERVER, WITNESS)
    with refuses(Unreadable, "more than one signature"):
        open_checkpoint(both, SERVER.public)
    for note in (both, with_signatures(WITNESS, SERVER), NOTE):
        assert open_checkpoint(note, SERVER.public, cosigned=True) == HEAD
    assert open_checkpoint(both, WITNESS.public, cosigned=True) == HEAD
    with refuses(VerificationError, f"not signed by {SERVER.name}"):
        open_checkpoint(with_signatures(WITNESS, WITNESS), SERVER.public, cosigned=True)


def test_a_false_signature_is_refused_even_beside_a_true_one() -> None:
    false = base64.b64encode(SERVER.public.hash + bytes(64)).decode()
    note = with_signatures(SERVER) + f"— {SERVER.name} {false}\n"
    with refuses(VerificationError, SERVER.name, "false signature"):
        open_checkpoint(note, SERVER.public, cosigned=True)


def test_signatures_of_a_kind_we_do_not_know_are_passed_over_when_cosigned() -> None:
    unknown = base64.b64encode(b"abcd" + bytes(72)).decode()  # as witnesses' timestamped cosignatures are
    note = with_signatures(SERVER) + f"— witness.example {unknown}\n"
    assert open_checkpoint(note, SERVER.public, cosigned=True) == HEAD


# -- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "note",
    [
        "",
        "\n",
        "\n\n",
        HEAD.body,
        HEAD.body + "\n",
        NOTE[:-1],
        NOTE + "\n",
        NOTE + "more\n",
        "\n" + NOTE,
        NOTE.replace("\n\n", "\n"),
        NOTE.replace("\n\n", "\nextension\n\n"),
        NOTE.replace("\n17\n", "\n017\n"),
        NOTE.replace("\n17\n", "\n-17\n"),
        NOTE.replace("\n17\n", "\n+17\n"),
        NOTE.replace("\n17\n", "\n 17\n"),
        NOTE.replace("\n17\n", "\n１７\n"),
        NOTE.replace("\n17\n", "\n1234567890123456\n"),
        NOTE.replace("\n17\n", "\n\n"),
        NOTE.replace("—", "-"),
        NOTE.replace("— ", "—  "),
        NOTE.replace("\n", "\r\n"),
        NOTE.replace("=\n\n", "\n\n"),
        NOTE.replace(HEAD.origin, ""),
        NOTE[:-3] + "\n",
        NOTE.replace(SERVER.name, "two names"),
        NOTE.replace(SERVER.name, "a+b"),
        NOTE.replace(HEAD.origin, "\ud800"),
        "x" * (LARGEST + 1),
    ],
)
def test_a_damaged_note_cannot_be_read(note: str) -> None:
    for cosigned in (False, True):
        with pytest.raises(Unreadable):
            open_checkpoint(note, SERVER.public, cosigned=cosigned)


@pytest.mark.parametrize(
    "note",
    [
        NOTE.replace("\n17\n", "\n18\n"),
        NOTE.replace("disavow/run/", "disavow/ruN/"),
        replace(HEAD, root=bytes(32)).body + "\n" + NOTE.rpartition("\n\n")[2],
    ],
)
def test_a_changed_note_bears_a_false_signature(note: str) -> None:
    with refuses(VerificationError, SERVER.name, "false signature") as caught:
        open_checkpoint(note, SERVER.public)
    assert not isinstance(caught.value, Unreadable)


def test_no_single_character_of_a_note_can_be_changed() -> None:
    for place in range(len(NOTE)):
        for other in ("A", "\n", " "):
            if NOTE[place] == other:
                continue
            with pytest.raises(VerificationError):
                open_checkpoint(NOTE[:place] + other + NOTE[place + 1 :], SERVER.public)
        with pytest.raises(VerificationError):
            open_checkpoint(NOTE[:place] + NOTE[place + 1 :], SERVER.public)


@pytest.mark.parametrize("bits", [bytes(32), b"\xff" * 32, b"\x01" + bytes(31)])
def test_bytes_that_are_no_point_of_the_curve_hold_nothing(bits: bytes) -> None:
    assert not PublicKey("n", bits).holds(bytes(range(64)), b"message")
    assert not SERVER.public.holds(b"", b"message")
    assert not SERVER.public.holds(bytes(65), b"message")


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a+b", "a\tb", "a\n", "x" * 101, "a\x00", "a\u200b", "é", "-a", "."]
)
def test_what_cannot_be_a_name_is_refused(name: str) -> None:
    with refuses(Unreadable, "1 to 100", "A-Z"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "7", "fl.example.org/server-1", "x" * 100, "ops@fl.example:8443", "a_b"])
def test_other_names_are_accepted(name: str) -> None:
    assert check_name(name) == name


GOOD = str(SERVER.public)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        "name+hash",
        GOOD + "=",
        GOOD + "\n",
        GOOD[:-1],
        GOOD.replace("fl.", "FL."),
        GOOD.replace(SERVER.public.hash.hex(), SERVER.public.hash.hex().upper()),
        GOOD.replace(SERVER.public.hash.hex(), "00000000"),
        f"n+{PublicKey('n', bytes(31)).hash.hex()}+{base64.b64encode(bytes([1]) + bytes(31)).decode()}",
        f"n+{PublicKey('n', bytes(32)).hash.hex()}+{base64.b64encode(bytes([2]) + bytes(32)).decode()}",
        f"n+{PublicKey('n', b'').hash.hex()}+",
        "+" + GOOD.partition("+")[2],
    ],
)
def test_a_damaged_public_key_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        PublicKey.parse(text)
