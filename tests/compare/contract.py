"""What every method owes: one suite, run over all that are registered, and over the planted failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from disavow.compare.metered import Meter, MeteredFederation
from disavow.compare.method import Forgotten, Method
from disavow.compare.problem import Problem
from disavow.compare.scheme import scheme_of
from disavow.compare.training import Training
from disavow.engines.trainer import Trainer
from tests.audit.making import hashes_of


@dataclass
class Given:
    """What a method is tried on."""

    problem: Problem
    trainings: dict[str, Training]
    trainer: Trainer
    folder: Path
    progress: list[tuple[int, int]] = field(default_factory=list)

    def forget(self, method: Method) -> tuple[Forgotten, Meter]:
        """Let a method forget, metered."""
        training = self.trainings[scheme_of(method.scheme, self.problem)]
        federation = MeteredFederation(
            self.problem,
            training,
            method,
            trainer=self.trainer,
            copy=self.folder / "copy",
            on_progress=lambda done, total: self.progress.append((done, total)),
        )
        with federation.timed():
            return method.forget(federation), federation.meter


class MethodContract:
    """One method, forgotten with twice."""

    def check(self, method: Method, given: Given) -> None:
        """Hold a method to all of it; two calls serve every check, because calls take time."""
        run = hashes_of(given.problem.subject.directory)
        training = given.trainings[scheme_of(method.scheme, given.problem)]
        served = training.served.clone()
        (first, meter), (second, again) = given.forget(method), given.forget(method)
        self.returns_a_model(first, given.problem)
        self.is_repeatable(first, second, meter, again)
        self.leaves_the_training_alone(training, served)
        self.tells_progress_in_order(given)
        self.declares_itself(method)
        assert hashes_of(given.problem.subject.directory) == run

    def returns_a_model(self, forgotten: Forgotten, problem: Problem) -> None:
        model = forgotten.model
        assert model.shape == (problem.subject.layout.size,)
        assert (model.dtype, model.device.type) == (torch.float32, "cpu")
        assert bool(model.isfinite().all())

    def is_repeatable(self, first: Forgotten, second: Forgotten, meter: Meter, again: Meter) -> None:
        assert torch.equal(first.model, second.model)
        assert first.remark == second.remark
        assert (meter.client_epochs, meter.bytes_sent) == (again.client_epochs, again.bytes_sent)
        assert meter.seconds > 0

    def leaves_the_training_alone(self, training: Training, served: torch.Tensor) -> None:
        assert torch.equal(training.served, served)

    def tells_progress_in_order(self, given: Given) -> None:
        assert all(0 < done <= total for done, total in given.progress)

    def declares_itself(self, method: Method) -> None:
        assert method.paper
        assert method.claim
        assert method.bytes_stored(10, 5, 100) >= 0
        assert (method.bytes_stored(10, 5, 100) == 0) == (method.stores == "nothing")
