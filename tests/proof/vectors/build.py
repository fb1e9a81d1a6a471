"""Write all vectors and their index: python -m tests.proof.vectors.build"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from disavow.errors import Unreadable
from disavow.proof import canonical
from disavow.proof.verify import CHECKS, TrustedKey, VerificationInputs, examine
from tests.proof.made_proofs import NEXT, SERVER, STRANGER
from tests.proof.vectors import hostile, records, serving, short, valid, witnesses
from tests.proof.vectors.vector import Vector

FOLDER = Path(__file__).parent
INDEX = "vectors.json"


@dataclass
class Files:
    """The files to write; the same bytes are kept once, under the first name."""

    found: dict[str, bytes]

    def keep(self, path: str, data: bytes) -> str:
        for known, same in self.found.items():
            if same == data and Path(known).parent == Path(path).parent:
                return known
        self.found[path] = data
        return path


def vectors() -> Iterator[Vector]:
    """All of them, with names that are given once."""
    yield from valid.vectors()
    yield from short.vectors()
    yield from records.vectors()
    yield from hostile.vectors()
    yield from records.refused()
    yield from witnesses.vectors()
    yield from serving.vectors()
    yield from serving.refused()


def build() -> dict[str, bytes]:
    """Every file, by its path in this folder."""
    files, index = Files({}), []
    for signer in (SERVER, NEXT, STRANGER):
        files.keep(f"keys/{signer.name.rpartition('/')[2]}.pub", f"{signer.public}\n".encode())
    for vector in vectors():
        index.append(
            {
                "file": files.keep(f"proofs/{vector.name}.json", vector.proof),
                "about": vector.about,
                "key": files.keep(f"keys/{vector.name}.json", vector.key or _keys(vector.trusted)),
                "client": vector.client,
                "opening": _kept(files, f"openings/{vector.name}.json", vector.opening),
                "receipts": [
                    files.keep(f"receipts/{vector.name}-{number}.json", data)
                    for number, data in enumerate(vector.receipts, start=1)
                ],
                "checkpoint": _kept(files, f"checkpoints/{vector.name}.txt", vector.checkpoint),
                "serving": _kept(files, f"serving/{vector.name}.json", vector.serving),
                "word": _kept(files, f"words/{vector.name}.json", vector.word),
                "witnesses": _kept(files, f"witnesses/{vector.name}.txt", _witnesses(vector)),
                "quorum": vector.quorum,
                "model": vector.model,
                "what_if": vector.what_if,
                "expected": _expected(vector),
            }
        )
    return {**files.found, INDEX: (json.dumps(index, indent=2, ensure_ascii=False) + "\n").encode()}


def _kept(files: Files, path: str, data: bytes | None) -> str | None:
    return None if data is None else files.keep(path, data)


def _expected(vector: Vector) -> object:
    if vector.fails is None:
        return "valid" if vector.named else "valid-without-opening"
    if not vector.fails:
        return {"check": None, "name": None, "exit_code": Unreadable.exit_code}
    report = examine(
        VerificationInputs(
            vector.proof,
            vector.trusted,
            vector.opening,
            vector.receipts,
            vector.model,
            vector.checkpoint,
            vector.what_if,
            vector.client,
            vector.word,
            vector.serving,
            witnesses=vector.witnesses,
            quorum=vector.quorum,
        )
    )
    code = report.failure.exit_code if report.failure else 0
    return {"check": CHECKS.index(vector.fails) + 1, "name": vector.fails, "exit_code": code}


def _witnesses(vector: Vector) -> bytes | None:
    return vector.witness_file or "".join(f"{key}\n" for key in vector.witnesses).encode() or None


def _keys(trusted: Sequence[TrustedKey]) -> bytes:
    if len(trusted) == 1 and trusted[0] == TrustedKey(trusted[0].key):
        return f"{trusted[0].key}\n".encode()
    entries = [
        {"key": str(each.key), "from": each.since, "until": each.until, "revoked": each.revoked} for each in trusted
    ]
    return canonical.encode({"type": "disavow/keys/v2", "keys": entries}) + b"\n"


def main() -> None:
    """Write them, and remove what is no longer one of them."""
    built = build()
    for path in _present():
        if path not in built:
            (FOLDER / path).unlink()
    for path, data in built.items():
        (FOLDER / path).parent.mkdir(exist_ok=True)
        (FOLDER / path).write_bytes(data)


def _present() -> Iterable[str]:
    kept = [path for path in FOLDER.rglob("*") if path.suffix in (".json", ".pub", ".txt")]
    return [path.relative_to(FOLDER).as_posix() for path in kept]


if __name__ == "__main__":
    main()
