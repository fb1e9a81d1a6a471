"""Seconds and memory to cluster large rounds: 52,000 parameters, k = 10, exact spreads included."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import torch

from disavow.config import from_values
from disavow.domain import Layout, TensorSpec
from disavow.proof.keys import child_environment
from disavow.rounds.cluster import cluster
from disavow.rounds.vectors import Updates

PARAMETERS = 52_000
K = 10


def measure(clients: int) -> dict[str, object]:
    """One round of that many clients, whose updates scatter around a few hundred common directions."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(200, PARAMETERS, generator=generator)
    vectors = torch.randn(clients, PARAMETERS, generator=generator)
    for i in range(clients):
        vectors[i] += centres[i % len(centres)]
    vectors *= 0.01
    updates = Updates(tuple(f"client-{i:05d}" for i in range(clients)), (100,) * clients, vectors)
    policy = from_values({"data": {"clients": clients}, "clustering": {"k": K}}, source="benchmark").policy
    layout = Layout((TensorSpec("weight", (PARAMETERS,)),))
    start = time.perf_counter()
    clusters = cluster(updates, policy=policy, layout=layout, previous=(), seed=1, round_number=1)
    seconds = time.perf_counter() - start
    return {
        "clients": clients,
        "parameters": PARAMETERS,
        "k": K,
        "clusters": len(clusters.members),
        "seconds": seconds,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "pairs_within_delta": clusters.pairs_within,
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
    else:
        for count in (1_000, 10_000):
            # a process each, so that the peak of one does not hide that of the other
            command = [sys.executable, "-m", "benchmarks.clustering", str(count)]
            subprocess.run(command, env=child_environment(), check=True)
