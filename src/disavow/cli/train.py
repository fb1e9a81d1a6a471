"""`disavow train` and `disavow resume`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import typer

from disavow import config
from disavow.cli.output import loading, print_json, progress, results, size
from disavow.cli.passphrase import ask_passphrase
from disavow.cli.rounds import Watch, show_metric
from disavow.domain import escaped, model_name
from disavow.errors import BudgetSpent
from disavow.federation import Callbacks, Federation

_INTERRUPTED = 130


def train(
    config_file: Path,
    directory: Path,
    *,
    as_json: bool,
    task: str | None = None,
    models: str | None = None,
    database: str | None = None,
) -> None:
    """Start a run and train it; a task, a place for its models or a database goes before that of the settings."""
    settings = config.load(config_file)
    if task is not None:  # into the settings, so that the run names it
        named = settings.task.model_copy(update={"factory": task})
        settings = settings.model_copy(update={"task": named})
    with Federation.create(
        directory, settings, models=models, database=database, ask=ask_passphrase, loading=_bar
    ) as federation:
        show_engine(federation)
        show_notes(federation)
        _warn_unsigned(federation)
        spent = go_on(federation)
        report(federation, as_json=as_json, spent=spent)


def resume(directory: Path, *, as_json: bool, task: str | None = None) -> None:
    """Go on with a run."""
    with Federation.open(directory, task, write=True, ask=ask_passphrase, loading=_bar) as federation:
        federation.load()
        standing = federation.ledger.last_round  # a damaged run is refused before anything is said
        show_engine(federation)
        show_notes(federation)
        progress().print(f"{directory} holds {standing} of {federation.settings.rounds} rounds")
        spent = go_on(federation)
        report(federation, as_json=as_json, spent=spent)


def _bar() -> AbstractContextManager[Callable[[str, int, int | None], None]]:
    return loading(progress())


def show_engine(federation: Federation) -> None:
    """Which engine trains, and why no faster one."""
    if (choice := federation.engine_choice) is not None:
        progress().print(f"engine: {choice}")


def show_notes(federation: Federation) -> None:
    """What is not as it should be with the run's data."""
    for note in federation.notes:
        progress().print(f"note: {note}")


def _warn_unsigned(federation: Federation) -> None:
    """Say that nothing binds the server before there is a key."""
    if federation.ledger.signer is None:
        progress().print(
            f"note: there is no signing key in {federation.keys}, so neither this run's log nor its proofs are "
            "signed; `disavow keygen` makes a key, and what was recorded before it is marked as signed late"
        )


def go_on(federation: Federation) -> BudgetSpent | None:
    """Train to the end, to an interruption from the keyboard, or until the privacy budget is spent."""
    rounds = federation.settings.rounds
    try:
        with Watch.of(progress(), "training", federation.ledger, total=rounds) as watch:
            heard = Callbacks(
                watch.on_round,
                watch.on_verdict,
                watch.on_answer,
                watch.on_opening,
                on_note=watch.on_note,
                on_purge=watch.on_purge,
            )
            federation.train(heard)
    except KeyboardInterrupt:
        print(f"interrupted; `disavow resume {federation.directory}` goes on", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    except BudgetSpent as refusal:
        standing = federation.ledger.last_round
        return BudgetSpent(
            f"{refusal}; {standing} of {rounds} rounds stand, {model_name(standing)} is usable and served, and "
            "erasures are still honoured"
        )
    return None


def report(federation: Federation, *, as_json: bool, spent: BudgetSpent | None = None) -> None:
    """What a run came to; where its budget is spent, that is raised after it."""
    _show(federation, as_json=as_json)
    if spent is not None:
        raise spent


def _show(federation: Federation, *, as_json: bool) -> None:
    ledger, directory = federation.ledger, federation.directory
    standing = [summary for summary in ledger.summaries() if summary.standing]
    choice = federation.engine_choice
    if as_json:
        print_json(
            {
                "run": str(directory),
                "run_id": ledger.run_id,
                "initial_model": ledger.initial_model,
                "engine": choice.to_json() if choice else None,
                "rounds": [summary.to_json() for summary in standing],
            }
        )
        return
    if not standing:
        results().print(f"no rounds stand in {directory}; the initial model is served")
        return
    last = standing[-1]
    measured = last.evaluation.metrics.items() if last.evaluation else ()
    metrics = "".join(f"{escaped(name)} {show_metric(name, value)}, " for name, value in measured)
    where = directory if ledger.models_at is None else f"{directory} and {ledger.models_at}"
    results().print(
        f"{len(standing)} rounds, {metrics}{size(ledger.stored_bytes())} in {where}\nmodel {last.after}"
    )
