"""`disavow demo`: the main job, on data that is already here."""

from __future__ import annotations

import math
from itertools import count
from pathlib import Path

from disavow import config, runs
from disavow.cli.output import progress, results, size
from disavow.cli.train import go_on, report
from disavow.ledger import Ledger

_CLIENTS = 20


def demo(directory: Path | None, *, rounds: int, as_json: bool) -> None:
    """Train the demo's federation and say what to try next."""
    directory = directory or _free(Path("runs"))
    settings = config.from_values(
        {"draws": "seeded", "rounds": rounds, "data": {"clients": _CLIENTS}}, source="demo"
    )
    with runs.start(settings, directory) as run:
        policy, parameters = run.ledger.policy, run.ledger.layout.size
        progress().print(
            f"{_CLIENTS} clients hold real handwritten digits and train {settings.model.name} "
            f"({parameters:,} numbers).\n"
            f"Each round they are clustered into groups of at least k = {policy.k}; one member of\n"
            "each group is drawn in secret and perturbed, and only those enter the model.\n"
        )
        go_on(run, directory)
    if as_json:
        report(directory, as_json=True)
    else:
        _conclude(directory)


def _conclude(directory: Path) -> None:
    with Ledger.open(directory) as ledger:
        last = ledger.summaries()[-1]
        stored = size(ledger.stored_bytes())
    accuracy = last.evaluation.accuracy if last.evaluation else math.nan
    results().print(
        f"\nAfter {last.number} rounds the model reads {accuracy:.1%} of the digits it has never seen.\n"
        f"Its ledger is in {directory} ({stored}): every cluster, every model, and nowhere who was drawn.\n\n"
        "Try next:\n"
        f"  disavow status {directory}\n"
        f"  disavow fsck {directory}\n"
        "  disavow init config.toml\n"
        "  disavow train config.toml --run runs/mine"
    )


def _free(folder: Path) -> Path:
    """runs/demo, or the first of runs/demo-2, runs/demo-3, ... that is not there yet."""
    names = (folder / ("demo" if i == 1 else f"demo-{i}") for i in count(1))
    return next(path for path in names if not path.exists())
