"""What is compared on: a run's task and clients, who leaves, and the same federation under other seeds."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from disavow import runs
from disavow.audit.subject import Subject, subject_of
from disavow.compare.memory_rounds import MemoryRun
from disavow.data import OnProgress
from disavow.data.dataset import Indices
from disavow.data.progress import nothing
from disavow.domain import Policy
from disavow.engines.factory import device_of
from disavow.engines.objectives import EVALUATION_BATCH
from disavow.engines.state import put_model, vector_of
from disavow.engines.workload import Workload
from disavow.errors import TaskError
from disavow.ledger import Ledger
from disavow.rounds.options import RoundOptions
from disavow.rounds.participation import SecretOrder, participation_of
from disavow.rounds.randomness import Secrets, derive, training_stream
from disavow.rounds.vectors import Model
from disavow.tasks.samples import TensorSamples, moved, samples_of
from disavow.tasks.task import outputs_and_targets
from disavow.tasks.user_errors import name_of, own_code

OF_THE_RUN = 0
"""The seed that stands for the run itself; others train its settings anew."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A federation, and who leaves it.

    Attributes:
        subject: The leaver, or some of its records, with the run's settings and task.
        keys: The folder of the operator's keys, which the copy of the run is made with.
        participation: The run's secret order of clients, where it has one.
        trigger: Marks the leaver's records, where it planted a backdoor; None where it did not.
        identity: Tells the run, in the state that it is in, from every other one.

    """

    subject: Subject
    keys: Path
    participation: SecretOrder | None = field(default=None, repr=False)
    trigger: Trigger | None = None
    identity: str = ""

    @property
    def leaver(self) -> str:
        """The id of the client that leaves, or some of whose records do."""
        return self.subject.client

    @property
    def remaining(self) -> tuple[str, ...]:
        """Who stays; with the leaver, where only some of its records leave."""
        if self.subject.erased:
            return self.subject.clients
        return tuple(client for client in self.subject.clients if client != self.leaver)

    @property
    def rounds(self) -> int:
        """How many rounds the run has."""
        return self.subject.rounds

    @property
    def policy(self) -> Policy:
        """How the run forms clusters and perturbs them."""
        return self.subject.policy

    @property
    def model_bytes(self) -> int:
        """What a model, or an update, takes: four bytes a number."""
        return 4 * self.subject.layout.size

    @cached_property
    def device(self) -> torch.device:
        """Where networks are evaluated, and edited by methods."""
        return device_of(self.subject.settings.engine) if self.subject.labelled else self.subject.device

    def seed_of(self, seed: int) -> int:
        """Give the seed of batches and participation: the run's own, or another one.

        Args:
            seed: Which training, or which reference.

        """
        own = self.subject.settings.seed
        # below 2^63, which is what settings allow
        return own if seed == OF_THE_RUN else int.from_bytes(derive("compare", own, seed)[:7], "big")

    def options(self, seed: int, purpose: str) -> RoundOptions:
        """Say how rounds are run. Secret draws are seeded: a comparison can be repeated, and releases nothing.

        Args:
            seed: Which training, or which reference.
            purpose: What else the secret draws derive from: whose rounds they are.

        """
        own = seed == OF_THE_RUN
        settings = self.subject.settings
        drawn = Secrets(int.from_bytes(derive("compare", settings.seed, seed, purpose), "big"))
        made = runs.round_options(settings, participation=self.participation if own else None)
        return replace(made, seed=self.seed_of(seed), secrets=drawn, budget=None, retention=None, approval="never")

    def workload(self, seed: int, *, without_leaver: bool) -> Workload:
        """Give what clients train on, with batches of a seed.

        Args:
            seed: Which training, or which reference.
            without_leaver: Without what leaves.

        """
        gone = without_leaver and self.subject.erased
        made: Any = self.subject.workload_without() if gone else self.subject.workload()
        # of images, or of any task: trainers ask no more of it than both have
        return cast("Workload", replace(made, seed=self.seed_of(seed)))

    def memory_run(
        self,
        seed: int,
        purpose: str,
        *,
        without_leaver: bool,
        vector: Tensor | None = None,
        number: int = 1,
        policy: Policy | None = None,
        workload: Workload | None = None,
    ) -> MemoryRun:
        """Begin a federation in memory, from the initial model or another one.

        Args:
            seed: Which training, or which reference.
            purpose: Whose rounds they are: secret draws derive from it.
            without_leaver: Without what leaves.
            vector: The model to start from; None: the run's initial one.
            number: Of the first round.
            policy: How clusters are formed; None: as in the run.
            workload: What clients train on, where it was made before.

        """
        clients = self.remaining if without_leaver else self.subject.clients
        anchors = self.subject.anchors
        return MemoryRun(
            workload=workload or self.workload(seed, without_leaver=without_leaver),
            policy=policy or self.policy,
            options=self.options(seed, purpose),
            clients=clients,
            layout=self.subject.layout,
            vector=self.subject.initial.vector if vector is None else vector,
            number=number,
            anchors=None if anchors is None else anchors.without({*self.subject.clients} - {*clients}),
        )

    @cached_property
    def _test(self) -> Indices:
        """The numbers of all test records, in a drawn order."""
        test = self.subject.loaded.test
        if test is None:
            return np.zeros(0, np.int64)
        count = len(samples_of(test, owner="the test data", collate=self.subject.task.collate))
        order = training_stream(self.subject.settings.seed, "compare, test data").permutation(count)
        return order + (len(self.subject.samples) - count)

    @property
    def measured(self) -> Indices:
        """The half of the test records that every method is measured on."""
        return self._test[: (len(self._test) + 1) // 2]

    @property
    def public(self) -> Indices:
        """The other half, whose inputs methods may use; without those that attackers take for held-out ones."""
        other = self._test[(len(self._test) + 1) // 2 :]
        return other[~np.isin(other, self.subject.held_out)]

    def network(self, vector: Tensor) -> nn.Module:
        """Build the network with these numbers on the device, in training mode.

        Args:
            vector: Its parameters and floating buffers.

        """
        network = copy.deepcopy(self.subject.network)
        put_model(network, Model(self.subject.layout, vector.detach().to("cpu", torch.float32)))
        return network.to(self.device).train()

    def vector_of(self, network: nn.Module) -> Tensor:
        """Read the numbers of a network, on the CPU.

        Args:
            network: What `network` gave.

        """
        return vector_of(network).cpu()

    def batch(self, positions: Indices) -> Any:
        """Give records on the device.

        Args:
            positions: Their numbers among all records of the task.

        """
        return moved(self.subject.samples.batch(np.ascontiguousarray(positions)), self.device)

    def outputs(self, vector: Tensor, positions: Indices) -> Tensor:
        """Compute what a model says of records, in evaluation mode.

        Args:
            vector: The model.
            positions: The numbers of the records.

        Returns:
            One row a record, in float64 on the CPU.

        """
        network = self.network(vector).eval()
        found = []
        with torch.no_grad():
            for start in range(0, len(positions), EVALUATION_BATCH):
                answers, _ = outputs_and_targets(network, self.batch(positions[start : start + EVALUATION_BATCH]))
                found.append(answers.cpu().double())
        return torch.cat(found) if found else torch.zeros(0)

    @cached_property
    def outputs_obstacle(self) -> str | None:
        """Why `outputs` cannot be computed; None where they can."""
        try:
            self.outputs(self.subject.initial.vector, self.subject.own[:1])
        except (TypeError, ValueError, RuntimeError):  # only the task's own loss knows how its model is called
            return "the model does not take a batch without its last element"
        return None

    @cached_property
    def likelihood_obstacle(self) -> str | None:
        """Why the likelihood of a record cannot be computed; None where it can."""
        task = self.subject.task
        network, batch = self.network(self.subject.initial.vector).eval(), self.batch(self.subject.own[:1])
        try:
            with torch.no_grad(), own_code(name_of(task, "log_likelihoods")):
                known = task.log_likelihoods(network, batch) is not None
        except TaskError as error:
            return str(error)
        return None if known else "needs the likelihood of a record, and the loss of the task is none"

    def with_backdoor(self, trigger: Trigger) -> Problem:
        """Give the problem in which what leaves carries a trigger and the label that it stands for.

        Args:
            trigger: What is planted.

        """
        images, labels = self.subject.images.clone(), self.subject.labels.clone()
        own = torch.from_numpy(self.subject.own)
        images[own], labels[own] = trigger.on(images[own]), trigger.label
        return replace(
            self, subject=replace(self.subject, samples=TensorSamples((images, labels))), trigger=trigger
        )


def open_problem(
    directory: Path,
    client: str,
    *,
    keys: Path,
    records: Sequence[str] = (),
    task: str | None = None,
    on_progress: OnProgress = nothing,
) -> Problem:
    """Load a run's task and data, and make the problem of a client that leaves, or of some of its records.

    Args:
        directory: The run.
        client: Who leaves.
        keys: The folder of the operator's keys.
        records: The keys of the records that leave; none: the whole client does.
        task: What trains the run, where its settings do not say.
        on_progress: Hears how far loading is.

    """
    # of fewer records than attackers need, what else there is to measure is compared
    subject = subject_of(
        directory, client, task=task, on_progress=on_progress, keys=keys, records=records, fewest_records=1
    )
    return problem_of(subject, keys=keys)


def problem_of(subject: Subject, *, keys: Path) -> Problem:
    """Make the problem of a client that leaves, or of some of its records.

    Args:
        subject: The client and its run.
        keys: The folder of the operator's keys.

    Raises:
        KeyringMissing: Who takes part in which round is secret, and the keyring is not there.

    """
    with Ledger.open(subject.directory, keys=keys) as ledger:
        participation = participation_of(subject.settings, ledger)
        if participation is not None:
            participation.clients.remember(subject.clients)
        identity = f"{ledger.run_id} {ledger.served_model_digest()}"
    return Problem(subject, keys, participation, identity=identity)


@dataclass(frozen=True, eq=False)
class Trigger:
    """What a backdoor answers to.

    Attributes:
        positions: Where it overwrites a record's inputs, as flat positions.
        value: What with.
        label: What it is to be taken for.

    """

    positions: Sequence[int]
    value: float
    label: int

    def on(self, inputs: Tensor) -> Tensor:
        """Mark a copy of records.

        Args:
            inputs: One row a record.

        """
        marked = inputs.flatten(1).clone()
        marked[:, list(self.positions)] = self.value
        return marked.reshape(inputs.shape)
