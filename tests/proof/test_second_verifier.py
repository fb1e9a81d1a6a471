"""Both verifiers come to the same on every vector and every mutation."""

import copy
import json
import random
from typing import Any

import pytest

from disavow.errors import Unreadable
from disavow.proof import canonical
from tests.proof import second_verifier as second
from tests.proof.second_mutations import at_path, bases, figures, head, mutated, opened, roots
from tests.proof.second_opinion import KEY_TEXT, VECTORS, Object, Path_, first, name_of, read, sign, vectors
from tests.selection import some_of


@pytest.mark.parametrize("vector", vectors(), ids=name_of)
def test_vector(vector: Object) -> None:
    arguments: Object = {
        "proof": (VECTORS / vector["file"]).read_bytes(),
        "keys": (VECTORS / vector["key"]).read_bytes(),
        "opening": read(vector["opening"]),
        "receipts": [(VECTORS / receipt).read_bytes() for receipt in vector["receipts"]],
        "checkpoint": read(vector["checkpoint"]),
        "model": vector["model"],
        "what_if": vector["what_if"],
        "client": vector["client"],
        "word": read(vector["word"]),
        "witnesses": read(vector["witnesses"]),
        "quorum": vector["quorum"],
        "serving": read(vector["serving"]),
    }
    code, check = second.verify(**arguments)
    if vector["expected"] == "valid":
        assert (code, check) == (0, None)
    elif vector["expected"] == "valid-without-opening":
        assert (code, check) == (3, None)
    else:
        assert (code, check) == (vector["expected"]["exit_code"], vector["expected"]["check"])


# (3) Mutations


def test_bases_are_valid() -> None:
    assert len(bases()) >= 10
    for statement, opening, what_if in bases():
        assert second.verify(sign(statement), KEY_TEXT.encode(), opening, what_if=what_if) == (0, None)


@pytest.mark.parametrize("seed", some_of(range(40), range(3)))
def test_both_agree_on_mutations(seed: int) -> None:
    source = random.Random(seed)
    originals = bases()
    for _ in range(40):
        statement, opening, what_if = source.choice(originals)
        forged, what = mutated(statement, source)
        proof = sign(forged)
        arguments: Object = {"proof": proof, "keys": KEY_TEXT.encode(), "opening": opening, "what_if": what_if}
        assert second.verify(**arguments) == first(**arguments), what


DECIMALS = [None, "0.0", "5e-324", "0.25", "0.4", "1.0", "1.4", "2.0", "1e+200", "1.7976931348623157e+308", "-1.0"]
CHANGES: dict[Path_, list[Any]] = {
    ("leaves", 0, "policy", "representatives"): [0, 1, 2, 3, 4, 5, 4_294_967_295],
    ("leaves", 0, "policy", "x"): [1, 2, 3, 4, 5],
    ("leaves", 0, "policy", "delta"): DECIMALS,
    ("leaves", 0, "policy", "relative_delta"): DECIMALS,
    ("leaves", 0, "policy", "odds"): DECIMALS,
    ("leaves", 0, "policy", "sigma"): DECIMALS,
    ("leaves", 0, "policy", "statistics"): ["mean", "drawn", None],
    ("leaves", 0, "policy", "clustering"): ["mdav", "fixed", "alike"],
    ("leaves", 1, "delta"): DECIMALS,
    ("leaves", 1, "update_norm"): DECIMALS,
    ("leaves", 1, "pairs_within"): [*DECIMALS, "1.0000000000000002"],
    ("leaves", 1, "tau"): DECIMALS,
    ("bounds", "drawn"): ["0", "0.5", "0.4375", "0.7", "1", "1.5", None],
}


