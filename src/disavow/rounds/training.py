"""Round after round, until the ledger holds as many as were asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from disavow.ledger import Ledger, RoundSummary
from disavow.rounds.options import RoundOptions

if TYPE_CHECKING:
    from disavow.rounds.local_training import Engine

OnRound = Callable[[RoundSummary], None]
BetweenRounds = Callable[[], None]


def train(
    ledger: Ledger,
    engine: Engine,
    options: RoundOptions,
    *,
    rounds: int,
    on_round: OnRound = lambda summary: None,
    between_rounds: BetweenRounds = lambda: None,
) -> None:
    """Run and evaluate rounds until so many stand; a run that was interrupted goes on where it stood.

    Args:
        ledger: The run.
        engine: What trains its clients.
        options: How rounds are run.
        rounds: How many are to stand.
        on_round: Called with each new round, recorded and evaluated.
        between_rounds: Called before each round and after the last.

    Raises:
        RoundRefused: A round must not be recorded.

    """
    from disavow.rounds.round import run_round

    for summary in settle(ledger, engine, options):  # an interruption may have come just after a record
        on_round(summary)
    between_rounds()
    while ledger.last_round < rounds:
        run_round(ledger, engine, options)
        for summary in settle_newest(ledger, engine, options):
            on_round(summary)
        between_rounds()


def settle(ledger: Ledger, engine: Engine, options: RoundOptions) -> list[RoundSummary]:
    """Evaluate, then thin, after every record, also after one that an interruption cut off from it; in this order,
    because a model that was thinned cannot be evaluated. And have the head cosigned.

    Args:
        ledger: The run.
        engine: What evaluates.
        options: How much is retained.

    Returns:
        The rounds that had not been evaluated.

    """
    evaluated = evaluate_missing(ledger, engine)
    ledger.thin(options.retention)
    options.on_head(ledger, False)
    return evaluated


def settle_newest(ledger: Ledger, engine: Engine, options: RoundOptions) -> list[RoundSummary]:
    """Do what `settle` does after a record.

    Args:
        ledger: The run.
        engine: What evaluates.
        options: How much is retained.

    Returns:
        The rounds to report: those that had not been evaluated, and the newest also where nothing evaluates it.

    """
    settled = settle(ledger, engine, options)
    newest = ledger.last_round
    if settled and settled[-1].number == newest:
        return settled
    return [*settled, ledger.summary(newest)]


def evaluate_missing(ledger: Ledger, engine: Engine) -> list[RoundSummary]:
    """Evaluate the standing rounds that were recorded without getting so far.

    The newest comes first, up to one of which the engine says nothing: what it could say nothing of before must not
    keep it from the round that was just recorded.

    Args:
        ledger: The run.
        engine: What evaluates.

    Returns:
        These rounds, in their order.

    """
    import torch

    from disavow.rounds.vectors import Model

    evaluated: list[int] = []
    for number in reversed(ledger.unevaluated()):
        model = Model(ledger.layout, torch.from_numpy(ledger.model_after(number)))
        evaluation = engine.evaluate(model)
        if evaluation is None:
            break  # an engine without held-out data has none for the earlier ones either
        ledger.note_evaluation(number, evaluation)
        evaluated.append(number)
    return [ledger.summary(number) for number in sorted(evaluated)]
