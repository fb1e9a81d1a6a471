"""Follow a federation at work, and tell trackers what happens in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from disavow.domain import Cost, ErasureRequest, Verdict
from disavow.ledger import Ledger, RoundSummary
from disavow.tracking.tracker import Tracker

COSTS = {"rounds": "rounds", "client_epochs": "client-epochs", "exchanged_bytes": "bytes exchanged", "seconds": "s"}
"""What an erasure costs, as it is written in words."""


class Follower:
    """Turns what a federation reports into figures and notes, and passes them to trackers.

    The step of everything is the number of rounds that have been executed, so that it never goes back. The curve
    `round`, how many rounds stand, does: at each rollback.

    A tracker that fails is left out from then on: neither training nor an erasure may fail because of one.

    Args:
        ledger: Gives the run, as it is open now.

    Attributes:
        on_note: Called with why a tracker is left out, or a metric.

    """

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self.on_note: Callable[[str], None] = lambda note: None
        self._ledger = ledger
        self._trackers: list[Tracker] = []
        self._steps: dict[tuple[int, int], int] = {}
        self._cost: tuple[int, Cost] | None = None

    def add(self, tracker: Tracker) -> None:
        """Tell a tracker which run it is, and from now on what happens in it. It may raise whatever it likes."""
        ledger = self._ledger()
        facts = {name: str(value) for name, value in asdict(ledger.policy).items() if value is not None}
        tracker.start(ledger.run_id, ledger.directory.absolute().name, facts)
        self._trackers.append(tracker)

    def on_round(self, summary: RoundSummary) -> None:
        """Write a round: its number, who took part, its metrics."""
        figures: dict[str, float] = {
            "round": summary.number,
            "participants": summary.participants,
            "clusters": summary.clusters,
        }
        if summary.spread is not None:
            figures["spread"] = summary.spread
        measured = summary.evaluation.metrics if summary.evaluation else {}
        figures |= {f"metrics/{name}": value for name, value in self._without_ids(measured).items()}
        step = self._step_of(summary)
        self._tell(lambda tracker: tracker.log(figures, step))

    def on_verdict(self, verdict: Verdict, requests: int) -> None:
        """Write a rollback, at once; other verdicts are written with the answer."""
        if verdict.undoes is None:
            return
        stands, step = verdict.undoes - 1, self._step()
        counted = "1 request" if requests == 1 else f"{requests} requests"
        self._tell(lambda tracker: tracker.log({"round": stands}, step))
        self._tell(lambda tracker: tracker.note("rollback", f"{verdict} ({counted})", step))

    def on_answer(self, request: ErasureRequest) -> None:
        """Write what a request came to, and what that cost."""
        step, cost = self._step(), request.cost
        words = [str(request.verdict)]
        if cost is not None and cost.rounds:
            words += [f"{value:.3g} {COSTS[name]}" for name, value in asdict(cost).items()]
        self._tell(lambda tracker: tracker.note(f"request-{request.number}", "; ".join(words), step))
        # requests that one rollback answers have one cost between them
        if cost is not None and self._cost != (step, cost):
            self._cost = (step, cost)
            figures = {f"erasure/{name}": float(value) for name, value in asdict(cost).items()}
            self._tell(lambda tracker: tracker.log(figures, step))

    def close(self) -> None:
        """Close every tracker."""
        self._tell(lambda tracker: tracker.close())

    def _tell(self, what: Callable[[Tracker], None]) -> None:
        for tracker in list(self._trackers):
            try:
                what(tracker)
            except Exception as error:  # a disk that is full, a server that is away: whatever a tracker may raise
                self._trackers.remove(tracker)
                self.on_note(f"{type(tracker).__name__} is not written to any more: {in_one_line(error)}")

    def _step(self) -> int:
        if not self._steps:
            self._count()
        return len(self._steps)

    def _step_of(self, summary: RoundSummary) -> int:
        key = (summary.number, summary.attempt)
        if key not in self._steps:
            self._count()
        return self._steps[key]

    def _count(self) -> None:
        """Number the rounds in the order in which they were executed, by whichever process."""
        summaries = self._ledger().summaries()
        self._steps = {(each.number, each.attempt): i for i, each in enumerate(summaries, start=1)}

    def _without_ids(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Leave out metrics that are named after a client, one who has left included."""
        parts = {name: _whole_words(name) for name in metrics}
        clients = self._ledger().known_among(sorted(set().union(*parts.values())))
        kept = {name: value for name, value in metrics.items() if not parts[name] & clients}
        if left := len(metrics) - len(kept):
            self.on_note(f"{left} of {len(metrics)} metrics are not tracked: they are named after clients")
        return kept


def _whole_words(name: str) -> set[str]:
    """Every part of a name that is cut neither before nor behind a letter or digit from another one.

    >>> sorted(_whole_words("loss-a1"))
    ['a1', 'loss', 'loss-a1']
    """
    starts = [at for at in range(len(name)) if at == 0 or not name[at - 1].isalnum()]
    ends = [at for at in range(1, len(name) + 1) if at == len(name) or not name[at].isalnum()]
    return {name[start:end] for start in starts for end in ends if start < end}


def in_one_line(error: Exception) -> str:
    """Give an exception as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
