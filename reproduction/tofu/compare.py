"""Methods of unlearning on the federation of authors: `disavow compare` when one author leaves, and TOFU's measures
of each method's model beside its own.

    trained run -> comparison, in pieces of its own -> model of each method -> TOFU's measures of it -> one table
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from torch import Tensor

from disavow.adapters.task import AdapterTask
from disavow.cli.compare import in_processes, prepare, write_output
from disavow.compare.choice import Effort, allowed, methods_named
from disavow.compare.comparison import compare, count_pieces
from disavow.compare.method import Method
from disavow.compare.methods.ours import Ours, OursPurged
from disavow.compare.pieces import Pieces
from disavow.compare.problem import Problem
from disavow.compare.report import BY_NAME, Comparison
from disavow.compare.runner import CLEAN, ComparisonRunner
from disavow.compare.table import shown
from disavow.compare.trainer import trainer_of
from disavow.errors import ConfigError
from disavow.ledger.work_folders import hold_work_folder
from reproduction.markdown import aligned
from reproduction.tofu.measures import Measures, Reader, forget_quality
from reproduction.tofu.questions import Graded, name_of
from reproduction.tofu.study import Study, measured_on

_RUN = "run"
"""The scheme of the run itself, which all methods here start from."""

_RUN_SEED = 0

BEFORE, RETRAINED = "before", "exact retrainings"
"""What stands beside the methods: the served model, and the means over retrainings without the author."""

OnTotal = Callable[[int], None]
OnPiece = Callable[[str], None]


@dataclass(frozen=True)
class OursAsTrained(Ours):
    """The product's own erasure on the run as it was trained, however many representatives its clusters have."""

    scheme = _RUN


@dataclass(frozen=True)
class OursAsTrainedPurged(OursPurged):
    """The same, then a purge."""

    scheme = _RUN


METHODS = (
    "retrain",
    "ours",
    "ours-purged",
    "gradient-ascent",
    "gradient-difference",
    "npo",
    "not",
    "fine-tune",
)
"""Those that are compared unless others are named."""


def methods_of(names: Sequence[str]) -> list[Method]:
    """Find methods that start from the run as it was trained.

    Args:
        names: Of methods; `ours` and `ours-purged` are those of the run's own clusters.

    Raises:
        UnknownMethod: There is none of that name.
        ConfigError: A method trains a federation of its own: its references would take as long as all others.

    """
    own: dict[str, Method] = {each.name: each for each in (OursAsTrained(), OursAsTrainedPurged())}
    found = [own.get(method.name, method) for method in methods_named(names)]
    others = [method.name for method in found if method.scheme != _RUN]
    if others:
        raise ConfigError(f"{others[0]} trains in a way of its own; allowed here: methods on the run as it is")
    return found


@dataclass(frozen=True)
class ComparedAuthor:
    """What methods left of an author.

    Attributes:
        author: Who left.
        comparison: What `disavow compare` found.
        measured: TOFU's measures by model (`BEFORE`, `RETRAINED`, the methods) and set of questions.
        forget_quality: By model, the mean over retrainings: each is TOFU's retained model in turn, and is itself
            held against the others.

    """

    author: str
    comparison: Comparison
    measured: Mapping[str, Mapping[str, Measures]]
    forget_quality: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            "author": self.author,
            "comparison": self.comparison.to_json(),
            "tofu": {
                name: {
                    "forget_quality": self.forget_quality[name],
                    **{each: asdict(measures) for each, measures in sets.items()},
                }
                for name, sets in self.measured.items()
            },
        }

    def table(self) -> list[str]:
        """Write the lines of a Markdown table: TOFU's measures, and what the comparison measures, of each model."""
        rows = []
        for name, sets in self.measured.items():
            forget, retain, held_out = (sets[each] for each in ("forget", "retain", "held_out"))
            ratio = "-" if forget.truth_ratio is None else f"{forget.truth_ratio:.3f}"
            rows.append(
                (
                    name,
                    f"{self.forget_quality[name]:.2g}",
                    ratio,
                    *(f"{each.probability:.4f}" for each in (forget, retain, held_out)),
                    *(f"{each.rouge_l:.3f}" for each in (forget, retain)),
                    *(f"{each.extraction_strength:.3f}" for each in (forget, retain)),
                    *(self._compared(name, figure) for figure in _COMPARED),
                )
            )
        return aligned((*_TOFU, *(BY_NAME[figure].title for figure in _COMPARED)), rows)

    def _compared(self, name: str, figure: str) -> str:
        """A figure of the comparison, as its own tables write it."""
        scheme = self.comparison.schemes[_RUN]
        found: Any
        if name in (BEFORE, RETRAINED):
            found = (scheme.before if name == BEFORE else scheme.references).get(figure)
        else:
            found = next(row.estimates.get(figure) for row in self.comparison.rows if row.method.name == name)
        return "-" if found is None else shown(found.mean, BY_NAME[figure].unit, self.comparison.relearning_cap)


_TOFU = (
    "model",
    "forget quality",
    "truth ratio",
    "probability: forget",
    "retain",
    "held out",
    "ROUGE-L: forget",
    "retain",
    "extraction: forget",
    "retain",
)
_COMPARED = ("agreement", "best_attacker", "relearning", "work", "bytes_sent", "seconds")


