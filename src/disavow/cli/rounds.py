"""Rounds and verdicts as people and machines read them, as they come."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from disavow.cli.output import bar
from disavow.domain import ErasureRequest, Verdict
from disavow.ledger import RoundSummary

HEADER = " round   accuracy      loss   clusters   participants     spread"


def line(summary: RoundSummary) -> str:
    """One row under `HEADER`."""
    evaluation = summary.evaluation
    accuracy = f"{evaluation.accuracy:.1%}" if evaluation else "-"
    loss = f"{evaluation.loss:.3f}" if evaluation else "-"
    return (
        f"{summary.number:6d} {accuracy:>10} {loss:>9} {summary.clusters:10d} {summary.participants:14d} "
        f"{'rebuilt' if summary.spread is None else f'{summary.spread:.4f}':>10}"
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
        "rebuilt": summary.rebuilt,
        "model": summary.after,
        "recorded_at": summary.recorded_at.isoformat(),
        "accuracy": evaluation.accuracy if evaluation else None,
        "loss": evaluation.loss if evaluation else None,
    }


def rebuilt(request: ErasureRequest) -> str:
    """How many rounds were retrained for a request, or rebuilt otherwise."""
    rounds = request.cost.rounds if request.cost else 0
    return f"{rounds} rounds {'rebuilt approximately' if request.approximate else 'retrained'}"


class Watch:
    """Shows a run at work: a row for each round, a line for each verdict, and a bar below them."""

    def __init__(self, console: Console, what: str, *, total: int, done: int = 0) -> None:
        self._console = console
        self._bar = bar(console, what, total, done)
        self._headed = False

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def on_round(self, summary: RoundSummary) -> None:
        """A round was recorded."""
        if not self._headed:
            self._console.print(HEADER, style="bold")
            self._headed = True
        self._console.print(line(summary))
        self._bar.update(self._bar.task_ids[0], completed=summary.number)

    def on_verdict(self, verdict: Verdict, requests: int) -> None:
        """Requests were judged."""
        asked = "1 request" if requests == 1 else f"{requests} requests"
        self._console.print(f"       {asked} to be forgotten: {verdict.in_full}", style="bold")
        if verdict.undoes is not None:
            self._bar.update(self._bar.task_ids[0], completed=verdict.undoes - 1)

    def on_answer(self, request: ErasureRequest) -> None:
        """A request was answered, and its client deleted."""
        cost = request.cost
        work = f", {rebuilt(request)}" if cost and cost.rounds else ""
        self._console.print(f"       request {request.number} answered{work}")

    def on_opening(self, request: int, path: Path) -> None:
        """The opening of a request was written."""
        self._console.print(f"       request {request}: its opening, for the leaver alone: {path}")
