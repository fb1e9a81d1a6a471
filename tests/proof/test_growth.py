"""The work of a verification grows with the size of what it is given, not with its square.

Work is counted, not timed: calls of functions, and comparisons of numbers that were read from files.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from disavow.proof import canonical
from disavow.proof.verify import TrustedKey, VerificationInputs, verify
from tests.proof.made_proofs import SERVER, client, signer_named
from tests.proof.vectors.short import short
from tests.proof.vectors.valid import LEAVER
from tests.proof.world import World


class Counted(int):
    """A number whose comparisons are calls of functions, so that they are counted too."""

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other) is True

    def __lt__(self, other: int) -> bool:
        return int.__lt__(self, other)

    def __le__(self, other: int) -> bool:
        return int.__le__(self, other)

    def __gt__(self, other: int) -> bool:
        return int.__gt__(self, other)

    def __ge__(self, other: int) -> bool:
        return int.__ge__(self, other)

    def __hash__(self) -> int:
        return int.__hash__(self)


def work_of(inputs: VerificationInputs) -> int:
    """How many functions a verification calls, of Python and of C; it must find the proof valid."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        verify(inputs)
    finally:
        sys.setprofile(None)
    return calls


def key_leaves(n: int) -> VerificationInputs:
    world = World("keys").train(1)
    for number in range(n):
        world.rotate(signer_named(f"key-{number}"))
    return world.leave(LEAVER).proof(LEAVER).inputs()


def rounds_not_shown(n: int) -> VerificationInputs:
    world = World("elsewhere").train(1).train(n, without=[LEAVER])
    return world.leave(client(5)).leave(LEAVER, verdict="deniable").proof(LEAVER).inputs()


def clusters(n: int) -> VerificationInputs:
    return World("present").train(n).leave(LEAVER).proof(LEAVER).inputs()


def receipts(n: int) -> VerificationInputs:
    world = World("present").train(n).leave(LEAVER)
    return world.proof(LEAVER).inputs(receipts=[world.receipt(LEAVER, leaf) for leaf in range(1, n + 1)])


def receipts_and_keys(n: int) -> VerificationInputs:
    others = [TrustedKey(signer_named(f"key-{number}").public) for number in range(n)]
    return replace(receipts(n), trusted=[*others, TrustedKey(SERVER.public)])


def superseded_rounds(n: int) -> VerificationInputs:
    world = World("again").train(n).leave(client(5), verdict="rollback", to=1)
    receipts = [world.receipt(LEAVER, past.leaf) for past in world.pasts]
    return world.train(1).leave(LEAVER, verdict="deniable").proof(LEAVER).inputs(receipts=receipts)


def withdrawals(n: int) -> VerificationInputs:
    world = World("one by one", clients=7 * n).train(1)
    apart = [name for name in world.clients if name not in _mates(world)]
    for name in apart[:n]:
        world.leave(name, verdict="deniable")
    return world.leave(LEAVER, verdict="deniable").proof(LEAVER).inputs()


def requests_together(n: int) -> VerificationInputs:
    world = World("together", clients=7 * n).train(1)
    apart = [name for name in world.clients if name not in _mates(world)]
    return world.leave(LEAVER, *apart[:n], verdict="deniable").proof(LEAVER).inputs()


def withdrawn_from_the_cluster(n: int) -> VerificationInputs:
    world = World("emptied", clients=3 * n, k=3 * n, x=1).train(1)
    for name in [name for name in world.clients if name != LEAVER][:n]:
        world.leave(name, verdict="deniable")
    return world.leave(LEAVER, verdict="deniable").proof(LEAVER).inputs()


def closed_rounds(n: int) -> VerificationInputs:
    world = short("closed").train(1).train(n, without=[LEAVER])
    return world.leave(client(5)).leave(LEAVER, verdict="deniable").proof(LEAVER).inputs()


