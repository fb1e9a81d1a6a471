"""Rounds as people and machines read them."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import Progress

from disavow.cli.output import advance, bar, progress
from disavow.ledger import RoundSummary
from disavow.runs import Run

HEADER = " round   accuracy      loss   clusters   participants     spread"


def line(summary: RoundSummary) -> str:
    """One row under `HEADER`."""
    evaluation = summary.evaluation
    accuracy = f"{evaluation.accuracy:.1%}" if evaluation else "-"
    loss = f"{evaluation.loss:.3f}" if evaluation else "-"
    return (
        f"{summary.number:6d} {accuracy:>10} {loss:>9} {summary.clusters:10d} {summary.participants:14d} "
        f"{summary.spread:10.4f}"
    )


def as_json(summary: RoundSummary) -> dict[str, Any]:
    """A round with everything its summary holds."""
    evaluation = summary.evaluation
    return {
        "number": summary.number,
        "attempt": summary.attempt,
        "standing": summary.standing,
        "participants": summary.participants,
        "clusters": summary.clusters,
        "delta": summary.delta,
        "spread": summary.spread,
        "model": summary.after,
        "recorded_at": summary.recorded_at.isoformat(),
        "accuracy": evaluation.accuracy if evaluation else None,
        "loss": evaluation.loss if evaluation else None,
    }


def watch(run: Run) -> None:
    """Train a run to its end, a row for each round and a bar below them."""
    console = progress()
    done = run.ledger.next_round()[0] - 1
    if done >= run.settings.rounds:
        return
    console.print(HEADER, style="bold")
    with bar(console, "training", run.settings.rounds, done) as shown:
        run.train(on_round=lambda summary: _show(shown, console, summary))


def _show(shown: Progress, console: Console, summary: RoundSummary) -> None:
    (shown.console if shown.live.is_started else console).print(line(summary))
    advance(shown)
