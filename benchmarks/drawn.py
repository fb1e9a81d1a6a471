"""How well a run directory tells who was drawn, if its mechanism keeps the updates of clients.

Trains with `federaser` and fresh draws, then forgets all it knew and looks at the run directory alone: for each
kept round it looks for the representatives whose updates make up the model. One JSON line a round: the logarithm to
the base of ten of how many times likelier the model is under them than with another representative in one cluster.
`next_best` is that of the cluster in which it is hardest to tell, `median` that of half the clusters.

python -m benchmarks.drawn             50 clients of digits, everything else by default
python -m benchmarks.drawn 20 3        other numbers of clients and rounds
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from disavow import config
from disavow.domain import Round
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.proof.noise import logged_tau

Vectors = npt.NDArray[np.float64]


def log10_odds(ledger: Ledger, record: Round, kept: dict[str, Vectors]) -> list[float]:
    """For each cluster, by how much its representative explains the round's model better than the next best."""
    change = ledger.model_after(record.number).astype(np.float64) - ledger.model_before(record.number)
    shares = [
        np.stack([cluster.weight * kept[slot.member.client] for slot in cluster.slots if slot.member])
        for cluster in record.clusters
    ]
    chosen = [0] * len(shares)
    rest = change - sum(each[0] for each in shares)
    while True:
        distances = [np.square(rest + each[at] - each).sum(axis=1) for each, at in zip(shares, chosen, strict=True)]
        best = [int(each.argmin()) for each in distances]
        gains = [each[at] - each.min() for each, at in zip(distances, chosen, strict=True)]
        worst = int(np.argmax(gains))
        if best[worst] == chosen[worst]:
            break
        rest += shares[worst][chosen[worst]] - shares[worst][best[worst]]
        chosen[worst] = best[worst]
    tau = logged_tau(ledger.policy, [(cluster.weight, cluster.spread) for cluster in record.clusters])
    seconds = [np.partition(each, 1)[1] - each.min() for each in distances if len(each) > 1]
    return sorted(float(each) / (2 * tau * tau) / math.log(10) for each in seconds)


def measure(clients: int, rounds: int) -> Iterator[dict[str, object]]:
    """Train, and look at every kept round."""
    values = {"rounds": rounds, "data": {"clients": clients}, "mechanism": {"name": "federaser"}}
    with tempfile.TemporaryDirectory() as folder:
        with Federation.create(
            Path(folder) / "run", config.from_values(values, source="bench"), keys=Path(folder)
        ) as run:
            run.train()
        with Ledger.open(Path(folder) / "run", keys=Path(folder)) as ledger:
            for each in ledger.kept_rounds(1):
                found = zip(each.members, ledger.kept_updates(each), strict=True)
                kept = {member.client: update.astype(np.float64) for member, update in found}
                odds = log10_odds(ledger, ledger.round(each.number), kept)
                summary = {"clusters": len(odds), "next_best": odds[0], "median": statistics.median(odds)}
                yield {"clients": clients, "round": each.number, **summary}


if __name__ == "__main__":
    counts = [int(argument) for argument in sys.argv[1:]]
    for line in measure(counts[0] if counts else 50, counts[1] if counts[1:] else 20):
        print(json.dumps(line), flush=True)
