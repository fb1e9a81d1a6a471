"""How often the model rolls back, with real training: fresh against sticky clusters.

50 clients of digits, 50 rounds, a request after each round with probability 0.2, everything else by default; the
same request streams for every row.

python -m benchmarks.rollbacks 100    that many streams, a Markdown table; goes on where it was interrupted
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from disavow import config
from disavow.config import Settings
from disavow.domain import VerdictKind
from disavow.federation import Federation

CHOICES = ((4, 2), (6, 3))
STREAMS = 100
RESULTS = Path("bench-results") / "rollbacks.jsonl"
Key = tuple[int, int, bool]


@dataclass(frozen=True)
class Outcome:
    """What one request stream came to."""

    requests: int
    rollbacks: int
    retrained_rounds: int
    accuracy: float


def settings_of(choice: Key, seed: int) -> Settings:
    """What a run of this row is told."""
    k, x, sticky = choice
    return config.from_values(
        {
            "seed": seed,
            "rounds": 50,
            "draws": "seeded",
            "data": {"clients": 50},
            "clustering": {"k": k, "sticky": sticky},
            "deniability": {"x": x},
            "requests": {"rate": 0.2},
        },
        source="benchmark",
    )


def one(choice: Key, seed: int) -> Outcome:
    """Train one run to its end, requests and all."""
    settings = settings_of(choice, seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        Federation.create(Path(folder) / "run", settings, keys=Path(folder) / "keys") as run,
    ):
        run.train()
        requests = run.ledger.requests()
        evaluation = run.ledger.summary(settings.rounds).evaluation
        retrained = len(run.ledger.summaries()) - settings.rounds
    rollbacks = sum(r.verdict is not None and r.verdict.kind is VerdictKind.ROLLBACK for r in requests)
    return Outcome(len(requests), rollbacks, retrained, evaluation.accuracy if evaluation else 0.0)


def main(streams: int) -> None:
    """Run every choice on every stream and print the table. Runs that were finished before are not repeated."""
    choices: list[Key] = [(*choice, sticky) for choice, sticky in product(CHOICES, (False, True))]
    found = _finished()
    jobs = [(c, s) for s in range(1, streams + 1) for c in choices if (c, s) not in found]
    RESULTS.parent.mkdir(exist_ok=True)
    with (
        ProcessPoolExecutor(
            2, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
        ) as pool,
        RESULTS.open("a") as kept,
    ):
        for done, (job, outcome) in enumerate(zip(jobs, pool.map(_call, jobs), strict=True), start=1):
            found[job] = outcome
            row = {"choice": job[0], "seed": job[1], "of": _digest(*job), **asdict(outcome)}
            kept.write(json.dumps(row) + "\n")
            kept.flush()
            print(f"\r{done} of {len(jobs)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{streams} request streams; 95 % intervals in brackets\n")
    print("| k | x | clusters | rollbacks | retrained rounds | of fresh | accuracy |")
    print("|---|---|---|---|---|---|---|")
    for k, x, sticky in choices:
        seeds = range(1, streams + 1)
        mine = [found[(k, x, sticky), seed] for seed in seeds]
        fresh = [found[(k, x, False), seed] for seed in seeds]
        print(
            f"| {k} | {x} | {'sticky' if sticky else 'fresh'} | {_mean([o.rollbacks for o in mine])} "
            f"| {_mean([o.retrained_rounds for o in mine])} | {_ratio(mine, fresh) if sticky else '1'} "
            f"| {np.mean([o.accuracy for o in mine]):.3f} |"
        )


def _finished() -> dict[tuple[Key, int], Outcome]:
    """What earlier calls have finished with the settings as they are now."""
    if not RESULTS.exists():
        return {}
    found = {}
    for line in RESULTS.read_text().splitlines():
        row = json.loads(line)
        choice, seed = row.pop("choice"), row.pop("seed")
        k, x, sticky, *more = choice
        key = (k, x, sticky)
        if not more and row.pop("of", None) == _digest(key, seed):
            found[key, seed] = Outcome(**row)
    return found


def _digest(choice: Key, seed: int) -> str:
    return hashlib.sha256(config.to_toml(settings_of(choice, seed), comments=False).encode()).hexdigest()


def _call(job: tuple[Key, int]) -> Outcome:
    return one(*job)


def _mean(values: Sequence[float]) -> str:
    """Mean with its 95 % interval."""
    half = 1.96 * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.1f} ({max(0, np.mean(values) - half):.1f} to {np.mean(values) + half:.1f})"


def _ratio(mine: list[Outcome], fresh: list[Outcome]) -> str:
    """Ratio of means with a bootstrap interval over streams, which the two share."""
    pairs = np.array([(a.retrained_rounds, b.retrained_rounds) for a, b in zip(mine, fresh, strict=True)])
    generator = np.random.default_rng(1)
    drawn = pairs[generator.integers(len(pairs), size=(10_000, len(pairs)))].mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        if not pairs[:, 1].any():
            return "-"
        low, high = np.nanquantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
        return f"{pairs[:, 0].mean() / pairs[:, 1].mean():.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STREAMS)
