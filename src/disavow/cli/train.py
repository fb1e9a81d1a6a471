"""`disavow train` and `disavow resume`."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from disavow import config, runs
from disavow.cli.output import print_json, progress, results, size
from disavow.cli.passphrase import ask_passphrase
from disavow.cli.rounds import Watch
from disavow.cli.rounds import as_json as round_as_json
from disavow.ledger import Ledger
from disavow.runs import Run

_INTERRUPTED = 130


def train(config_file: Path, directory: Path, *, as_json: bool) -> None:
    """Start a run and train it."""
    settings = config.load(config_file)
    with runs.start(settings, directory, ask=ask_passphrase) as run:
        go_on(run, directory)
    report(directory, as_json=as_json)


def resume(directory: Path, *, as_json: bool) -> None:
    """Go on with a run."""
    with runs.reopen(directory, ask=ask_passphrase) as run:
        standing = run.ledger.next_round()[0] - 1
        progress().print(f"{directory} holds {standing} of {run.settings.rounds} rounds")
        go_on(run, directory)
    report(directory, as_json=as_json)


def go_on(run: Run, directory: Path) -> None:
    """Train to the end, or to an interruption from the keyboard."""
    try:
        standing = run.ledger.next_round()[0] - 1
        with Watch(progress(), "training", total=run.settings.rounds, done=standing) as watch:
            run.train(watch.on_round, watch.on_verdict, watch.on_answer)
    except KeyboardInterrupt:
        print(f"interrupted; `disavow resume {directory}` goes on", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None


def report(directory: Path, *, as_json: bool) -> None:
    """What a run came to."""
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
