"""Verify a proof that somebody sends: in a process of its own, with a limit on its time and its memory.

The verifier is made for hostile input. This keeps what it costs bounded too, and the service's memory out of its
reach.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from disavow.errors import BadRequest, DisavowError, NotFound, TooLarge
from disavow.proof.envelope import LARGEST
from disavow.proof.keys import keys_in, public_file, trusted_keys
from disavow.proof.verify import VerificationInputs, examine
from disavow.server.child_process import run_module

LONGEST_SECONDS = 20
_MEMORY = 2 << 30
_AT_ONCE = threading.BoundedSemaphore(4)
"""How many are verified at once; more are refused and not left waiting."""


def verify(proof: bytes, keys: Path, key: bytes | None = None) -> dict[str, Any]:
    """Verify a proof against the public keys of a folder, or against a key that came with it.

    Args:
        proof: Anything.
        keys: The folder of the operator's keys.
        key: Anything: a public key, or a list of them, to verify against in place of those.

    Returns:
        Whether it holds, and what became of every check.

    Raises:
        TooLarge: It is larger than any proof.
        BadRequest: It took too long.
        TooManyRequests: Others are being verified.

    """
    if len(proof) > LARGEST:
        raise TooLarge(f"a proof has at most {LARGEST:,} bytes")
    report = run_module(
        __name__,
        [str(_keys_file(keys))] if key is None else ["-", str(len(key))],
        (key or b"") + proof,
        at_once=_AT_ONCE,
        busy="too many proofs are being verified; try again",
        seconds=LONGEST_SECONDS,
    )
    if report is None:
        raise BadRequest("verifying this took more memory or time than is allowed")
    return report


def public_keys(keys: Path) -> bytes:
    """Read the public keys of a folder, as `disavow verify --key` takes them.

    Raises:
        NotFound: There are none.

    """
    return _keys_file(keys).read_bytes()


def _keys_file(keys: Path) -> Path:
    found = public_file(keys)
    if found is None:
        raise NotFound("this service has no signing key: nothing here is signed")
    return found


def _main() -> None:
    """Verify what comes on standard input, and print what became of it."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_SECONDS, LONGEST_SECONDS))
    key = sys.stdin.buffer.read(int(sys.argv[2])) if sys.argv[1] == "-" else None
    data = sys.stdin.buffer.read(LARGEST + 1)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    try:
        trusted = trusted_keys(Path(sys.argv[1])) if key is None else keys_in(key, "the key")
        report = examine(VerificationInputs(proof=data, trusted=trusted, now=now))
    except DisavowError as error:
        document: dict[str, Any] = {
            "valid": False,
            "code": error.code,
            "message": str(error),
            "checks": [],
            "warnings": [],
        }
    else:
        document = {
            "valid": report.valid,
            "code": report.failure.code if report.failure else None,
            "message": str(report.failure) if report.failure else None,
            "checks": [
                {"number": each.number, "name": each.name, "passed": each.passed, "detail": each.detail}
                for each in report.results
            ],
            "warnings": report.warnings,
        }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    _main()
