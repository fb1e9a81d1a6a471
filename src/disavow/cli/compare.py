"""`disavow compare`: methods of federated unlearning on one run, under one request, by the same measures."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from disavow import runs
from disavow.cli.options import require, write_plot
from disavow.cli.output import Bar, loading, print_json, progress, results
from disavow.compare.choice import Effort, allowed, methods_named
from disavow.compare.comparison import compare, count_pieces
from disavow.compare.parallel import Processes
from disavow.compare.plot import pareto_figure
from disavow.compare.problem import Problem, open_problem
from disavow.compare.report import Comparison
from disavow.compare.table import notes_of, tables_of, to_csv, to_markdown
from disavow.domain import escaped
from disavow.errors import ConfigError, NeverTookPart, UnknownClient
from disavow.ledger import Ledger
from disavow.ledger.keys import default_folder
from disavow.ledger.lock import refuse_in_use
from disavow.ledger.work_folders import work_folder

_INTERRUPTED = 130


def compare_methods(
    directory: Path,
    client: str,
    methods: Sequence[str],
    effort: Effort,
    *,
    records: Sequence[str] = (),
    output: Path | None,
    work: Path | None,
    task: str | None,
    jobs: int,
    as_json: bool,
) -> None:
    """Compare methods on a client that leaves, or on records of it, and print what was found.

    Args:
        directory: The run, which is only read.
        client: Who leaves.
        methods: The names of methods; none: all.
        effort: How much is tried.
        records: The keys of the records that leave; none: the whole client does.
        output: The folder for tables and figure.
        work: Where pieces are kept; None: beside the run, until the comparison ends.
        task: What trains the run, where its settings do not say.
        jobs: Processes that work on it.
        as_json: Print JSON.

    """
    chosen = methods_named(methods)
    pieces = work or work_folder(directory, "compare")
    for option, folder in (("work", pieces), ("output", output)):
        if folder is None:
            continue
        require(not folder.exists() or folder.is_dir(), option, folder, "a folder, or a name that is free")
        if folder.resolve().is_relative_to(directory.resolve()):
            raise ConfigError(f"--{option} is {folder}; allowed: a folder outside the run directory {directory}")
    problem = prepare(directory, client, records=records, task=task)
    named = bool(methods) and "all" not in methods
    usable, skipped = allowed(problem, chosen, effort, named=named)
    if output is not None:
        make_output(output)  # before the work: what it comes to is not to be lost
    console = progress()
    console.print(_announcement(problem, len(usable), effort))
    try:
        with Bar(console, "comparing", count_pieces(problem, usable, effort)) as shown:

            def on_piece(name: str) -> None:
                shown.update(shown.done + 1, what=name)

            found = compare(
                problem,
                usable,
                effort,
                work=pieces,
                skipped=skipped,
                named=named,
                processes=in_processes(jobs, directory, client, records=records, task=task),
                on_piece=on_piece,
            )
    except KeyboardInterrupt:
        print("interrupted; the same command goes on with what is left", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    if output is not None:
        write_output(found, output)
    if work is None:
        shutil.rmtree(pieces, ignore_errors=True)  # copies of the run, with everybody in them
    if as_json:
        print_json(found.to_json())
    else:
        show(found)


def prepare(
    directory: Path,
    client: str,
    *,
    records: Sequence[str] = (),
    task: str | None = None,
    keys: Path | None = None,
) -> Problem:
    """Find out who leaves what, and refuse what cannot be compared before anything is trained.

    Args:
        directory: The run.
        client: Who leaves.
        records: The keys of the records that leave; none: the whole client does.
        task: What trains the run, where its settings do not say.
        keys: The folder of the operator's keys; None: `DISAVOW_KEYS`, or that of the user.

    Raises:
        RunInUse: The run is being trained, or erased from.
        UnknownClient: The client is not in the run.
        NeverTookPart: It took part in no round.

    """
    keys = keys or default_folder()
    runs.settings_of(directory)  # there is a run
    refuse_in_use(directory)
    with Ledger.open(directory, keys=keys) as ledger:
        if client not in ledger.clients():
            raise UnknownClient(f"{client!r} is not a client of this run, or has left it; allowed: one still in")
        if ledger.last_round and not ledger.rounds_with(client):
            raise NeverTookPart(
                f"{escaped(client)} took part in none of {ledger.last_round} rounds: there is nothing to forget; "
                "compare with a client that did, or train on"
            )
    with loading(progress()) as on_progress:
        return open_problem(directory, client, keys=keys, records=records, task=task, on_progress=on_progress)


def in_processes(
    jobs: int,
    directory: Path,
    client: str,
    *,
    records: Sequence[str] = (),
    task: str | None = None,
    keys: Path | None = None,
) -> Processes | None:
    """Say how processes prepare what this one prepared; None where it works alone.

    Args:
        jobs: How many.
        directory: The run.
        client: Who leaves.
        records: The keys of the records that leave; none: the whole client does.
        task: What trains the run, where its settings do not say.
        keys: The folder of the operator's keys; None: `DISAVOW_KEYS`, or that of the user.

    """
    if jobs == 1:
        return None
    keys = keys or default_folder()
    return Processes(jobs, partial(open_problem, directory, client, keys=keys, records=records, task=task))


def _announcement(problem: Problem, methods: int, effort: Effort) -> str:
    return (
        f"comparing {_plural(methods, 'method')} on {_plural(effort.seeds, 'seed')}, beside {effort.references} "
        f"exact retrainings of each scheme: {len(problem.subject.clients)} clients, {problem.rounds} rounds"
    )


def _plural(number: int, word: str) -> str:
    return f"{number} {word}{'s' if number > 1 else ''}"


def show(found: Comparison) -> None:
    """Print a comparison for people.

    Args:
        found: What was found.

    """
    console = results()
    for table in tables_of(found):
        console.print(table.title, style="bold")
        console.print_table(table.headings, table.rows, right=table.headings[1:])
        console.print()
    for note in notes_of(found):
        console.print(note)


def make_output(folder: Path) -> None:
    """Make the folder for tables and figures.

    Args:
        folder: May be there already.

    Raises:
        ConfigError: It cannot be made, or not be written to.

    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error.strerror) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, os.strerror(errno.EACCES))


def write_output(found: Comparison, folder: Path) -> None:
    """Write tables, figures and all numbers.

    Args:
        found: What was found.
        folder: Is made where it is not there; files of an earlier comparison are replaced.

    """
    make_output(folder)
    try:
        (folder / "table.md").write_text(to_markdown(found), encoding="utf-8")
        (folder / "table.csv").write_text(to_csv(found), encoding="utf-8")
        (folder / "compare.json").write_text(json.dumps(found.to_json(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise _unwritable(folder, error.strerror) from None
    for name in ("pareto.svg", "pareto.png"):
        write_plot(folder / name, pareto_figure(found), option="output")


def _unwritable(folder: Path, reason: str | None) -> ConfigError:
    return ConfigError(f"--output is {folder}; allowed: a folder that can be written to ({reason})")