def closed_withdrawals(n: int) -> VerificationInputs:
    world = short("one by one", clients=7 * n).train(1)
    apart = [name for name in world.clients if name not in _mates(world)]
    for name in apart[:n]:
        world.leave(name, verdict="deniable")
    return world.leave(LEAVER, verdict="deniable").proof(LEAVER).inputs()


def withdrawn_slots(n: int) -> VerificationInputs:
    world = short("many slots").train(n).leave(client(5), client(6), verdict="deniable")
    return world.leave(LEAVER, verdict="deniable").proof(LEAVER).inputs()


def _mates(world: World) -> tuple[str, ...]:
    past = world.pasts[0]
    return past.group_of(past.slots[LEAVER]).clients


def slots(n: int) -> VerificationInputs:
    return World("wide", clients=n, k=n).train(1).leave(LEAVER).proof(LEAVER).inputs()


def cosignatures_and_keys(n: int) -> VerificationInputs:
    made = clusters(1)
    world = World("present").train(1).leave(LEAVER)
    cosigned = "".join(f"\N{EM DASH} witness-{number} AAAAAAA=\n" for number in range(n))
    keys = [TrustedKey(signer_named(f"key-{number}").public) for number in range(n)]
    return replace(
        made, checkpoint=(world.checkpoint() + cosigned).encode(), trusted=[*keys, TrustedKey(SERVER.public)]
    )


GROWING: dict[str, tuple[Callable[[int], VerificationInputs], int]] = {
    "key leaves": (key_leaves, 100),
    "rounds that are not shown": (rounds_not_shown, 100),
    "clusters and opened rounds": (clusters, 50),
    "receipts": (receipts, 50),
    "receipts and keys": (receipts_and_keys, 50),
    "superseded rounds": (superseded_rounds, 50),
    "withdrawals": (withdrawals, 50),
    "requests of one withdrawal": (requests_together, 50),
    "slots": (slots, 200),
    "slots withdrawn from the leaver's own cluster": (withdrawn_from_the_cluster, 50),
    "closed rounds": (closed_rounds, 100),
    "closed withdrawals": (closed_withdrawals, 50),
    "withdrawn slots and clusters": (withdrawn_slots, 50),
    "cosignatures and keys": (cosignatures_and_keys, 100),
}


@pytest.mark.parametrize("name", GROWING)
def test_work_does_not_grow_with_the_square(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a + b·n + c·n², the second difference over steps of n is 2·c·n²; for n·log n it is a small part."""
    read = canonical._integer
    # a digit alone stays as it is: versions are compared by type
    monkeypatch.setattr(canonical, "_integer", lambda text: Counted(read(text)) if len(text) > 1 else read(text))
    make, n = GROWING[name]
    work_of(make(n))  # what is made once, such as how each kind of record is read, is made here
    one, two, three = (work_of(make(times * n)) for times in (1, 2, 3))
    assert one < two < three
    assert three - 2 * two + one < 0.08 * two


@pytest.mark.torture
def test_a_proof_after_ten_thousand_rounds_and_a_thousand_withdrawals_is_below_two_megabytes() -> None:
    """Rounds of 40 of 4,000 clients; everybody who leaves was in about a hundred of them."""
    chance, leavers = random.Random(1), 1_000
    world = short("ten thousand", clients=4 * leavers, k=10, x=3)
    everybody = set(world.clients)
    for _ in range(10_000):
        world.train(without=everybody.difference(chance.sample(world.clients, 40)))
    names = chance.sample(world.clients, leavers)
    for name in names[:-1]:
        world.leave(name, verdict="deniable")
    made = world.leave(names[-1], verdict="deniable").proof(names[-1])
    size, start = len(made.proof), time.process_time()
    report = verify(made.inputs())
    print(f"{size / 1e6:.2f} MB, verified in {time.process_time() - start:.2f} s of processor time")
    assert len(report.survivors) > 50
    assert size < 2_000_000
