"""The run's own scheme: the run itself, its settings under other seeds, and with more representatives."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from disavow import __version__, config
from disavow.compare.memory_rounds import run_rounds, trained_round
from disavow.compare.problem import OF_THE_RUN, Problem
from disavow.compare.scheme import Scheme, TrainingResources, reference_purpose
from disavow.compare.training import TrainedRound, Training
from disavow.domain import Policy
from disavow.engines.trainer import Ask, VectorisedEngine
from disavow.errors import ConfigError
from disavow.ledger import Ledger
from disavow.ledger.copying import copy_run
from disavow.ledger.database import LOCAL
from disavow.rounds.round import close_round, open_round
from disavow.rounds.vectors import Model

RUN, KEYS = "run", "keys"
"""Folders of a training with a ledger."""


@dataclass(frozen=True)
class OwnScheme(Scheme):
    """As the run was trained. Seed 0 is a copy of the run itself; another seed trains its settings anew."""

    name = "run"
    representatives: ClassVar[int | None] = None

    def policy(self, problem: Problem) -> Policy:
        """Give the policy that it trains by.

        Args:
            problem: What is compared on.

        """
        if self.representatives is None:
            return problem.policy
        return replace(problem.policy, representatives=self.representatives)

    def obstacle(self, problem: Problem) -> str | None:
        """Refuse more representatives than the run's clusters allow; see `Scheme`."""
        if self.representatives is None:
            return None
        settings = problem.subject.settings
        drawn = settings.clustering.model_copy(update={"representatives": self.representatives})
        try:
            config.from_values(settings.model_copy(update={"clustering": drawn}).model_dump(), source="compare")
        except ConfigError as error:
            return str(error)
        return None

    def is_the_run(self, problem: Problem) -> bool:
        """See `Scheme`."""
        return self.representatives is not None and self.representatives == problem.policy.representatives

    def train(self, problem: Problem, seed: int, folder: Path, resources: TrainingResources) -> Training:
        """Copy the run, or train its settings in a ledger of their own; see `Scheme`."""
        # with a backdoor the run is another one, and has to be trained whatever the seed
        if seed == OF_THE_RUN and self.representatives is None and problem.trigger is None:
            return self._copied(problem, folder, resources)
        return self._anew(problem, seed, folder, resources)

    def _copied(self, problem: Problem, folder: Path, resources: TrainingResources) -> Training:
        subject = problem.subject
        copy_run(subject.directory, folder / RUN, keys=problem.keys, target_keys=folder / KEYS)
        with Ledger.open(folder / RUN, keys=folder / KEYS) as ledger:
            if ledger.last_round < subject.rounds or ledger.clients() != subject.clients:
                raise ConfigError(f"{subject.directory} has changed since the comparison began; compare again")
            _refuse_thinned(ledger)
            workload = problem.workload(OF_THE_RUN, without_leaver=False)
            kept = {each.number: each for each in ledger.kept_rounds(1)}
            rounds = []
            for number in range(1, subject.rounds + 1):
                before = torch.from_numpy(ledger.model_before(number))
                members = _members(ledger, number)
                clients = tuple(client for client, _ in members)
                if resources.updates and resources.recompute:
                    ask = Ask(workload, Model(subject.layout, before), clients, number)
                    rounds.append(trained_round(ask, resources.trainer.train([ask])[0]))
                else:
                    updates = None
                    if resources.updates and number in kept:
                        stored = ledger.kept_updates(kept[number])  # in id order, as members are
                        updates = torch.stack([torch.from_numpy(each) for each in stored])
                    samples = tuple(count for _, count in members)
                    rounds.append(TrainedRound(number, before, clients, samples, updates))
                resources.on_rounds(1)
            served = torch.from_numpy(ledger.model_before(subject.rounds + 1))
        return Training(subject.layout, tuple(rounds), served, OF_THE_RUN, folder / RUN, folder / KEYS)

    def _anew(self, problem: Problem, seed: int, folder: Path, resources: TrainingResources) -> Training:
        subject, options = problem.subject, problem.options(seed, f"training of {self.name}")
        ledger = Ledger.create(
            folder / RUN,
            policy=self.policy(problem),
            layout=subject.layout,
            initial=subject.initial.vector.numpy(),
            clients=subject.clients,
            config="",
            created_by=f"disavow {__version__}",
            at=options.clock(),
            keys=folder / KEYS,
            database=LOCAL,
        )
        rounds: list[TrainedRound] = []
        with closing(ledger):
            if subject.anchors is not None:
                ledger.keep_anchors(subject.anchors)
            engine = VectorisedEngine(problem.workload(seed, without_leaver=False), resources.trainer)
            for _ in range(subject.rounds):
                opening, clients = open_round(ledger, options)
                ask = engine.ask(opening.model, clients, opening.number)
                [updates] = resources.trainer.train([ask])
                rounds.append(trained_round(ask, updates, keep=resources.updates))
                close_round(ledger, opening, updates, options)
                resources.on_rounds(1)
            served = torch.from_numpy(ledger.model_before(subject.rounds + 1))
        return Training(subject.layout, tuple(rounds), served, seed, folder / RUN, folder / KEYS)

    def retrain(self, problem: Problem, seeds: Sequence[int], resources: TrainingResources) -> list[Tensor]:
        """See `Scheme`."""
        policy, purpose = self.policy(problem), reference_purpose(self.name)
        made = [problem.memory_run(seed, purpose, without_leaver=True, policy=policy) for seed in seeds]
        # a task's own engine is built anew for other batches: one federation after the other there
        for some in [made] if problem.subject.labelled else [[each] for each in made]:
            run_rounds(some, resources.trainer, problem.rounds, on_rounds=resources.on_rounds)
        return [each.vector for each in made]


@dataclass(frozen=True)
class OneRepresentative(OwnScheme):
    """The same with one representative of each cluster."""

    name = "s1"
    representatives = 1


@dataclass(frozen=True)
class ThreeRepresentatives(OwnScheme):
    """The same with the mean of three representatives of each cluster."""

    name = "s3"
    representatives = 3


def _members(ledger: Ledger, number: int) -> list[tuple[str, int]]:
    """Who took part in a standing round with how many records, in id order."""
    if not ledger.membership(number):
        raise ConfigError(
            f"round {number} of {ledger.directory} was rebuilt after an erasure: who trained in it is not a "
            "round's membership; compare on a run in which nobody was erased approximately"
        )
    found = [(slot.member.client, slot.member.samples) for slot in ledger.round(number).slots if slot.member]
    return sorted(found)


def _refuse_thinned(ledger: Ledger) -> None:
    gone = [each.round for each in ledger.round_models() if not each.kept]
    if gone:
        raise ConfigError(
            f"{len(gone)} of the run's models were deleted (ledger.retention), the first before round {gone[0]}: "
            'methods start from them; compare on a run with ledger.retention = "all"'
        )
