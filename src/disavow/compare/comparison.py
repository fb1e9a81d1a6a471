"""A comparison of methods of federated unlearning, from one run to a table.

    ① prepare the problem -> ② train each scheme with every seed, and its references
    -> ③ let each method forget, metered -> ④ measure each model beside the references of its scheme -> ⑤ report

Every arrow's result is a file (`pieces`): a comparison goes on where it was interrupted, and several processes can
make them (`parallel`). The run is only read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from disavow.compare.choice import Effort
from disavow.compare.measures.backdoor import trigger_for
from disavow.compare.measures.predictions import accuracy_name
from disavow.compare.metered import OnProgress, ignore_progress
from disavow.compare.method import Method
from disavow.compare.parallel import Processes, make_pieces
from disavow.compare.pieces import OnPiece
from disavow.compare.problem import Problem
from disavow.compare.report import Comparison
from disavow.compare.runner import ComparisonRunner
from disavow.compare.scheme import scheme_of
from disavow.compare.trainer import trainer_of
from disavow.domain import escaped
from disavow.errors import DisavowError
from disavow.ledger.work_folders import hold_work_folder
from disavow.rounds.threads import one_thread


def count_pieces(problem: Problem, methods: Sequence[Method], effort: Effort) -> int:
    """Count the pieces of a comparison, for whoever shows how far it is.

    Args:
        problem: What is compared on.
        methods: Which methods.
        effort: How much is tried.

    """
    schemes = len({scheme_of(method.scheme, problem) for method in methods})
    variants = 1 if isinstance(trigger_for(problem), str) else 2
    trained = schemes * (effort.seeds * variants + effort.references)
    return trained + schemes + len(methods) * effort.seeds * (variants + 1)


def compare(
    problem: Problem,
    methods: Sequence[Method],
    effort: Effort,
    *,
    work: Path,
    skipped: Mapping[str, str] | None = None,
    named: bool = True,
    processes: Processes | None = None,
    on_piece: OnPiece = lambda name: None,
    on_progress: OnProgress = ignore_progress,
) -> Comparison:
    """Compare methods.

    Args:
        problem: What is compared on.
        methods: Which methods.
        effort: How much is tried.
        work: The folder that makes it resumable.
        skipped: Why other methods were left out, for the report.
        named: Whether somebody asked for these methods. Otherwise one that fails is left out, with the reason.
        processes: Make pieces in several processes; None: in this one.
        on_piece: Called with each piece, of `count_pieces`.
        on_progress: Called as methods go on.

    Returns:
        The figures of each method.

    Raises:
        StrategyError: A method failed, or returned what cannot be used.
        StorageError: The work folder cannot be written to; the run is as it was.
        DisavowError: A process ended, or the memory of the GPU is full.

    """
    began = time.monotonic()
    # with one thread: the same bits on any number of cores, and networks this small are faster for it
    with (
        hold_work_folder(work, "the comparison"),
        gpu_memory(),
        closing(trainer_of(problem)) as trainer,
        one_thread(),
    ):
        runner = ComparisonRunner(problem, effort, work, trainer, on_piece=on_piece, on_progress=on_progress)
        storing = [method for method in methods if method.stores == "updates"]
        runner.storing = {scheme_of(method.scheme, problem) for method in storing}
        if processes is not None:
            make_pieces(runner, methods, processes, work=work, named=named)
        schemes = list(dict.fromkeys(scheme_of(method.scheme, problem) for method in methods))
        reports = {scheme: runner.report_of(scheme) for scheme in schemes}
        left = dict(skipped or {})
        if not named:
            methods, failed = runner.without_failures(methods)
            left.update(failed)
        rows = runner.rows(methods)
    return Comparison(
        run=str(problem.subject.directory),
        leaver=_leaver(problem),
        described=_described(problem, effort),
        rows=rows,
        schemes=reports,
        skipped=left,
        left_out=runner.left_out,
        unmeasured=runner.unmeasured,
        recomputed=effort.recompute,
        relearning_cap=effort.relearning,
        seconds=time.monotonic() - began,
    )


@contextmanager
def gpu_memory() -> Iterator[None]:
    """Say what to do where a GPU's memory is full."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise DisavowError(
            "the memory of the GPU is full; the same command goes on with what is left: try fewer --jobs, or when "
            "nobody else uses that GPU"
        ) from None


def _leaver(problem: Problem) -> str:
    number = len(problem.subject.erased)
    records = f"{number} record{'s' if number > 1 else ''} of " if number else ""
    return f"{records}{escaped(problem.leaver)}"


def _described(problem: Problem, effort: Effort) -> dict[str, Any]:
    subject = problem.subject
    return {
        "clients": len(subject.clients),
        "rounds": subject.rounds,
        "epochs": subject.settings.training.epochs,
        "parameters": subject.layout.size,
        "policy": asdict(subject.policy),
        "accuracy_is": accuracy_name(problem),
        "leaving_records": len(subject.own),
        "held_out_records": len(subject.held_out),
        "measured_records": len(problem.measured),
        "seeds": effort.seeds,
        "references": effort.references,
        "quick": effort.quick,
    }
