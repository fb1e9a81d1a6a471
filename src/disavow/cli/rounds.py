"""Rounds and verdicts as people and machines read them, as they come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

from disavow.cli.output import Bar, Console, size
from disavow.domain import ErasureRequest, Verdict, escaped, model_name
from disavow.erasure.purge import PurgeForecast
from disavow.ledger import Ledger, RoundSummary

_COLUMNS = 4
"""Metrics that a table of rounds has room for; `--json` has them all."""


def metrics_of(summaries: Sequence[RoundSummary], *, most: int | None = _COLUMNS) -> tuple[str, ...]:
    """List the metrics that a table of these rounds shows.

    Args:
        summaries: The rounds.
        most: How many; None for all.

    Returns:
        The names of what was measured, in order; none where nothing was.

    """
    names = dict.fromkeys(name for each in summaries if each.evaluation for name in each.evaluation.metrics)
    return tuple(names)[:most]


def header(metrics: Sequence[str]) -> str:
    """Give the heading of a table of rounds with these metrics."""
    columns = "".join(f"{escaped(name):>{_width(name)}}" for name in metrics)
    return f" round {columns}   clusters   participants     spread"


def line(summary: RoundSummary, metrics: Sequence[str]) -> str:
    """Give one row under `header`."""
    measured = summary.evaluation.metrics if summary.evaluation else {}
    columns = "".join(f"{show_metric(name, measured.get(name)):>{_width(name)}}" for name in metrics)
    return (
        f"{summary.number:6d} {columns} {summary.clusters:10d} {summary.participants:14d} "
        f"{'rebuilt' if summary.spread is None else f'{summary.spread:.4f}':>10}"
    )


def show_metric(name: str, value: float | None) -> str:
    """Give a figure as people read it: accuracies in per cent, all else in decimals."""
    if value is None:
        return "-"
    return f"{value:.1%}" if name == "accuracy" else f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3f}"  # noqa: PLR2004


def _width(name: str) -> int:
    return max(10, len(escaped(name)) + 2)


def trainers(summaries: Sequence[RoundSummary]) -> str | None:
    """What trained these rounds; None where nobody has said.

    Runs of rounds by the same one are put together, such as "compiled (rounds 1 to 7), pool (round 8)".
    """
    known = [summary for summary in summaries if summary.trainer is not None]
    runs = [list(group) for _, group in groupby(known, key=lambda summary: summary.trainer)]
    if len(runs) < 2:  # noqa: PLR2004 - one, or none
        return runs[0][0].trainer if runs else None
    return ", ".join(f"{run[0].trainer} ({_span(run[0].number, run[-1].number)})" for run in runs)


def _span(first: int, last: int) -> str:
    return f"round {first}" if first == last else f"rounds {first} to {last}"


def rebuilt(request: ErasureRequest) -> str:
    """How many rounds were retrained for a request, or rebuilt otherwise."""
    rounds = request.cost.rounds if request.cost else 0
    return f"{rounds} rounds {'rebuilt approximately' if request.approximate else 'retrained'}"


def verdict_line(verdict: Verdict, requests: int) -> str:
    """A verdict and how many requests it answers."""
    counted = "1 request" if requests == 1 else f"{requests} requests"
    return f"       {counted} to be forgotten: {verdict.in_full}"


def purge_line(forecast: PurgeForecast) -> str:
    """What a purge will do, in words."""
    cost, count = forecast.cost, len(forecast.requests)
    whose = "1 leaver is" if count == 1 else f"{count} leavers are"
    further = ""
    if forecast.first is not None and forecast.back_to is not None and forecast.back_to < forecast.first:
        further = f" (it goes back to {model_name(forecast.back_to - 1)}, the nearest that is kept)"
    return (
        f"{whose} removed from the model, from round {forecast.back_to} on{further}; {cost.rounds} rounds to "
        f"retrain, {cost.client_epochs:,} client-epochs, {size(cost.exchanged_bytes)} to exchange with clients, "
        f"about {cost.seconds:.0f} s"
    )


class Watch:
    """Shows a run at work: a row for each round, a line for each verdict, and a bar below them.

    `trainer` is what trained the last round that stands; where another one trains, that is said.
    """

    def __init__(
        self, console: Console, what: str, *, total: int, done: int = 0, trainer: str | None = None
    ) -> None:
        self._console = console
        self._trainer = trainer
        self._bar = Bar(console, what, total, done)
        self._metrics: tuple[str, ...] | None = None

    @classmethod
    def of(cls, console: Console, what: str, ledger: Ledger, *, total: int | None = None) -> Self:
        """Watch a run from where it stands now, up to `total` rounds, or as many as stand."""
        standing = ledger.last_round
        trainer = ledger.summary(standing).trainer if standing else None
        return cls(console, what, total=total or standing, done=standing, trainer=trainer)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def on_round(self, summary: RoundSummary) -> None:
        """A round was recorded."""
        if self._metrics is None:
            self._metrics = metrics_of([summary])
            self._console.print(header(self._metrics), style="bold")
        if summary.trainer not in (None, self._trainer):
            before = f", the rounds before it by {self._trainer}" if self._trainer else ""
            self._console.print(f"       round {summary.number}: trained by {summary.trainer}{before}")
            self._trainer = summary.trainer
        self._console.print(line(summary, self._metrics))
        self._bar.update(summary.number)

    def on_verdict(self, verdict: Verdict, requests: int) -> None:
        """Requests were judged."""
        self._console.print(verdict_line(verdict, requests), style="bold")
        if verdict.undoes is not None:
            self._bar.update(verdict.undoes - 1)

    def on_purge(self, forecast: PurgeForecast) -> None:
        """A purge begins."""
        self._console.print(f"       purge: {purge_line(forecast)}", style="bold")
        self._bar.update((forecast.back_to or 1) - 1)

    def on_answer(self, request: ErasureRequest) -> None:
        """A request was answered, and its client deleted."""
        cost = request.cost
        work = f", {rebuilt(request)}" if cost and cost.rounds else ""
        self._console.print(f"       request {request.number} answered{work}")

    def on_note(self, note: str) -> None:
        """Something is not as it should be."""
        self._console.print(f"note: {note}")

    def on_opening(self, request: int, path: Path) -> None:
        """The opening of a request was written."""
        self._console.print(f"       request {request}: its opening, for the leaver alone: {path}")
