"""`disavow demo`: the main job, on data that is already here: train, let clients leave, check the ledger."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

from rich.console import Console

from disavow import config, runs
from disavow.cli.erase import foretold, sentence
from disavow.cli.output import progress, results, size
from disavow.cli.rounds import Watch
from disavow.cli.train import go_on, report
from disavow.domain import VerdictKind
from disavow.erasure.dry_run import foresee
from disavow.ledger import Ledger, fsck

_CLIENTS = 20


def demo(directory: Path | None, *, rounds: int, as_json: bool) -> None:
    """Train the demo's federation, let clients leave it, and say what to try next."""
    directory = directory or _free(Path("runs"))
    settings = config.from_values(
        {"draws": "seeded", "rounds": rounds, "data": {"clients": _CLIENTS}}, source="demo"
    )
    console = progress()
    with runs.start(settings, directory) as run:
        policy, parameters = run.ledger.policy, run.ledger.layout.size
        console.print(
            f"{_CLIENTS} clients hold real handwritten digits and train {settings.model.name} "
            f"({parameters:,} numbers).\n"
            f"Each round they are clustered into groups of at least k = {policy.k}; one member of\n"
            "each group is drawn in secret and perturbed, and only those enter the model.\n"
        )
        go_on(run, directory)
        alone, together = _leavers(run)
        _let_leave(run, [alone], console)
        if together:
            _let_leave(run, together, console)
    if as_json:
        report(directory, as_json=True)
    else:
        _conclude(directory, [alone, *together])


def _leavers(run: runs.Run) -> tuple[str, list[str]]:
    """Somebody who can leave at once, and mates of its whose leaving after that takes a retraining."""
    mates = max((sorted(group) for group in run.ledger.membership(1)), key=lambda group: (-len(group), group))
    alone, rest = mates[0], mates[1:]
    for some in range(1, len(rest) + 1):
        forecast = foresee(run.ledger, [alone, *rest[:some]], run.conduct, run.mechanism)
        if forecast.verdict.kind is VerdictKind.ROLLBACK:
            return alone, rest[:some]
    return alone, []


def _let_leave(run: runs.Run, leavers: list[str], console: Console) -> None:
    names = " and ".join(leavers)
    forecast = foresee(run.ledger, leavers, run.conduct, run.mechanism)
    console.print(f"\n{names}: forget me.\nForeseen: {foretold(forecast)}.")
    started = time.monotonic()
    numbers = run.ledger.place_requests(leavers, key=run.tombstone_key(), at=run.conduct.clock())
    standing = run.ledger.next_round()[0] - 1
    with Watch(console, "retraining", total=standing, done=standing) as watch:
        run.honour_requests(watch.on_round, watch.on_verdict)
    [request] = run.ledger.requests(numbers[:1])
    console.print(f"{names}: {sentence(request)} ({time.monotonic() - started:.1f} s)")


def _conclude(directory: Path, gone: list[str]) -> None:
    faults = [finding for finding in fsck(directory) if finding.fault]
    with Ledger.open(directory) as ledger:
        standing = [summary for summary in ledger.summaries() if summary.standing]
        stored = size(ledger.stored_bytes())
    last = standing[-1]
    accuracy = f"{last.evaluation.accuracy:.1%}" if last.evaluation else "-"
    results().print(
        f"\nAfter {last.number} rounds, and without {', '.join(gone)}, the model reads {accuracy} of the digits\n"
        f"it has never seen. Its ledger is in {directory} ({stored}) and passes every check"
        f"{f' but {len(faults)}' if faults else ''}.\n\n"
        "Try next:\n"
        f"  disavow status {directory}\n"
        f"  disavow requests {directory}\n"
        f"  disavow fsck {directory} --absent {gone[0]}\n"
        f"  disavow erase {directory} {_next_after(gone)} --dry-run\n"
        "  disavow plan --clients 50 --rounds 50 --k 4 --k 8 --x 3\n"
        "  disavow init config.toml && disavow train config.toml --run runs/mine"
    )


def _next_after(gone: list[str]) -> str:
    """Somebody who is still in, to try it on."""
    return next(name for i in count(1) if (name := f"client-{i:02d}") not in gone)


def _free(folder: Path) -> Path:
    """runs/demo, or the first of runs/demo-2, runs/demo-3, ... that is not there yet."""
    names = (folder / ("demo" if i == 1 else f"demo-{i}") for i in count(1))
    return next(path for path in names if not path.exists())
