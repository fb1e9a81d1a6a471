"""The runner of a comparison: it trains, forgets and measures, or finds what an earlier call has done."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from disavow import __version__, config
from disavow.audit.game import Records
from disavow.compare.choice import Effort
from disavow.compare.measures.backdoor import success, trigger_for
from disavow.compare.measures.membership import (
    Attackers,
    advantages,
    attackers_for,
    loss_gap,
    records_of,
    reference_advantages,
)
from disavow.compare.measures.predictions import Predictions, agreement, loss_on_leaver, predictions
from disavow.compare.measures.reconstruction import obstacle as reconstruction_obstacle
from disavow.compare.measures.reconstruction import reconstruction
from disavow.compare.measures.relearning import rounds_to_relearn
from disavow.compare.metered import MeteredFederation, OnProgress, ignore_progress
from disavow.compare.method import Forgotten, Method
from disavow.compare.pieces import OnPiece, Pieces
from disavow.compare.problem import Problem
from disavow.compare.report import (
    Estimate,
    Row,
    SchemeReport,
    estimates_of,
    scatter_of,
)
from disavow.compare.scheme import SCHEMES, TrainingResources, scheme_of
from disavow.compare.stored import discard, load, save
from disavow.compare.training import Training
from disavow.engines.trainer import Trainer
from disavow.errors import (
    DisavowError,
    RoundRefused,
    StorageError,
    StrategyError,
    TaskError,
)

CLEAN, BACKDOOR = "clean", "backdoor"

_REFERENCE_SEED = 1_000_000
"""References have seeds of their own, beyond those of trainings."""


@dataclass(frozen=True, eq=False)
class Model:
    """A model, and what it cost.

    Attributes:
        vector: Its numbers.
        notes: What was noted when it was made.

    """

    vector: Tensor
    notes: Mapping[str, Any]


class ComparisonRunner:
    """Trains, forgets and measures, or finds what an earlier call has done.

    Args:
        problem: What is compared on.
        effort: How much is tried.
        work: The folder of pieces.
        trainer: Trains all clients.
        on_piece: Called with each piece.
        on_progress: Called as methods go on.

    Attributes:
        storing: Schemes of which a method needs what clients sent.
        left_out: Why attackers are left out, by name.
        unmeasured: Why figures are missing, by name.

    """

    def __init__(
        self,
        problem: Problem,
        effort: Effort,
        work: Path,
        trainer: Trainer,
        *,
        on_piece: OnPiece = lambda name: None,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        self.problem, self.effort, self.trainer = problem, effort, trainer
        self.pieces = Pieces(work, inputs_of(problem), on_piece)
        self.storing: set[str] = set()
        self.left_out: dict[str, str] = {}
        self.unmeasured: dict[str, str] = {}
        self._on_progress = on_progress
        self._size = problem.subject.layout.size
        self._reference_models: dict[str, ReferenceModels] = {}
        trigger = trigger_for(problem)
        self._problems = {CLEAN: problem}
        if isinstance(trigger, str):
            self.unmeasured["backdoor"] = trigger
        else:
            self._problems[BACKDOOR] = problem.with_backdoor(trigger)
        if reason := reconstruction_obstacle(problem):
            self.unmeasured["reconstruction"] = reason

    @property
    def variants(self) -> tuple[str, ...]:
        """What is trained with every seed: the run as it is and, where there can be one, with a backdoor."""
        return tuple(self._problems)

    def resources(self, scheme: str) -> TrainingResources:
        """Give what a scheme trains with.

        Args:
            scheme: Its name.

        """
        return TrainingResources(self.trainer, scheme in self.storing, self.effort.recompute)

    def training(self, scheme: str, seed: int, variant: str) -> Training:
        """② Train a scheme with the leaver, or find its training.

        Args:
            scheme: Its name.
            seed: 0 for the run itself.
            variant: With a backdoor, or clean.

        """
        name = f"training-{scheme}-{seed}-{variant}"
        inputs = {"updates": scheme in self.storing, "recompute": self.effort.recompute}
        folder = self.pieces.path(name, inputs)
        found = load(folder, self.problem.subject.layout)
        if found is None:
            discard(folder)
            folder.mkdir()
            save(SCHEMES[scheme].train(self._problems[variant], seed, folder, self.resources(scheme)), folder)
            found = load(folder, self.problem.subject.layout)
        if found is None:
            raise StorageError(f"{folder} was written and cannot be read")
        self.pieces.done(name)
        return found

    def references(self, scheme: str, numbers: Sequence[int] | None = None) -> list[Tensor]:
        """② Train a scheme without the leaver, or find its references; those that are missing train together.

        Args:
            scheme: Its name.
            numbers: Which of them; None: all.

        """
        chosen = range(self.effort.references) if numbers is None else numbers
        seeds = [_REFERENCE_SEED + number for number in chosen]
        names = {seed: f"reference-{scheme}-{seed - _REFERENCE_SEED}" for seed in seeds}
        found = {seed: self.pieces.find_vector(names[seed], {}, self._size) for seed in seeds}
        missing = [seed for seed in seeds if found[seed] is None]
        # those of any task train one after the other anyway: each is kept as soon as it is done
        together = [missing] if self.problem.subject.labelled and missing else [[seed] for seed in missing]
        for some in together:
            made = SCHEMES[scheme].retrain(self.problem, some, self.resources(scheme))
            for seed, vector in zip(some, made, strict=True):
                self.pieces.keep_vector(names[seed], {}, vector, {})
                found[seed] = vector, {}
        for seed in seeds:
            self.pieces.done(names[seed])
        return [each[0] for each in found.values() if each is not None]

    def forgotten(self, method: Method, seed: int, variant: str) -> Model:
        """③ Let a method forget, or find the model that it made.

        Args:
            method: The method.
            seed: Of the training that it starts from.
            variant: With a backdoor, or clean.

        """
        name = f"{method.name}-{seed}-{variant}"

        def make() -> tuple[Tensor, dict[str, Any]]:
            scheme = scheme_of(method.scheme, self.problem)
            federation = MeteredFederation(
                self._problems[variant],
                self.training(scheme, seed, variant),
                method,
                trainer=self.trainer,
                copy=self.pieces.folder / f"copy-{name}",
                on_progress=self._on_progress,
            )
            made = forget(method, federation)
            refuse_unusable(method, made, self._size)
            return made.model, {**asdict(federation.meter), "remark": made.remark}

        inputs = {"method": declared(method), "recompute": self.effort.recompute}
        return Model(*self.pieces.vector(f"forgotten-{name}", inputs, self._size, make))

    def without_failures(self, methods: Sequence[Method]) -> tuple[list[Method], dict[str, str]]:
        """Leave out methods that fail, with any seed: not every one knows every task, and steps may end in NaN.

        Args:
            methods: All of them.

        Returns:
            Those that do not, and why the others do.

        """
        failed: dict[str, str] = {}
        for seed in range(self.effort.seeds):
            for variant in self.variants:
                for method in methods:
                    if method.name in failed:
                        continue
                    try:
                        self.forgotten(method, seed, variant)
                    except (StrategyError, TaskError, RoundRefused) as error:
                        failed[method.name] = str(error)
        return [method for method in methods if method.name not in failed], failed

    def report_of(self, scheme: str) -> SchemeReport:
        """Measure what a scheme gives before anybody leaves, and its references.

        Args:
            scheme: Its name.

        """
        references = self.reference_models(scheme)
        before = []
        for seed in range(self.effort.seeds):
            for variant in self.variants:
                self.training(scheme, seed, variant)
            before.append(self._common(references, self.training(scheme, seed, CLEAN).served))
            if BACKDOOR in self.variants:
                planted = self.training(scheme, seed, BACKDOOR)
                before[-1]["backdoor"] = success(self._problems[BACKDOOR], planted.served)
        measured = self.pieces.figures(
            f"references-{scheme}",
            {**self._inputs(references), "seeds": self.effort.seeds},
            lambda: {"references": self._measured_references(references)},
        )
        return SchemeReport(
            before=estimates_of([_figures(each) for each in before]),
            references=scatter_of([_figures(each) for each in measured["references"]]),
            attackers=scatter_of(references.attacked),
        )

    def reference_models(self, scheme: str) -> ReferenceModels:
        """Give what a scheme's references say of records and test data.

        Args:
            scheme: Its name.

        """
        if scheme not in self._reference_models:
            models = self.references(scheme)
            records = [records_of(self.problem, each) for each in models]
            attackers = attackers_for(self.problem, records)
            self.left_out.update(attackers.left_out)
            if not attackers.usable:
                self.unmeasured["best_attacker"] = "; ".join(sorted(set(attackers.left_out.values())))
            said = [predictions(self.problem, each) for each in models]
            if not said[0].answers.size:
                self.unmeasured["agreement"] = self.problem.outputs_obstacle or "the task has no test data"
            attacked = reference_advantages(attackers, records)
            self._reference_models[scheme] = ReferenceModels(scheme, models, records, said, attackers, attacked)
        return self._reference_models[scheme]

    def _measured_references(self, references: ReferenceModels) -> list[dict[str, Any]]:
        """Each reference beside the others, and beside the training of one of the seeds, in turn."""
        found = [self._common(references.without(i), model) for i, model in enumerate(references.models)]
        for seed in range(min(self.effort.seeds, len(references.models))):
            before = self.training(references.scheme, seed, CLEAN).served
            numbers = range(seed, len(references.models), self.effort.seeds)
            relearned = self._relearned([references.models[number] for number in numbers], before, seed)
            for number, rounds in zip(numbers, relearned, strict=True):
                figures, model = found[number], references.models[number]
                figures["relearning"] = rounds
                figures["reconstruction"] = self._reconstructed(before, model, seed)
                if BACKDOOR in self.variants:
                    figures["backdoor"] = success(self._problems[BACKDOOR], model)
        return found

    def rows(self, methods: Sequence[Method]) -> tuple[Row, ...]:
        """③ and ④ of all methods.

        Args:
            methods: Which methods.

        """
        found: dict[str, list[dict[str, Any]]] = {method.name: [] for method in methods}
        for seed in range(self.effort.seeds):
            for variant in self.variants:
                for method in methods:
                    self.forgotten(method, seed, variant)
            for method in methods:
                found[method.name].append(self.measured(method, seed, methods))
        return tuple(self._row(method, found[method.name]) for method in methods)

    def measured(self, method: Method, seed: int, methods: Sequence[Method]) -> dict[str, Any]:
        """④ Measure what a method made of one seed, or find its figures.

        Args:
            method: The method.
            seed: Of the training that it started from.
            methods: All that are compared, some of which relearn beside it.

        """
        references = self.reference_models(scheme_of(method.scheme, self.problem))
        model = self.forgotten(method, seed, CLEAN)

        def make() -> dict[str, Any]:
            before = self.training(references.scheme, seed, CLEAN).served
            figures = self._common(references, model.vector)
            figures["relearning"] = self.relearned(references.scheme, seed, methods)[method.name]
            figures["reconstruction"] = self._reconstructed(before, model.vector, seed)
            if BACKDOOR in self.variants:
                planted, problem = self.training(references.scheme, seed, BACKDOOR), self._problems[BACKDOOR]
                figures["backdoor"] = success(problem, self.forgotten(method, seed, BACKDOOR).vector)
                figures["backdoor_before"] = success(problem, planted.served)
            return figures

        name = f"measured-{method.name}-{seed}"
        inputs = {**self._inputs(references), "method": declared(method), "recompute": self.effort.recompute}
        return {**self.pieces.figures(name, inputs, make), **_costs(self.problem, method, model)}

    def relearned(self, scheme: str, seed: int, methods: Sequence[Method]) -> dict[str, int]:
        """④ Count rounds until relearning for all methods of a scheme, which train side by side.

        Args:
            scheme: Its name.
            seed: Of the training that methods started from.
            methods: All that are compared.

        """
        alike = [method for method in methods if scheme_of(method.scheme, self.problem) == scheme]
        names = [method.name for method in alike]
        models = [self.forgotten(method, seed, CLEAN).vector for method in alike]
        digests = [hashlib.sha256(model.numpy().data).hexdigest() for model in models]

        def make() -> dict[str, Any]:
            found = self._relearned(models, self.training(scheme, seed, CLEAN).served, seed)
            return dict(zip(names, found, strict=True))

        inputs = {"models": digests, "most": self.effort.relearning}
        return self.pieces.figures(f"relearning-{scheme}-{seed}", inputs, make, counted=False)

    def _relearned(self, models: Sequence[Tensor], before: Tensor, seed: int) -> list[int]:
        return rounds_to_relearn(
            self.problem,
            models,
            known=loss_on_leaver(self.problem, before),
            seed=seed,
            trainer=self.trainer,
            most=self.effort.relearning,
        )

    def _reconstructed(self, before: Tensor, after: Tensor, seed: int) -> float | None:
        return reconstruction(self.problem, before, after, self.effort.inversion, seed=seed)

    def _common(self, references: ReferenceModels, vector: Tensor) -> dict[str, Any]:
        """What any model is measured by, beside references."""
        said, records = predictions(self.problem, vector), records_of(self.problem, vector)
        attacked = advantages(references.attackers, records, references.records)
        usual = {
            name: sum(each[name] for each in references.attacked) / len(references.attacked) for name in attacked
        }
        differences = {name: attacked[name] - usual[name] for name in attacked}
        return {
            "accuracy": said.accuracy,
            "loss": said.loss,
            "leaver_accuracy": said.leaver_accuracy,
            "leaver_loss": said.leaver_loss,
            "agreement": agreement(said, references.said),
            "best_attacker": max(map(abs, differences.values()), default=None),
            "loss_gap": loss_gap(self.problem, records),
            "attackers": differences,
        }

    def _row(self, method: Method, found: Sequence[Mapping[str, Any]]) -> Row:
        planted = [each["backdoor_before"] for each in found if each.get("backdoor_before") is not None]
        return Row(
            method=method,
            scheme=scheme_of(method.scheme, self.problem),
            estimates=estimates_of([_figures(each) for each in found]),
            attackers=estimates_of([each["attackers"] for each in found]),
            remarks=tuple(str(each["remark"]) for each in found),
            backdoor_before=Estimate(tuple(map(float, planted))) if len(planted) == len(found) else None,
        )

    def _inputs(self, references: ReferenceModels) -> dict[str, Any]:
        """What figures depend on beside the model."""
        return {
            "references": len(references.models),
            "quick": self.effort.quick,
            "attackers": [attacker.name for attacker in references.attackers.usable],
        }


@dataclass(frozen=True, eq=False)
class ReferenceModels:
    """References of a scheme, and what they say.

    Attributes:
        scheme: Its name.
        models: One for each retraining.
        records: Their confidences of records.
        said: Their predictions.
        attackers: Who can attack one model.
        attacked: The advantages of attackers on each.

    """

    scheme: str
    models: Sequence[Tensor]
    records: Sequence[Records]
    said: Sequence[Predictions]
    attackers: Attackers
    attacked: Sequence[Mapping[str, float]]

    def without(self, number: int) -> ReferenceModels:
        """Leave one of them out, which is to be held against the others."""

        def others(some: Sequence[Any]) -> list[Any]:
            return [*some[:number], *some[number + 1 :]]

        return ReferenceModels(
            self.scheme,
            others(self.models),
            others(self.records),
            others(self.said),
            self.attackers,
            others(self.attacked),
        )


def inputs_of(problem: Problem) -> dict[str, Any]:
    """Say what every piece depends on: the run, its settings and who leaves.

    Args:
        problem: What is compared on.

    """
    subject = problem.subject
    return {
        "version": __version__,
        "run": problem.identity,
        "client": subject.client,
        "erased": subject.erased,
        "clients": subject.clients,
        "rounds": subject.rounds,
        "settings": config.to_toml(subject.settings, comments=False),
        "policy": asdict(subject.policy),
        "initial": hashlib.sha256(subject.initial.vector.numpy().data).hexdigest(),
        "records": hashlib.sha256(subject.records.tobytes()).hexdigest(),
    }


def declared(method: Method) -> dict[str, Any]:
    """Say what tells a method from another one: its class, its hyperparameters.

    Args:
        method: The method.

    """
    settings = {name: getattr(method, name) for name in getattr(method, "__dataclass_fields__", ())}
    module = type(method).__module__.replace("__mp_main__", "__main__")  # a script, in a process that it started
    return {"class": f"{module}.{type(method).__qualname__}", **settings}


def forget(method: Method, federation: MeteredFederation) -> Forgotten:
    """Let a method forget, on the clock; whatever its code raises is its own error, and not a defect of disavow.

    Args:
        method: The method.
        federation: What it is given.

    Raises:
        StrategyError: It failed.

    """
    try:
        with federation.timed():
            return method.forget(federation)
    except (DisavowError, OSError):
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise StrategyError(f'method "{method.name}" failed with {what}') from error


def refuse_unusable(method: Method, made: Forgotten, size: int) -> None:
    """Refuse what is no model.

    Args:
        method: Who made it.
        made: What it made.
        size: How many numbers a model has.

    Raises:
        StrategyError: It is not a finite vector of that size.

    """
    model = made.model
    if model.shape != (size,) or model.dtype != torch.float32:
        raise StrategyError(
            f'method "{method.name}" returned {tuple(model.shape)} of {model.dtype}; allowed: ({size},) of float32'
        )
    if not bool(model.isfinite().all()):
        raise StrategyError(f'method "{method.name}" returned a model with NaN or infinity')


def _costs(problem: Problem, method: Method, model: Model) -> dict[str, Any]:
    """What a method took, and what a server must store for it."""
    rounds, settings = problem.rounds, problem.subject.settings
    participants = max(1, round(len(problem.subject.clients) * settings.training.fraction))
    whole = rounds * max(1, round(len(problem.remaining) * settings.training.fraction)) * settings.training.epochs
    return {
        "client_epochs": model.notes["client_epochs"],
        "work": model.notes["client_epochs"] / whole,
        "bytes_sent": model.notes["bytes_sent"],
        "bytes_stored": method.bytes_stored(rounds, participants, problem.model_bytes),
        "seconds": model.notes["seconds"],
        "remark": model.notes["remark"],
    }


def _figures(found: Mapping[str, Any]) -> dict[str, float | None]:
    """What a table shows: without texts and what is told apart by attacker."""
    apart = {"attackers", "remark", "backdoor_before"}
    return {name: value for name, value in found.items() if name not in apart}