@pytest.mark.parametrize(
    "every", [pytest.param(8, id="some"), pytest.param(1, id="all", marks=pytest.mark.torture)]
)
@pytest.mark.parametrize("path", CHANGES, ids=str)
def test_both_agree_on_every_value_of_the_policy_and_of_a_round(path: Path_, every: int) -> None:
    """Whatever else hangs on it is made to fit, or left as it was; every value with some of the statements."""
    found = set()
    for place, (statement, opening, what_if) in enumerate(bases()):
        for value in CHANGES[path][place % every :: every]:
            for repairs in ([head], [figures, head]):
                forged = copy.deepcopy(statement)
                at_path(forged["predicate"], path[:-1])[path[-1]] = value
                for repair in repairs:
                    try:
                        repair(forged)
                    except (TypeError, ValueError, KeyError, ZeroDivisionError, OverflowError):
                        continue
                arguments: Object = {
                    "proof": sign(forged),
                    "keys": KEY_TEXT.encode(),
                    "opening": opening,
                    "what_if": what_if,
                }
                answer = second.verify(**arguments)
                assert answer == first(**arguments), (path, value)
                found.add(answer[1])
    assert len(found) > 1  # some hold, or are refused by another check


@pytest.mark.parametrize("seed", some_of(range(5), range(2)))
def test_both_agree_on_mutated_openings(seed: int) -> None:
    source = random.Random(seed)
    originals = bases()
    for _ in range(40):
        statement, opening, what_if = source.choice(originals)
        forged, what = mutated(json.loads(opening), source)
        arguments: Object = {"proof": sign(statement), "keys": KEY_TEXT.encode(), "what_if": what_if}
        data = second.canonical(forged)
        assert second.verify(**arguments, opening=data) == first(**arguments, opening=data), what


@pytest.mark.parametrize("seed", some_of(range(5), range(2)))
def test_both_agree_on_mutated_receipts(seed: int) -> None:
    source = random.Random(seed)
    originals = [vector for vector in vectors() if vector["expected"] == "valid" and vector["receipts"]]
    for _ in range(40):
        vector = source.choice(originals)
        receipts = [json.loads((VECTORS / receipt).read_bytes()) for receipt in vector["receipts"]]
        forged, what = mutated({"receipts": receipts}, source)
        if not isinstance(forged["receipts"], list):
            continue
        arguments: Object = {
            "proof": (VECTORS / vector["file"]).read_bytes(),
            "keys": (VECTORS / vector["key"]).read_bytes(),
            "opening": source.choice([None, read(vector["opening"])]),
            "receipts": [second.canonical(receipt) for receipt in forged["receipts"]],
            "what_if": vector["what_if"],
        }
        assert second.verify(**arguments) == first(**arguments), what


# Where the specification was silent once


def test_both_count_strings_and_brackets_alike() -> None:
    """Each bracket outside strings, each string, and each key: so many are read, and no more."""
    text, parts, limit = '{"a":"[{","b":[]}', 7, 1_500_000
    for over in (0, 1):
        rest = limit - parts - 2 + over
        data = ("[" + text + ',""' * rest + "]").encode()
        if over:
            with pytest.raises(second.UnreadableError):
                second.parse(data, len(data))
            with pytest.raises(Unreadable):
                canonical.decode_any(data, what="it", most=len(data))
        else:
            assert second.parse(data, len(data)) == canonical.decode_any(data, what="it", most=len(data))


# Where the two differed once


@pytest.mark.parametrize(
    ("spread", "tau"), [("1e-200", "1.3e-202"), ("1e+200", "2e+198"), (None, "0.002150284748363195")]
)
def test_both_agree_on_the_upper_bound_of_noise(spread: str | None, tau: str) -> None:
    statement, opening, _ = bases()[0]
    leaves = opened(statement["predicate"])
    shown = statement["predicate"]["clusters"]
    for cluster in shown if spread is not None else shown[1:]:
        leaf = leaves[cluster["leaf"]]
        leaf["tau"] = tau
        if spread is not None:
            cluster["spread"] = leaf["delta"] = spread
    for repair in (figures, roots, head):
        repair(statement)
    arguments: Object = {"proof": sign(statement), "keys": KEY_TEXT.encode(), "opening": opening}
    assert second.verify(**arguments) == first(**arguments)


def test_both_agree_on_a_cosignature_without_base64() -> None:
    statement, opening, _ = bases()[0]
    arguments: Object = {"proof": sign(statement), "keys": KEY_TEXT.encode(), "opening": opening}
    arguments["checkpoint"] = (statement["predicate"]["checkpoint"] + "\u2014 x\n").encode()
    assert second.verify(**arguments) == first(**arguments)
