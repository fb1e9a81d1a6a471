"""A comparison from a run to a table: planted failures are exposed, and an interruption costs one piece at most."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from disavow.audit.subject import subject_of
from disavow.compare.choice import Effort, allowed, methods_named
from disavow.compare.comparison import compare, count_pieces
from disavow.compare.method import METHODS, Method
from disavow.compare.methods.planted import Keep, Reset
from disavow.compare.parallel import Processes
from disavow.compare.plot import pareto_figure
from disavow.compare.problem import Problem, open_problem, problem_of
from disavow.compare.report import Comparison, Estimate, Scatter, estimates_of, scatter_of
from disavow.compare.runner import ComparisonRunner
from disavow.compare.table import BEYOND, tables_of, to_csv, to_markdown
from disavow.compare.trainer import trainer_of
from disavow.errors import (
    ConfigError,
    DisavowError,
    RunInUse,
    StrategyError,
    TaskError,
    UnknownMethod,
    UpdatesNotKept,
)
from disavow.ledger.lock import Lock
from tests.audit.making import Interrupted, hashes_of, keys_of, make_run
from tests.refusals import refuses

OVERFITTED: dict[str, Any] = {
    "seed": 3,
    "rounds": 12,
    "data": {"clients": 5, "test_fraction": 0.9},
    "clustering": {"k": 1},
    "deniability": {"x": 1},
    "noise": {"mode": "none"},
    "training": {"epochs": 10, "batch_size": 8, "learning_rate": 0.1},
}
"""Plain federated averaging of five clients with 36 records each, who learn them by heart."""

QUICK = Effort(seeds=1, references=3, quick=True)


@pytest.fixture(scope="module")
def overfitted(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    directory = make_run(tmp_path_factory.mktemp("overfitted") / "run", OVERFITTED)
    keys = keys_of(directory)
    return problem_of(subject_of(directory, "client-01", keys=keys), keys=keys)


@pytest.fixture(scope="module")
def planted(overfitted: Problem, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Both planted failures beside a retraining."""
    methods = [METHODS["retrain-from-scratch"], Keep(), Reset()]
    before = hashes_of(overfitted.subject.directory)
    found = compare(overfitted, methods, QUICK, work=tmp_path_factory.mktemp("planted"))
    assert hashes_of(overfitted.subject.directory) == before
    return found


@pytest.mark.parametrize("figure", ["best_attacker", "backdoor", "relearning"])
def test_a_method_that_keeps_the_old_model_ranks_last(figure: str, planted: Comparison) -> None:
    assert planted.ranked(figure)[-1] == "keep"


@pytest.mark.parametrize("figure", ["accuracy", "agreement", "loss"])
def test_a_method_that_returns_the_initial_model_ranks_last(figure: str, planted: Comparison) -> None:
    assert planted.ranked(figure)[-1] == "reset"


