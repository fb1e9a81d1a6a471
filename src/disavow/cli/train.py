"""`disavow train` and `disavow resume`."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from disavow import config, runs
from disavow.cli.output import loading, print_json, progress, results, size
from disavow.cli.passphrase import ask_passphrase
from disavow.cli.rounds import Watch
from disavow.cli.rounds import as_json as round_as_json
from disavow.domain import model_name
from disavow.errors import BudgetSpent
from disavow.ledger import Ledger
from disavow.runs import Run

_INTERRUPTED = 130


def train(config_file: Path, directory: Path, *, as_json: bool) -> None:
    """Start a run and train it."""
    settings = config.load(config_file)
    with loading(progress()) as on_progress:
        run = runs.start(settings, directory, ask=ask_passphrase, on_progress=on_progress)
    with run:
        show_notes(run)
        _warn_unsigned(run)
        spent = go_on(run, directory)
    report(directory, as_json=as_json, spent=spent)


def resume(directory: Path, *, as_json: bool) -> None:
    """Go on with a run."""
    with loading(progress()) as on_progress:
        run = runs.reopen(directory, ask=ask_passphrase, on_progress=on_progress)
    with run:
        show_notes(run)
        standing = run.ledger.last_round
        progress().print(f"{directory} holds {standing} of {run.settings.rounds} rounds")
        spent = go_on(run, directory)
    report(directory, as_json=as_json, spent=spent)


def show_notes(run: Run) -> None:
    """What is not as it should be with the run's data."""
    for note in run.notes:
        progress().print(f"note: {note}")


def _warn_unsigned(run: Run) -> None:
    """Say that nothing binds the server before there is a key."""
    if run.ledger.signer is None:
        progress().print(
            f"note: there is no signing key in {run.keys}, so neither this run's log nor its proofs are signed; "
            "`disavow keygen` makes a key, and what was recorded before it is marked as signed late"
        )


def go_on(run: Run, directory: Path) -> BudgetSpent | None:
    """Train to the end, to an interruption from the keyboard, or until the privacy budget is spent."""
    try:
        with Watch.of(progress(), "training", run.ledger, total=run.settings.rounds) as watch:
            run.train(watch.on_round, watch.on_verdict, watch.on_answer, watch.on_opening)
    except KeyboardInterrupt:
        print(f"interrupted; `disavow resume {directory}` goes on", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    except BudgetSpent as refusal:
        standing = run.ledger.last_round
        return BudgetSpent(
            f"{refusal}; {standing} of {run.settings.rounds} rounds stand, {model_name(standing)} is usable and "
            "served, and erasures are still honoured"
        )
    return None


def report(directory: Path, *, as_json: bool, spent: BudgetSpent | None = None) -> None:
    """What a run came to; where its budget is spent, that is raised after it."""
    _show(directory, as_json=as_json)
    if spent is not None:
        raise spent


def _show(directory: Path, *, as_json: bool) -> None:
    with Ledger.open(directory) as ledger:
        standing = [summary for summary in ledger.summaries() if summary.standing]
        if as_json:
            print_json(
                {
                    "run": str(directory),
                    "run_id": ledger.run_id,
                    "initial_model": ledger.initial_model,
                    "rounds": [round_as_json(summary) for summary in standing],
                }
            )
            return
        if not standing:
            results().print(f"no rounds stand in {directory}; the initial model is served")
            return
        last = standing[-1]
        accuracy = f"accuracy {last.evaluation.accuracy:.1%}, " if last.evaluation else ""
        results().print(
            f"{len(standing)} rounds, {accuracy}{size(ledger.stored_bytes())} in {directory}\nmodel {last.after}"
        )
