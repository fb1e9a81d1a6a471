"""Cosignatures as C2SP has them: nothing about one can be changed, and no witness counts twice."""

from __future__ import annotations

import pytest

from disavow.errors import Unreadable, VerificationError
from disavow.proof.cosignatures import Cosignature, WitnessKey, cosigners, parse_witnesses
from disavow.proof.notes import PublicKey
from disavow.proof.verify import examine
from tests.proof.mutating import byte_mutations, survivors
from tests.proof.vectors.valid import LEAVER
from tests.proof.vectors.witnesses import (
    ALL,
    FIRST,
    NOW,
    SECOND,
    cosigned,
    head_of,
    with_lines,
    witness_named,
    witnessed,
)
from tests.refusals import refuses


def test_a_key_is_of_its_own_kind() -> None:
    key = FIRST.public
    assert WitnessKey.parse(str(key)) == key
    assert str(key).split("+")[2].startswith("B")
    plain = PublicKey(key.name, key.raw)
    assert plain.hash != key.hash
    with refuses(Unreadable):
        WitnessKey.parse(str(plain))
    with refuses(Unreadable):
        PublicKey.parse(str(key))


def test_the_latest_cosignature_of_each_is_found() -> None:
    head = head_of(witnessed())
    lines = [Cosignature.parse(FIRST.cosign(head, NOW + more)) for more in (0, 7, 3)]
    found = cosigners(head, lines, [FIRST.public, SECOND.public])
    assert {key: each.time for key, each in found.items()} == {FIRST.public: NOW + 7}
    assert found[FIRST.public].moment == "2026-01-01T00:00:07+00:00"


def test_no_changed_cosignature_counts() -> None:
    world = witnessed()
    made, [line] = world.proof(LEAVER), cosigned(world, FIRST)
    assert examine(made.inputs(proof=with_lines(made, [line]).proof, witnesses=ALL[:1])).valid

    def counts(data: bytes) -> bool:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return False
        proof = with_lines(made, [text]).proof
        return text != line and examine(made.inputs(proof=proof, witnesses=ALL[:1])).valid

    tried, passed = survivors(byte_mutations(line.encode()), counts)
    assert tried > 500
    assert passed == []


@pytest.mark.parametrize("time", [0, 253_402_300_800, 2**64 - 1])
def test_a_time_that_cannot_be_is_no_cosignature(time: int) -> None:
    head = head_of(witnessed())
    line = Cosignature.parse(FIRST.cosign(head, time))
    assert not line.holds(FIRST.public, head)
    with refuses(VerificationError):
        cosigners(head, [line], [FIRST.public])


def test_a_file_of_keys_has_one_a_line() -> None:
    text = f"\n{FIRST.public}\r\n  {SECOND.public}\t\n\n"
    assert parse_witnesses(text) == (FIRST.public, SECOND.public)
    many = "".join(f"{witness_named(str(number)).public}\n" for number in range(1_001))
    for wrong in ("", "\n", f"{FIRST.public} {SECOND.public}", many, str(PublicKey("a", bytes(32)))):
        with refuses(Unreadable):
            parse_witnesses(wrong)