class _Relearning(ComparisonRunner):
    """Notes which trainings models are held against."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.held_against: list[tuple[int, int]] = []

    def _relearned(self, models: Sequence[Tensor], before: Tensor, seed: int) -> list[int]:
        self.held_against.append((seed, len(models)))
        return [0 for _ in models]


def test_references_are_held_against_the_trainings_of_all_seeds(overfitted: Problem, tmp_path: Path) -> None:
    with closing(trainer_of(overfitted)) as trainer:
        runner = _Relearning(overfitted, replace(QUICK, seeds=2, references=3), tmp_path, trainer)
        runner.report_of("run")
    assert runner.held_against == [(0, 2), (1, 1)]


def test_planted_failures_are_marked_as_beyond_retrainings(planted: Comparison) -> None:
    left, _ = tables_of(planted)
    cells = {row[0]: dict(zip(left.headings, row, strict=True)) for row in left.rows}
    assert BEYOND in cells["keep"]["accuracy on the leaver"]
    assert BEYOND in cells["keep"]["backdoor"]
    assert BEYOND in cells["reset"]["accuracy"]
    # by chance a figure in twenty of a retraining is marked, too
    marked = {name: sum(BEYOND in cell for cell in row.values()) for name, row in cells.items()}
    assert marked["retrain-from-scratch"] < min(marked["keep"], marked["reset"])


@pytest.mark.parametrize(
    ("rounds", "said"), [((1.0, 2.0, 2.0), "1.7 ± "), ((4.0, 4.0, 4.0), "> 3 ± "), ((1.0, 2.0, 4.0), "≥ 2.3")]
)
def test_relearning_that_was_given_up_with_some_seeds_has_no_mean(
    rounds: tuple[float, ...], said: str, planted: Comparison
) -> None:
    kept = next(row for row in planted.rows if row.method.name == "keep")
    row = replace(kept, estimates={**kept.estimates, "relearning": Estimate(rounds)})
    left, _ = tables_of(replace(planted, rows=(row,)))
    assert planted.relearning_cap == 3
    assert left.rows[-1][left.headings.index("relearning")].startswith(said)


def test_the_model_before_is_what_the_leaver_is_in(planted: Comparison) -> None:
    scheme, rows = planted.schemes["run"], {row.method.name: row for row in planted.rows}
    for figure in ("accuracy", "leaver_accuracy", "best_attacker", "agreement"):
        assert scheme.before[figure] == rows["keep"].estimates[figure]
    assert rows["keep"].backdoor_before == rows["keep"].estimates["backdoor"] == scheme.before["backdoor"]
    assert rows["keep"].estimates["reconstruction"].values == (0.0,)
    assert rows["keep"].estimates["relearning"].values == (0.0,)


def test_work_is_a_share_of_a_retraining_from_scratch(planted: Comparison) -> None:
    rows = {row.method.name: row.estimates for row in planted.rows}
    assert rows["retrain-from-scratch"]["work"].mean == 1
    assert rows["retrain-from-scratch"]["client_epochs"].mean == 12 * 4 * 10
    assert rows["keep"]["work"].mean == 0


def test_a_comparison_is_written_as_markdown_csv_json_and_a_figure(planted: Comparison) -> None:
    text = to_markdown(planted)
    assert "| keep |" in text
    assert "3 exact retrainings" in text
    lines = list(csv.DictReader(io.StringIO(to_csv(planted))))
    assert {line["method"] for line in lines} == {"retrain-from-scratch", "keep", "reset"}
    written = json.loads(json.dumps(planted.to_json()))
    by_name = {each["method"]: each["figures"] for each in written["methods"]}
    for line in lines:
        assert float(line["mean"]) == by_name[line["method"]][line["figure"]]["mean"]
    [axes, _] = pareto_figure(planted).axes
    assert {"keep", "reset", "retrain-from-scratch"} <= {each.get_text() for each in axes.texts}


def test_an_attacker_that_needs_more_than_one_model_is_left_out_with_the_reason(planted: Comparison) -> None:
    assert set(planted.left_out) == {"LiRA online", "subject level", "update alignment", "parameters"}
    assert set(planted.rows[0].attackers) == {"loss threshold", "LiRA offline"}


def stop_after(pieces: int) -> Callable[[str], None]:
    """Lets so many pieces pass, and no more."""
    left = [pieces]

    def on_piece(name: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Interrupted(name)

    return on_piece


def comparable(found: Comparison) -> dict[str, Any]:
    """Everything but time."""
    written = found.to_json()
    del written["seconds"]
    for each in written["methods"]:
        del each["figures"]["seconds"]
    return written


def test_a_comparison_goes_on_where_it_was_interrupted(problem: Problem, tmp_path: Path) -> None:
    """Nothing that was done is done again, and the result is that of a comparison that nobody interrupted."""
    effort = replace(QUICK, seeds=2, recompute=True)
    methods: list[Method] = [METHODS[name] for name in ("retrain", "ours", "federaser")]
    total = count_pieces(problem, methods, effort)
    for pieces in (2, 9, 13):
        with pytest.raises(Interrupted):
            compare(problem, methods, effort, work=tmp_path / "work", on_piece=stop_after(pieces))
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.*") if path.suffix != ".lock"}
    names: list[str] = []
    resumed = compare(problem, methods, effort, work=tmp_path / "work", on_piece=names.append)
    assert len(names) == total
    kept = {path: path.stat().st_mtime_ns for path in done if path.exists()}
    assert {path for path in done if path.suffix in (".safetensors", ".json")} <= set(kept)
    assert all(kept[path] == done[path] for path in kept if path.suffix in (".safetensors", ".json"))
    whole = compare(problem, methods, effort, work=tmp_path / "other")
    assert comparable(resumed) == comparable(whole)
    # with two seeds every figure has an interval
    assert all(each.interval is not None for row in whole.rows for each in row.estimates.values())


def test_a_damaged_piece_is_made_again(problem: Problem, tmp_path: Path) -> None:
    methods: list[Method] = [METHODS["retrain"]]
    first = compare(problem, methods, QUICK, work=tmp_path)
    for path in tmp_path.glob("forgotten-*"):
        path.write_bytes(path.read_bytes()[:-7])
    for path in tmp_path.glob("measured-*"):
        path.write_bytes(b"{")
    for path in tmp_path.glob("training-*/models.f32"):
        path.write_bytes(path.read_bytes()[:-7])
    assert comparable(compare(problem, methods, QUICK, work=tmp_path)) == comparable(first)


def test_one_comparison_at_a_time_works_in_a_folder(problem: Problem, tmp_path: Path) -> None:
    with Lock(tmp_path), refuses(RunInUse):
        compare(problem, [METHODS["retrain"]], QUICK, work=tmp_path)


def test_a_model_that_cannot_be_used_is_refused(problem: Problem, tmp_path: Path) -> None:
    class Short(Keep):
        name = "short"

        def forget(self, federation: Any) -> Any:
            made = super().forget(federation)
            return replace(made, model=made.model[:-1])

    class Infinite(Keep):
        name = "infinite"

        def forget(self, federation: Any) -> Any:
            made = super().forget(federation)
            return replace(made, model=made.model / 0)

    for method in (Short(), Infinite()):
        with refuses(StrategyError, method.name):
            compare(problem, [method], QUICK, work=tmp_path)


def test_a_name_with_a_typo_is_refused_with_the_nearest_one() -> None:
    with refuses(UnknownMethod, "did you mean retrain?"):
        methods_named(["retrian"])
    assert [method.name for method in methods_named(["ours", "retrain"])] == ["retrain", "ours"]
    assert methods_named([]) == methods_named(["all"])


def test_methods_that_need_updates_are_refused_or_left_out_of_a_run_that_kept_none(problem: Problem) -> None:
    with refuses(UpdatesNotKept, "federaser"):
        allowed(problem, methods_named(["federaser"]), QUICK, named=True)
    usable, skipped = allowed(problem, methods_named([]), QUICK, named=False)
    assert "federaser" in skipped
    assert "federaser" not in {method.name for method in usable}
    usable, _ = allowed(problem, methods_named([]), replace(QUICK, recompute=True), named=False)
    assert "federaser" in {method.name for method in usable}


def test_more_representatives_than_a_cluster_has_are_refused_or_left_out(overfitted: Problem) -> None:
    with refuses(ConfigError, "representatives"):
        allowed(overfitted, methods_named(["ours-s3"]), QUICK, named=True)
    _, skipped = allowed(overfitted, methods_named([]), QUICK, named=False)
    assert {"ours-s3", "ours-s3-purged"} <= set(skipped)


@pytest.mark.parametrize(("seeds", "references"), [(0, 5), (3, 4), (1001, 5)])
def test_too_little_or_too_much_effort_is_refused(seeds: int, references: int) -> None:
    with refuses(ConfigError):
        Effort(seeds, references)


def test_intervals_are_students_and_scatter_predicts_another_retraining() -> None:
    estimate = Estimate((1.0, 2.0, 3.0))
    interval = estimate.interval
    assert interval is not None
    assert interval.low == pytest.approx(2 - 4.303 / 3**0.5, abs=1e-3)
    assert Estimate((1.0,)).interval is None
    scatter = Scatter((1.0, 2.0, 3.0, 2.0, 2.0))
    assert scatter.expects(Estimate((3.5,)))
    assert not scatter.expects(Estimate((4.5,)))
    assert not scatter.expects(Estimate((4.4, 4.5, 4.6)))
    assert scatter.expects(Estimate((2.0, 2.0, 9.5)))  # one seed of three went astray


class _Refusing(Keep):
    """Cannot forget anybody; no other method of the test has its scheme."""

    name = "refusing"
    scheme = "sampled"

    def forget(self, federation: Any) -> Any:
        raise ValueError(federation.leaver)


class _RefusingLater(Keep):
    """Fails with another seed than that of the run, as one does whose steps end in NaN now and then."""

    name = "refusing-later"

    def forget(self, federation: Any) -> Any:
        if federation.training.seed:
            raise ValueError(federation.leaver)
        return super().forget(federation)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_method_that_fails_with_one_seed_is_left_out_unless_it_was_named(
    jobs: int, problem: Problem, tmp_path: Path
) -> None:
    subject, effort = problem.subject, replace(QUICK, seeds=2)
    reopen = partial(open_problem, subject.directory, subject.client, keys=problem.keys)
    processes = None if jobs == 1 else Processes(jobs, reopen)
    methods = [METHODS["retrain"], _RefusingLater()]
    found = compare(problem, methods, effort, work=tmp_path, named=False, processes=processes)
    assert [row.method.name for row in found.rows] == ["retrain"]
    assert set(found.skipped) == {"refusing-later"}
    with refuses(StrategyError, "refusing-later"):
        compare(problem, methods, effort, work=tmp_path, named=True, processes=processes)


def test_several_processes_make_the_same_pieces_as_one(problem: Problem, tmp_path: Path) -> None:
    """Also where a method fails in one of them; and a comparison that one process began goes on in several."""
    effort = replace(QUICK, recompute=True)
    methods: list[Method] = [*(METHODS[name] for name in ("retrain", "ours", "federaser")), _Refusing()]
    alone = compare(problem, methods, effort, work=tmp_path / "alone", named=False)
    subject = problem.subject
    reopen = partial(open_problem, subject.directory, subject.client, keys=problem.keys)
    with pytest.raises(Interrupted):
        compare(problem, methods, effort, work=tmp_path / "several", on_piece=stop_after(3))
    names: list[str] = []
    several = compare(
        problem,
        methods,
        effort,
        work=tmp_path / "several",
        named=False,
        processes=Processes(2, reopen),
        on_piece=names.append,
    )
    assert comparable(several) == comparable(alone)
    assert set(several.skipped) == {"refusing"}
    unmade = 3  # its models, clean and with a backdoor, and their figures
    assert len(names) == len(set(names)) == count_pieces(problem, methods, effort) - unmade
    made = {path.name for path in (tmp_path / "several").iterdir()}
    assert made == {path.name for path in (tmp_path / "alone").iterdir()}


class _Lucky(Keep):
    """Draws from torch's generator, as dropout does."""

    name = "lucky"

    def forget(self, federation: Any) -> Any:
        made = super().forget(federation)
        return replace(made, model=made.model + 0.01 * torch.rand(len(made.model)))


