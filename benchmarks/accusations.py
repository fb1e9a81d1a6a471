"""How often an audit accuses a server that did nothing wrong: erasures go back to round 1 and retrain exactly.

The intervals of an audit are to hold together in 95 % of cases, so at most 5 % of clean audits may accuse.

python -m benchmarks.accusations 40
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from disavow import config, runs
from disavow.audit.audit import Effort, audit
from disavow.audit.game import Stage
from disavow.audit.subject import subject_of

EFFORT = Effort(worlds=32, shadows=8, forgings=1)


def one(seed: int, folder: Path) -> tuple[bool, float]:
    """Whether a clean audit accuses, and the strongest attacker's AUC before the erasure."""
    values = {
        "seed": seed,
        "rounds": 4,
        "data": {"clients": 4, "test_fraction": 0.9},
        "clustering": {"k": 2},
        "deniability": {"x": 2},
        "noise": {"mode": "none"},
        "training": {"epochs": 10},
    }
    with runs.start(config.from_values(values, source="benchmark"), folder / "run", keys=folder / "keys") as run:
        run.train()
    report = audit(subject_of(folder / "run", "client-02"), EFFORT, work=folder / "work", keys=folder / "keys")
    if report.answer.verdict is None or report.answer.verdict.round != 1:
        raise RuntimeError(f"{report.answer.verdict}: this is not the case to be measured")
    return not report.clean, max(found.stages[Stage.BEFORE].auc.estimate or 0.0 for found in report.found)


def main(audits: int) -> None:
    """Run so many clean audits, each of another federation."""
    accused, caught = 0, 0
    for seed in range(1, audits + 1):
        with tempfile.TemporaryDirectory(prefix="disavow-accusations-") as folder:
            accuses, strongest = one(seed, Path(folder))
        accused += accuses
        caught += strongest > 0.7
        print(f"seed {seed}: {'accused' if accuses else 'clean'}, AUC before {strongest:.2f}", file=sys.stderr)
    print(json.dumps({"audits": audits, "accused": accused, "auc_before_above_0.7": caught}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
