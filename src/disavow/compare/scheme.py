"""What a scheme is: how a federation is trained before anybody leaves, and how it is trained without the leaver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from disavow.compare.memory_rounds import OnRounds, ignore_rounds
from disavow.compare.problem import Problem
from disavow.compare.training import Training
from disavow.domain.strategies import Registry, Strategy
from disavow.engines.trainer import Trainer


@dataclass(frozen=True, eq=False)
class TrainingResources:
    """What schemes train with.

    Attributes:
        trainer: Trains the clients of all federations.
        updates: Keep what clients send, for methods that need it.
        recompute: Compute updates that the run did not keep from its models and the clients' data.
        on_rounds: Called with how many more rounds were trained.

    """

    trainer: Trainer
    updates: bool = True
    recompute: bool = False
    on_rounds: OnRounds = ignore_rounds


class Scheme(Strategy, ABC):
    """One way to train a federation. Those with a ledger keep it in the training's folder."""

    def obstacle(self, problem: Problem) -> str | None:
        """Say why this run's settings do not allow the scheme; None where they do.

        Args:
            problem: What is compared on.

        """
        del problem
        return None

    def is_the_run(self, problem: Problem) -> bool:
        """Say whether the run itself was trained so: then its training and references are taken for this scheme's.

        Args:
            problem: What is compared on.

        """
        del problem
        return False

    @abstractmethod
    def train(self, problem: Problem, seed: int, folder: Path, resources: TrainingResources) -> Training:
        """Train with the leaver.

        Args:
            problem: What is compared on.
            seed: Of batches, participation and secret draws; 0 stands for the run itself.
            folder: Is empty, and stays as long as the training: for a ledger, where the scheme has one.
            resources: What trains.

        Returns:
            The training, with every client's updates where they can be had.

        """

    @abstractmethod
    def retrain(self, problem: Problem, seeds: Sequence[int], resources: TrainingResources) -> list[Tensor]:
        """Train without what leaves, from the initial model on: references.

        Args:
            problem: What is compared on.
            seeds: One federation each.
            resources: What trains.

        Returns:
            The model that each would serve, on the CPU.

        """


SCHEMES = Registry[Scheme](
    "scheme",
    {
        "run": ("disavow.compare.schemes.run:OwnScheme", ""),
        "s1": ("disavow.compare.schemes.run:OneRepresentative", ""),
        "s3": ("disavow.compare.schemes.run:ThreeRepresentatives", ""),
        "sampled": ("disavow.compare.schemes.sampled:SampledClients", ""),
        "shards": ("disavow.compare.schemes.shards:IsolatedShards", ""),
    },
)
"""All ways to train, by the name that methods declare."""

Scheme.registry = SCHEMES


def scheme_of(name: str, problem: Problem) -> str:
    """Resolve what a method declares: "run" wherever the run was trained that way.

    Args:
        name: The declared scheme.
        problem: What is compared on.

    Raises:
        ConfigError: There is no such scheme.

    """
    return "run" if SCHEMES[name].is_the_run(problem) else name


def reference_purpose(scheme: str) -> str:
    """Name the secret draws of a scheme's references: no two schemes share theirs."""
    return f"reference of {scheme}"