def test_what_a_method_draws_does_not_depend_on_what_was_done_before(problem: Problem, tmp_path: Path) -> None:
    alone, second = ([_Lucky()], [METHODS["fine-tune"], _Lucky()])
    found = [
        compare(problem, methods, QUICK, work=tmp_path / str(len(methods))).rows[-1].estimates["loss"].values
        for methods in (alone, second)
    ]
    assert found[0] == found[1]


def refuse_to_open() -> Problem:
    raise TaskError("another process cannot load it")


def test_what_a_process_cannot_open_is_the_error_of_the_comparison(problem: Problem, tmp_path: Path) -> None:
    with refuses(TaskError):
        compare(problem, [Keep()], QUICK, work=tmp_path, processes=Processes(2, refuse_to_open))


def test_a_run_that_changed_meanwhile_is_refused(problem: Problem, overfitted: Problem, tmp_path: Path) -> None:
    subject = overfitted.subject
    reopen = partial(open_problem, subject.directory, subject.client, keys=overfitted.keys)
    with refuses(DisavowError):
        compare(problem, [Keep()], QUICK, work=tmp_path, processes=Processes(2, reopen))


class _Crowded(Keep):
    """Its relearning needs more memory than a GPU has."""

    name = "crowded"

    def bytes_stored(self, rounds: int, participants: int, model_bytes: int) -> int:
        raise torch.OutOfMemoryError(f"{rounds * participants * model_bytes} bytes")


