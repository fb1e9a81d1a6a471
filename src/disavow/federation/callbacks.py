"""What a caller hears while a federation trains or answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from disavow.domain import EngineChoice, ErasureRequest, Verdict
from disavow.erasure.purge import PurgeForecast

if TYPE_CHECKING:
    from disavow.rounds.training import OnRound
_P = ParamSpec("_P")


@dataclass(frozen=True)
class Callbacks:
    """What a caller hears while a federation trains or answers. Each may be left out.

    Args:
        on_round: Each round, once it is recorded and evaluated.
        on_verdict: A verdict and how many requests it answers, once it is in the ledger.
        on_answer: A request that is answered, its client deleted.
        on_opening: A request's number and where its opening was written.
        on_placed: The numbers of the requests that were placed.
        on_wait: Why the caller has to wait for another process.
        on_note: What is not as it should be with the run or its data.
        on_engine: Which engine is about to train, and why no faster one.
        on_purge: What a purge that is about to begin will undo and retrain.

    """

    on_round: OnRound = lambda summary: None
    on_verdict: Callable[[Verdict, int], None] = lambda verdict, requests: None
    on_answer: Callable[[ErasureRequest], None] = lambda request: None
    on_opening: Callable[[int, Path], None] = lambda request, path: None
    on_placed: Callable[[tuple[int, ...]], None] = lambda numbers: None
    on_wait: Callable[[str], None] = lambda why: None
    on_note: Callable[[str], None] = lambda note: None
    on_engine: Callable[[EngineChoice], None] = lambda choice: None
    on_purge: Callable[[PurgeForecast], None] = lambda forecast: None


NOBODY = Callbacks()


def report_answered(callbacks: Callbacks, answered: Sequence[ErasureRequest]) -> None:
    """Call `on_answer` with each request that was answered."""
    for request in answered:
        callbacks.on_answer(request)


def call_both(first: Callable[_P, None], second: Callable[_P, None]) -> Callable[_P, None]:
    """Give a function that calls two, in this order."""

    def both(*args: _P.args, **kwargs: _P.kwargs) -> None:
        first(*args, **kwargs)
        second(*args, **kwargs)

    return both