def compare_author(
    study: Study,
    author: int,
    methods: Sequence[Method],
    effort: Effort,
    *,
    jobs: int = 1,
    on_total: OnTotal = lambda total: None,
    on_piece: OnPiece = lambda name: None,
) -> ComparedAuthor:
    """Compare methods when an author leaves the trained federation, and measure their models as TOFU does.

    Args:
        study: The federation, which is trained and only read.
        author: The number of one of its leavers, of whom wrong answers are known.
        methods: What `methods_of` gave.
        effort: How much is tried.
        jobs: Processes that work on the comparison.
        on_total: Called with how many pieces there are.
        on_piece: Called with each that is done.

    Returns:
        What was found; tables and figures lie in the folder `compare-AUTHOR` of the study.

    """
    client, folder = name_of(author), study.folder / f"compare-{name_of(author)}"
    problem = prepare(study.run_folder("trained"), client, keys=study.keys)
    usable, _ = allowed(problem, methods, effort, named=True)
    on_total(count_pieces(problem, usable, effort) + len(usable) + 1 + effort.references)
    work = folder / "pieces"
    work.mkdir(parents=True, exist_ok=True)
    processes = in_processes(jobs, study.run_folder("trained"), client, keys=study.keys)
    comparison = compare(problem, usable, effort, work=work, processes=processes, on_piece=on_piece)
    questions = {**study.questions, "forget": study.about(author)}
    models = _models(problem, usable, effort, work)
    measured = {
        name: _measured(problem, vector, questions, Pieces(work, {}, on_piece), f"tofu-{name.replace(' ', '-')}")
        for name, vector in models.items()
    }
    found = ComparedAuthor(client, comparison, *_beside_retrained(measured))
    write_output(comparison, folder)
    (folder / "tofu.md").write_text("\n".join(found.table()) + "\n", encoding="utf-8")
    (folder / "tofu.json").write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
    return found


def _models(problem: Problem, methods: Sequence[Method], effort: Effort, work: Path) -> dict[str, Tensor]:
    """The models that the comparison left in its pieces: of the run itself, its retrainings, and each method."""
    with hold_work_folder(work, "the comparison"), closing(trainer_of(problem)) as trainer:
        runner = ComparisonRunner(problem, effort, work, trainer)
        return {
            BEFORE: runner.training(_RUN, _RUN_SEED, CLEAN).served,
            **{f"{RETRAINED} {number}": each for number, each in enumerate(runner.references(_RUN), start=1)},
            **{method.name: runner.forgotten(method, _RUN_SEED, CLEAN).vector for method in methods},
        }


def _measured(
    problem: Problem, vector: Tensor, questions: Mapping[str, Sequence[Graded]], pieces: Pieces, name: str
) -> dict[str, Measures]:
    """TOFU's measures of a model, or those that an earlier call kept."""
    task = problem.subject.task
    if not isinstance(task, AdapterTask):
        raise TypeError("the run trains no adapter")
    reader = Reader(task.tokenizer, task.template, problem.device)

    def make() -> dict[str, Any]:
        found = measured_on(problem.network(vector).eval(), reader, questions)
        return {each: asdict(measures) for each, measures in found.items()}

    inputs = {
        "run": problem.identity,
        "model": hashlib.sha256(vector.numpy().data).hexdigest(),
        "questions": {each: [graded.question for graded in some] for each, some in questions.items()},
    }
    kept = pieces.figures(name, inputs, make)
    return {each: Measures(**{**figures, "ratios": tuple(figures["ratios"])}) for each, figures in kept.items()}


def _beside_retrained(
    measured: Mapping[str, Mapping[str, Measures]],
) -> tuple[dict[str, Mapping[str, Measures]], dict[str, float]]:
    """The retrainings as one row of means, and each model's forget quality against them."""
    retrained = [sets for name, sets in measured.items() if name.startswith(RETRAINED)]
    rows: dict[str, Mapping[str, Measures]] = {
        BEFORE: measured[BEFORE],
        RETRAINED: {each: _mean([sets[each] for sets in retrained]) for each in retrained[0]},
        **{name: sets for name, sets in measured.items() if name != BEFORE and not name.startswith(RETRAINED)},
    }

    def quality(one: Measures, others: Sequence[Mapping[str, Measures]]) -> float:
        return mean(forget_quality(one.ratios, other["forget"].ratios) for other in others)

    qualities = {name: quality(sets["forget"], retrained) for name, sets in rows.items() if name != RETRAINED}
    qualities[RETRAINED] = mean(
        quality(sets["forget"], [other for other in retrained if other is not sets]) for sets in retrained
    )
    return rows, qualities


def _mean(some: Sequence[Measures]) -> Measures:
    """The means of measures over models; ratios question by question."""
    ratios = [each.truth_ratio for each in some if each.truth_ratio is not None]
    return Measures(
        some[0].questions,
        mean(each.probability for each in some),
        mean(each.rouge_l for each in some),
        mean(each.extraction_strength for each in some),
        mean(ratios) if ratios else None,
        tuple(mean(each) for each in zip(*(each.ratios for each in some), strict=True)),
    )
