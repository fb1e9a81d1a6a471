"""Accuracy with several representatives, and with running statistics drawn or averaged: ResNet-mini on CIFAR-10.

50 clients, 50 rounds, k = 10, as in the paper, without requests. Needs the data (docs/data.md) and a GPU, or
a day. Every run is a line of `results/representatives.jsonl`; those that are there are not repeated.

python -m benchmarks.representatives            run what is missing, print the table
python -m benchmarks.representatives --render   print the table of what is there
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from disavow import config
from disavow.config import EngineSettings
from disavow.federation import Federation
from reproduction.provenance import commit, device, versions

RESULTS = Path("results") / "representatives.jsonl"
SEEDS = (1, 2, 3)
LAST = 10
"""Rounds at the end of a run over which accuracies are averaged."""

SIGMAS = (0.005, 0.02)
"""The paper's tables here, and the default of a new run."""

METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {"clustering": {"k": 1}, "deniability": {"x": 1}, "noise": {"mode": "none"}},
    "s = 1, no noise": {"noise": {"mode": "none"}},
    **{
        f"s = {drawn}, σ = {sigma:g}, statistics {'drawn' if statistics == 'drawn' else 'averaged'}": {
            "clustering": {"representatives": drawn},
            "noise": {"sigma": sigma, "statistics": statistics},
        }
        for sigma in SIGMAS
        for drawn in (1, 3)
        for statistics in ("drawn", "mean")
    },
}


def settings_of(method: str, seed: int) -> config.Settings:
    """What a run is told."""
    values = METHODS[method]
    return config.from_values(
        {
            "seed": seed,
            "rounds": 50,
            "draws": "seeded",
            "data": {"name": "cifar10", "clients": 50},
            "model": {"name": "resnet-mini"},
            "training": {"epochs": 3, "batch_size": 128, "learning_rate": 0.02},
            "deniability": {"x": 3},
            **values,
            "clustering": {"k": 10, **values.get("clustering", {})},
        },
        source="benchmark",
    )


def one(method: str, seed: int) -> dict[str, Any]:
    """Train one run to its end."""
    start = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        Federation.create(Path(folder) / "run", settings_of(method, seed), keys=Path(folder) / "keys") as run,
    ):
        run.train()
        summaries = run.ledger.summaries()
    accuracies = [summary.evaluation.accuracy for summary in summaries if summary.evaluation]
    spread = [s.spread / s.update_norm for s in summaries if s.spread is not None and s.update_norm]
    return {
        "method": method,
        "seed": seed,
        "accuracy": accuracies,
        "spread_over_update": fmean(spread),
        "pairs_within_delta": fmean(s.pairs_within for s in summaries),
        "seconds": time.perf_counter() - start,
        "device": device(EngineSettings()),
        "commit": commit(),
        "versions": asdict(versions()),
    }


def found() -> dict[tuple[str, int], dict[str, Any]]:
    """The runs that are there."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {(line["method"], line["seed"]): line for line in map(json.loads, lines)}


def render() -> None:
    """Print the table."""
    lines = found()
    print("| method | seed " + " | seed ".join(map(str, SEEDS)) + " | mean | last round |")
    print("|---|" + "---|" * (len(SEEDS) + 2))
    for method in METHODS:
        mine = [lines[method, seed]["accuracy"] for seed in SEEDS if (method, seed) in lines]
        if len(mine) < len(SEEDS):
            continue
        late = [100 * fmean(each[-LAST:]) for each in mine]
        last = fmean(100 * each[-1] for each in mine)
        cells = " | ".join(f"{each:.1f}" for each in late)
        print(f"| {method} | {cells} | {fmean(late):.1f} ± {stdev(late):.1f} | {last:.1f} |")


def main() -> None:
    """Run what is missing."""
    done = found()
    for seed in SEEDS:
        for method in METHODS:
            if (method, seed) in done:
                continue
            line = one(method, seed)
            RESULTS.parent.mkdir(exist_ok=True)
            with RESULTS.open("a") as kept:
                kept.write(json.dumps(line) + "\n")
            print(f"{method}, seed {seed}: {line['accuracy'][-1]:.3f} in {line['seconds']:.0f} s", file=sys.stderr)
    render()


if __name__ == "__main__":
    render() if "--render" in sys.argv[1:] else main()
