"""The modules of the verify page in Node: they agree with Python and with the format, without a browser."""

from __future__ import annotations

import hashlib
import json
import math
import random
import shutil
import struct
import subprocess
import sys
from decimal import Decimal, localcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from disavow.proof.validation import write_decimal, write_figure
from tests.verifier.cases import VECTORS, Case, answered, mutated, vectors

NODE = shutil.which("node")
MODULES = Path(str(files("disavow.verifier") / "page"))
pytestmark = pytest.mark.skipif(
    NODE is None, reason="needs node, which runs the page's JavaScript without a browser"
)


def in_node(*arguments: str, lines: str) -> list[Any]:
    """What Node prints, a value of JSON a line."""
    done = subprocess.run([str(NODE), *arguments], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def verified(cases: list[Case]) -> list[Any]:
    lines = "".join(json.dumps(case.message()) + "\n" for case in cases)
    return in_node(str(Path(__file__).parent / "run_node.mjs"), str(MODULES), lines=lines)


def computed(script: str, values: list[Any]) -> list[Any]:
    """What a function of the modules gives for each value."""
    program = (
        f"const folder = {json.dumps(MODULES.as_uri() + '/')};\n"
        'import { createInterface } from "node:readline";\n'
        "const use = (name) => import(folder + name + '.mjs');\n"
        f"const compute = {script};\n"
        "for await (const line of createInterface({ input: process.stdin }))\n"
        "  console.log(JSON.stringify(await compute(JSON.parse(line), use)));\n"
    )
    lines = "".join(json.dumps(value) + "\n" for value in values)
    return in_node("--input-type=module", "--eval", program, lines=lines)


def test_every_vector_is_verified_as_its_index_says_and_as_python_says() -> None:
    cases = list(vectors())
    reports = verified([case for case, _ in cases])
    assert len(reports) == len(cases)
    for (case, expected), report in zip(cases, reports, strict=True):
        failed = report["failed"] or {"number": None, "name": None}
        found: Any = {"check": failed["number"], "name": failed["name"], "exit_code": report["exitCode"]}
        if isinstance(expected, str):
            found = {0: "valid", 3: "valid-without-opening"}[report["exitCode"]]
        assert found == expected, case.about
        assert answered(report) == case.expected(), case.about


@pytest.mark.parametrize("count", [600, pytest.param(6_000, marks=pytest.mark.torture)])
def test_mutations_agree(count: int) -> None:
    cases = list(mutated(count))
    for case, report in zip(cases, verified(cases), strict=True):
        assert answered(report) == case.expected(), case.about


def test_a_receipt_is_verified_in_the_place_of_a_proof() -> None:
    paths = sorted((VECTORS / "receipts").rglob("*.json"))
    keys = [VECTORS / "keys" / name for name in ("server.pub", "stranger.pub")]
    pairs = [(path, key) for path in paths for key in keys]
    cases = [Case(path.name, path.read_bytes(), key.read_bytes()) for path, key in pairs]
    codes = []
    for (path, key), report in zip(pairs, verified(cases), strict=True):
        if not report["receipt"]:
            continue
        command = [
            sys.executable,
            "-c",
            "from disavow.cli import main; main()",
            "verify",
            str(path),
            "--key",
            str(key),
        ]
        codes.append(report["exitCode"])
        if len(codes) % 9 == 1:  # each takes a process
            assert subprocess.run(command, capture_output=True, check=False).returncode == report["exitCode"], path
    assert {0, 1} <= set(codes)


def test_numbers_are_written_as_python_writes_them() -> None:
    source = random.Random(1)
    floats = [0.0, 5e-324, 1e16, 999999.5, 1000.125, 0.0001, 1e-05, 123456.5, 2.5e-10, sys.float_info.max]
    floats += [
        abs(x) for (x,) in (struct.unpack("d", source.randbytes(8)) for _ in range(3_000)) if math.isfinite(x)
    ]
    floats += [source.randrange(10**8) / 2 ** source.randrange(12) for _ in range(3_000)]
    script = """async (text, use) => {
        const { decimalOf, figureOf } = await use("kinds");
        return [decimalOf(Number(text)), figureOf(Number(text))];
    }"""
    found = computed(script, [repr(number) for number in floats])
    assert found == [[write_decimal(number), write_figure(number)] for number in floats]


def test_percentages_are_rounded_as_python_rounds_them() -> None:
    shares = [numerator / 64 for numerator in range(65)] + [random.Random(2).random() for _ in range(500)]
    script = 'async (share, use) => (await use("kinds")).fixed(share * 100, 1)'
    assert computed(script, shares) == [f"{share:.1%}"[:-1] for share in shares]


def test_sha256_is_sha256() -> None:
    data = [bytes(range(256)) * 3 for _ in range(1)] + [random.Random(3).randbytes(size) for size in range(200)]
    script = """async (hex, use) => {
        const [{ Sha256 }, bytes] = [await use("sha256"), await use("bytes")];
        const data = bytes.unhex(hex);
        const hash = new Sha256();
        for (let at = 0; at < data.length; at += 13) hash.update(data.subarray(at, at + 13));
        return bytes.hex(hash.digest());
    }"""
    assert computed(script, [each.hex() for each in data]) == [hashlib.sha256(each).hexdigest() for each in data]


def test_signatures_are_computed_where_the_browser_cannot() -> None:
    """The page's own Ed25519 against OpenSSL's: good, forged, of no point, of small order, with S too large."""
    source, order = random.Random(4), 2**252 + 27742317777372353535851937790883648493
    signatures = [(b"\1" + bytes(31), b"\1" + bytes(63), b"small order")]
    for _ in range(40):
        key, message = Ed25519PrivateKey.from_private_bytes(source.randbytes(32)), source.randbytes(50)
        public, good = key.public_key().public_bytes_raw(), key.sign(message)
        large = (int.from_bytes(good[32:], "little") + order).to_bytes(32, "little")
        at = source.randrange(64)
        forged = good[:at] + bytes([good[at] ^ 1 << source.randrange(8)]) + good[at + 1 :]
        signatures += [(public, good, message), (public, forged, message), (public, good[:32] + large, message)]
        signatures += [(source.randbytes(32), good, message), (public, good, message + b".")]

    def holds(public: bytes, signature: bytes, message: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        except InvalidSignature:
            return False
        return True

    script = """async (parts, use) => {
        const [{ computeEd25519, holdsEd25519 }, { unhex }] = [await use("ed25519"), await use("bytes")];
        return [await computeEd25519(...parts.map(unhex)), await holdsEd25519(...parts.map(unhex))];
    }"""
    found = computed(script, [[part.hex() for part in parts] for parts in signatures])
    expected = [holds(*parts) for parts in signatures]
    assert found == [[each, each] for each in expected]
    assert sum(expected) == 41


def test_the_limit_of_odds_is_the_nearest_float_to_a_logarithm() -> None:
    source = random.Random(5)
    limits = [1.0, 1.0000000000000002, sys.float_info.max, *(float(10**power) for power in range(1, 23))]
    limits += [1 + source.random() * 10 ** source.randrange(300) for _ in range(1_000)]
    found = computed('async (odds, use) => (await use("bounds")).nearestLog10(odds)', limits)
    with localcontext(prec=60):
        assert found == [float(Decimal(odds).log10()) for odds in limits]