def test_a_gpu_without_memory_ends_the_comparison_with_one_error(problem: Problem, tmp_path: Path) -> None:
    subject = problem.subject
    reopen = partial(open_problem, subject.directory, subject.client, keys=problem.keys)
    with refuses(DisavowError):
        compare(problem, [_Crowded()], QUICK, work=tmp_path, processes=Processes(2, reopen))


def test_a_figure_that_is_no_number_is_left_out() -> None:
    """A damaged model can say anything; an interval of that says nothing, and JSON has no word for it."""
    found = estimates_of([{"loss": math.nan, "accuracy": 0.1}, {"loss": 2.0, "accuracy": 0.0}])
    assert found == {"accuracy": Estimate((0.1, 0.0))}
    assert not scatter_of([{"loss": math.inf}, {"loss": 2.0}])


class _Dying(Keep):
    """Takes its process with it."""

    name = "dying"

    def forget(self, federation: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_ends_the_comparison_with_one_error(problem: Problem, tmp_path: Path) -> None:
    subject = problem.subject
    reopen = partial(open_problem, subject.directory, subject.client, keys=problem.keys)
    with refuses(DisavowError):
        compare(problem, [_Dying()], QUICK, work=tmp_path, processes=Processes(2, reopen))
    # what was made before it is kept
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} >= {"reference", "training"}
