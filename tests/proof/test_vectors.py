"""The checked-in vectors: each is verified as its index says, and all are what their script writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from disavow.errors import Unreadable
from disavow.proof.keys import trusted_keys
from disavow.proof.verify import CHECKS, VerificationInputs, examine
from disavow.proof.witness_keys import read_witnesses
from tests.proof.vectors.build import FOLDER, INDEX, build

VECTORS: list[dict[str, Any]] = json.loads((FOLDER / INDEX).read_text(encoding="utf-8"))


def inputs_of(vector: dict[str, Any]) -> VerificationInputs:
    def read(path: str | None) -> bytes | None:
        return None if path is None else (FOLDER / path).read_bytes()

    return VerificationInputs(
        proof=(FOLDER / vector["file"]).read_bytes(),
        trusted=trusted_keys(FOLDER / vector["key"]),
        opening=read(vector["opening"]),
        receipts=[(FOLDER / path).read_bytes() for path in vector["receipts"]],
        checkpoint=read(vector["checkpoint"]),
        model=vector["model"],
        what_if=vector["what_if"],
        client=vector["client"],
        word=read(vector["word"]),
        witnesses=() if vector["witnesses"] is None else read_witnesses(FOLDER / vector["witnesses"]),
        quorum=vector["quorum"],
        serving=read(vector["serving"]),
    )


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{Path(vector['file']).stem}: {vector['about']}")
def test_each_vector_is_verified_as_its_index_says(vector: dict[str, Any]) -> None:
    if vector["expected"] == {"check": None, "name": None, "exit_code": 2}:
        with pytest.raises(Unreadable):
            inputs_of(vector)
        return
    report = examine(inputs_of(vector))
    if report.failure is not None and report.failed is not None:
        refused = {"check": report.failed.number, "name": report.failed.name}
        assert vector["expected"] == {**refused, "exit_code": report.failure.exit_code}, report.failure
    else:
        assert vector["expected"] == ("valid" if report.named else "valid-without-opening")


def test_the_script_writes_the_vectors_bit_for_bit() -> None:
    built = build()
    present = {
        path.relative_to(FOLDER).as_posix()
        for path in FOLDER.rglob("*")
        if path.suffix in (".json", ".pub", ".txt")
    }
    assert present == built.keys()
    assert [path for path, data in built.items() if (FOLDER / path).read_bytes() != data] == []


def test_every_check_refuses_one_of_the_vectors() -> None:
    refused = {vector["expected"]["name"] for vector in VECTORS if isinstance(vector["expected"], dict)}
    assert refused == {*CHECKS, None}


def test_every_vector_is_small() -> None:
    assert max(path.stat().st_size for path in (FOLDER / "proofs").iterdir()) < 16_000
