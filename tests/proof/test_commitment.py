"""A commitment is what the design says, byte for byte, and no two stories share one."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.proof.commitment import SALT_BYTES, commit


@dataclass(frozen=True)
class Story:
    run_id: str
    round_number: int
    salt: bytes
    client: str
    update_digest: bytes


thirty_two = st.binary(min_size=32, max_size=32)
# few letters and small numbers, so that stories that nearly agree are common
stories = st.builds(
    Story,
    run_id=st.text("ab", max_size=3),
    round_number=st.integers(0, 300),
    salt=st.sampled_from([bytes(32), b"a" * 32]),
    client=st.text("ab\0", max_size=3),
    update_digest=st.sampled_from([bytes(32), b"b" * 32]),
)


def test_the_bytes_are_those_of_the_design() -> None:
    salt, digest = bytes(range(32)), hashlib.sha256(b"update").digest()
    by_hand = b"".join(
        [
            b"disavow/slot/v1\x00",
            b"\x00\x00\x00\x03run",
            b"\x00\x00\x00\x00\x00\x00\x01\x02",
            salt,
            b"\x00\x00\x00\x05\xc3\xa9va\x21",
            digest,
        ]
    )
    found = commit(run_id="run", round_number=258, salt=salt, client="éva!", update_digest=digest)
    assert found == hashlib.sha256(by_hand).digest()


def test_it_never_changes_between_versions() -> None:
    found = commit(run_id="0" * 32, round_number=1, salt=bytes(32), client="client-01", update_digest=bytes(32))
    assert found.hex() == PINNED


PINNED = "d5114277745433796595d53dae411aa9aaa114bb846e711b00a5c987b4f20b48"


@given(stories, stories)
def test_different_stories_have_different_commitments(one: Story, two: Story) -> None:
    assert (commit(**asdict(one)) == commit(**asdict(two))) == (one == two)


@given(thirty_two, thirty_two, st.text(min_size=1))
def test_without_the_salt_nothing_links_it_to_a_client(salt: bytes, other: bytes, client: str) -> None:
    def made(with_salt: bytes) -> bytes:
        return commit(run_id="run", round_number=1, salt=with_salt, client=client, update_digest=bytes(32))

    assert (made(salt) == made(other)) == (salt == other)


@pytest.mark.parametrize(("salt", "digest"), [(31, 32), (33, 32), (32, 31), (32, 0)])
def test_salts_and_digests_of_another_length_are_refused(salt: int, digest: int) -> None:
    with pytest.raises(ValueError, match="32 bytes each"):
        commit(run_id="run", round_number=1, salt=bytes(salt), client="c", update_digest=bytes(digest))


def test_a_salt_is_long_enough_that_nobody_guesses_it() -> None:
    assert SALT_BYTES == 32
