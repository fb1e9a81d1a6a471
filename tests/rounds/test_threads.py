"""A round has the same bits whatever the number of threads: here, where there is one, and in a process of three."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from disavow.config import PROJECTION_LIMIT
from disavow.domain import Policy
from disavow.rounds.broadcast import broadcast
from disavow.rounds.round import close_round
from disavow.rounds.threads import in_threads, one_thread
from disavow.rounds.vectors import Updates
from tests.rounds.builders import OPTIONS, POLICY, gaussian, layout_of_size, ledger_of, updates_of

ROOT = Path(__file__).parents[2]

CALIBRATED = {"noise": "calibrated", "clip": 10.0, "tau": 0.1}
CASES: dict[str, tuple[int, int, dict[str, object]]] = {
    "default": (20, 30_000, {}),
    "cosine": (20, 30_000, {"metric": "cosine"}),
    "published": (8, 2_000, {"metric": "published"}),
    "constrained-kmeans": (20, 30_000, {"clustering": "constrained-kmeans"}),
    "fixed, Laplace": (20, 30_000, {"clustering": "fixed", "distribution": "laplace", "sticky": False}),
    "calibrated": (20, 30_000, CALIBRATED),
    "close together": (20, 30_000, {}),
    "projected": (PROJECTION_LIMIT + 20, 200, {"k": 40}),
    "projected, cosine": (PROJECTION_LIMIT + 20, 200, {"k": 40, "metric": "cosine"}),
}


def updates_for(name: str, count: int, size: int) -> Updates:
    vectors = gaussian(count, size, seed=len(name))
    if name == "close together":
        vectors[1::2] = vectors[::2] * (1 + 1e-6)
    return updates_of(vectors, [1 + i % 7 for i in range(count)])


def digests_of_all() -> dict[str, str]:
    """The digest of each case."""
    with tempfile.TemporaryDirectory() as scratch:
        return {name: digest_of(name, Path(scratch)) for name in CASES}


def digest_of(name: str, folder: Path) -> str:
    """All that two rounds leave behind, as one digest; the second one goes by the clusters of the first."""
    count, size, changes = CASES[name]
    policy: Policy = replace(POLICY, **changes)  # type: ignore[arg-type]
    updates, hashed = updates_for(name, count, size), hashlib.sha256()
    with ledger_of(folder / name, updates.clients, layout_of_size(size), policy) as ledger:
        for _ in range(2):
            recorded = close_round(ledger, broadcast(ledger, OPTIONS.clock()), updates, OPTIONS)
            hashed.update(json.dumps(asdict(recorded), default=str).encode())
            hashed.update(ledger.model_after(recorded.number).tobytes())
    return hashed.hexdigest()


def in_a_process(threads: int) -> dict[str, str]:
    # passive: more threads than cores must not wait for each other in a busy loop
    environment = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)),
        "OMP_WAIT_POLICY": "passive",
    }
    command = [sys.executable, "-m", "tests.rounds.test_threads", str(threads)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def digests() -> dict[int, dict[str, str]]:
    assert torch.get_num_threads() == 1
    return {1: digests_of_all(), 3: in_a_process(3)}


@pytest.mark.parametrize("name", CASES)
def test_a_round_has_the_same_bits_with_any_number_of_threads(
    name: str, digests: dict[int, dict[str, str]]
) -> None:
    assert digests[1][name] == digests[3][name]


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with one_thread():
            assert torch.get_num_threads() == 1
        with pytest.raises(KeyError), one_thread():
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_results_come_in_order_from_threads_that_have_one_thread_each() -> None:
    with one_thread():
        found = list(in_threads(lambda i: (i, torch.get_num_threads()), range(100)))
    assert found == [(i, 1) for i in range(100)]


def test_an_error_in_a_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda i: 1 // (50 - i), range(100)))


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    print(json.dumps(digests_of_all()))
