"""What is audited: a client of a run, or records of one, and whether it can be, said before hours are spent."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from disavow import runs
from disavow.audit.game import Flags, Need
from disavow.config import Settings, participants_of
from disavow.data import FederatedData, OnProgress
from disavow.data.dataset import Indices
from disavow.data.progress import nothing
from disavow.domain import Anchors, Exclusions, Layout, Policy, escaped
from disavow.engines import build as build_engine
from disavow.engines.factory import device_of
from disavow.engines.state import put_model
from disavow.engines.task_engine import NotRecognised, build_for_task, recognise
from disavow.engines.task_workload import TaskWorkload
from disavow.engines.workload import Workload, image_workload
from disavow.errors import ConfigError, TaskError, UnknownClient
from disavow.ledger import Ledger
from disavow.record_requests import ErasureScope, checked
from disavow.rounds.local_training import Engine
from disavow.rounds.randomness import training_stream
from disavow.rounds.vectors import Model
from disavow.tasks import ImageTask, Task
from disavow.tasks.loading import LoadedTask, load
from disavow.tasks.record_loss import record_losses
from disavow.tasks.samples import JoinedSamples, Samples, TensorSamples, samples_of
from disavow.tasks.task import is_cross_entropy, targets_of

FEWEST_RECORDS = 10
"""Records of either kind below which no attacker that scores records could be told from chance."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A client still in, with its run's settings and state, and the task at hand.

    `anchors` are those of its fixed clusters, which a world without the client shares: its place is a gap there.
    `samples` are all records, those to train on before those held out, and `parts` the numbers of those that each
    client holds. `own` and `held_out` are the numbers of the records that attackers score: the client's, and
    held-out ones with the same labels. `labelled` says that kernels know the task: samples are inputs and labels;
    `classes` that its loss is the cross entropy of classes, or of attributes. `lacking` says of what the task does
    not have why it does not.

    Where `erased` names records, they alone are audited: `own` are the numbers of their examples, and the client
    takes part everywhere, with them or without. `left` is the task without them.
    """

    directory: Path
    client: str
    clients: tuple[str, ...]
    rounds: int
    settings: Settings
    policy: Policy
    layout: Layout
    network: nn.Module
    initial: Model
    loaded: LoadedTask
    samples: Samples
    parts: dict[str, Indices]
    anchors: Anchors | None
    own: Indices
    held_out: Indices
    labelled: bool = True
    classes: bool = True
    lacking: Mapping[Need, str] = field(default_factory=dict)
    erased: tuple[str, ...] = ()
    left: LoadedTask | None = None

    @property
    def kept(self) -> Indices:
        """The numbers of the client's records that stay, where some of its records are audited."""
        held = self.parts[self.client]
        return held[~np.isin(held, self.own)]

    @property
    def too_few(self) -> str | None:
        """Why attackers who score single records cannot be told from chance; None where they can."""
        number = len(self.own)
        if number >= FEWEST_RECORDS:
            return None
        return f"it scores single records, of which {number} are audited: fewer than {FEWEST_RECORDS}"

    @property
    def records(self) -> Indices:
        """The own records, then the held-out ones."""
        return np.concatenate([self.own, self.held_out])

    @property
    def task(self) -> Task:
        """What is trained."""
        return self.loaded.task

    @property
    def images(self) -> Tensor:
        """The inputs of all records, where kernels know the task."""
        return _tensors(self.samples)[0]

    @property
    def labels(self) -> Tensor:
        """Their labels."""
        return _tensors(self.samples)[1]

    @property
    def device(self) -> torch.device:
        """Where a task that kernels do not know is trained: as its engine does."""
        settings = self.settings.engine
        return device_of(settings) if settings.device == "cuda" else torch.device("cpu")

    def workload_without(self) -> Workload:
        """Return what trainers train on where the client never held the records that are audited."""
        if not self.labelled:
            return cast("Workload", self._task_workload(None, self.left))
        return self.workload(held=self.kept)

    def workload_of_shadow(self, held: Flags) -> Workload:
        """Return the same where the client holds some of the scored records, and of its own what is not audited.

        Args:
            held: Which of `records`.

        """
        chosen = self.records[held]
        return self.workload(held=np.concatenate([self.kept, chosen]) if self.erased else chosen)

    def workload(self, *, held: Indices | None = None) -> Workload:
        """Return what trainers train on; `held` takes the place of the client's own records.

        The test is one record at most: nobody looks at how well a world does on it, and a larger one would take
        time.
        """
        if not self.labelled:
            # what trains it is `TaskTrainer`, which asks no more of a workload than any task has
            return cast("Workload", self._task_workload(held))
        parts = self.parts if held is None else {**self.parts, self.client: held}
        return Workload(
            network=self.network,
            images=self.images,
            labels=self.labels,
            parts=parts,
            test_images=self.images[self.held_out[:1]],
            test_labels=self.labels[self.held_out[:1]],
            settings=self.settings.training,
            seed=self.settings.seed,
        )

    def _task_workload(self, held: Indices | None, loaded: LoadedTask | None = None) -> TaskWorkload:
        loaded = loaded or self.loaded
        if held is not None and isinstance(self.samples, JoinedSamples):
            loaded = replace(loaded, samples={**loaded.samples, self.client: self.samples.select(held)})
        return TaskWorkload(loaded, self.settings.training, self.settings.seed, self.device)

    def holding(self, model: Model) -> nn.Module:
        """Copy the network, and give it the numbers of a model."""
        network = copy.deepcopy(self.network)
        put_model(network, model)
        return network if self.labelled else network.to(self.device)

    def engine(self) -> Engine:
        """Build what trains the run itself; to be closed by the caller."""
        return self._engine(self.workload, self.loaded)

    def engine_after(self) -> Engine:
        """Build what trains the run once the erasure is answered; to be closed by the caller."""
        return self.engine() if self.left is None else self._engine(self.workload_without, self.left)

    def _engine(self, workload: Callable[[], Workload], loaded: LoadedTask) -> Engine:
        settings = self.settings
        if self.labelled:
            return build_engine(workload(), settings.engine)
        return build_for_task(loaded, settings.training, settings.seed, settings.engine)


def _tensors(samples: Samples) -> tuple[Tensor, ...]:
    if not isinstance(samples, TensorSamples):
        raise TypeError("the records of this task are not inputs and labels")
    return samples.tensors


def subject_of(
    directory: Path,
    client: str,
    *,
    task: Task | str | None = None,
    data: FederatedData | None = None,
    seed: int = 1,
    on_progress: OnProgress = nothing,
    keys: Path | None = None,
    records: Sequence[str] = (),
    fewest_records: int = FEWEST_RECORDS,
) -> Subject:
    """Prepare a client, or some of its records, to be audited.

    Args:
        directory: The run.
        client: Its id.
        task: What trains it, where its settings do not name a task: one, or module:callable that makes one.
        data: What stands in for the images that the run's settings name; None: they are loaded.
        seed: Draws the held-out records.
        on_progress: Called with how far the data is.
        keys: The folder of the operator's keys; `DISAVOW_KEYS` unless told otherwise.
        records: The keys of the client's records that are audited; none: the whole client is.
        fewest_records: That a client must hold who is audited whole; attackers who score records need
            `FEWEST_RECORDS`, see `Subject.too_few`.

    Returns:
        The client and its run.

    Raises:
        UnknownClient: It is not in the run.
        UnknownRecord: It does not hold one of the records.
        RecordErased: One of them was erased before.
        RecordsUnchecked: The task names no records, or these are all that the client holds.
        ConfigError: It cannot be audited, and why.
        CannotRetrain: Its run cannot be trained here.

    """
    settings = runs.settings_of(directory)
    runs.refuse_on_nodes(settings, directory)
    with Ledger.open(directory, keys=keys) as ledger:
        _refuse(ledger, client)
        runs.refuse_changed(ledger, settings)  # else records could be taken for the client's that are others'
        if data is None:
            loaded = runs.find_again(ledger, settings, task, on_progress=on_progress)
        else:
            loaded = _load_images(ledger, settings, data)
        if records:
            checked(ledger, ErasureScope(records={client: tuple(records)}), lambda: loaded)
        clients, rounds = ledger.clients(), ledger.last_round
        policy, layout, anchors = ledger.policy, ledger.layout, ledger.anchors()
        initial, served = (Model(layout, torch.from_numpy(ledger.model_before(t))) for t in (1, rounds + 1))
    if not records:
        _refuse_too_few_clients(client, len(clients), policy, settings)
    known = _recognised(loaded, settings)
    classes = is_cross_entropy(loaded.task) and _classes(loaded.samples[client]) is not None
    chosen = _positions(loaded, client, records)
    made = (
        _labelled_records(loaded, known, client, chosen, seed) if known else _records(loaded, client, chosen, seed)
    )
    if loaded.test is not None:
        _refuse_too_few_records(client, made.own, made.held_out, 1 if records else fewest_records)
    found = Subject(
        directory=directory,
        client=client,
        clients=clients,
        rounds=rounds,
        settings=settings,
        policy=policy,
        layout=layout,
        network=loaded.network,
        initial=initial,
        loaded=loaded,
        samples=made.samples,
        parts={name: np.asarray(made.parts[name]) for name in clients},
        anchors=anchors,
        own=made.own,
        held_out=made.held_out,
        labelled=known is not None,
        classes=classes or known is not None,
        erased=tuple(records),
        # whoever compares hashes of records here has their keys: any key of the hashes will do
        left=loaded.without({client: Exclusions(bytes(32)).adding(records)}) if records else None,
    )
    return replace(found, lacking=_lacking(found, served))


def _load_images(ledger: Ledger, settings: Settings, data: FederatedData) -> LoadedTask:
    """The run's task with other images in the place of its own."""
    runs.refuse_other_trainer(ledger, settings)
    runs.refuse_missing_data(ledger, data)
    images = ImageTask(settings.data, settings.model, data)
    return runs.leave_out_erased(ledger, load(images, training=settings.training, seed=settings.seed))


def _positions(loaded: LoadedTask, client: str, records: Sequence[str]) -> Indices:
    """Where the audited examples are among those of the client: all of them, or those of some records."""
    held = np.arange(len(loaded.samples[client]))
    return held[np.isin(loaded.record_keys(client) or (), list(records))] if records else held


@dataclass(frozen=True, eq=False)
class _Records:
    """All records, who holds which, and which of them attackers score."""

    samples: Samples
    parts: Mapping[str, Indices]
    own: Indices
    held_out: Indices


def _recognised(loaded: LoadedTask, settings: Settings) -> Workload | None:
    """The task as inputs with labels, where kernels know it."""
    if isinstance(loaded.task, ImageTask):
        return image_workload(loaded.task, loaded.network, settings.training, settings.seed)
    try:
        known = recognise(loaded, settings.training, settings.seed)
    except NotRecognised:
        return None
    return known if len(known.test_labels) else None


def _labelled_records(loaded: LoadedTask, known: Workload, client: str, chosen: Indices, seed: int) -> _Records:
    train, test = known.labels, known.test_labels
    if isinstance(loaded.task, ImageTask):  # where images have attributes, strata take the place of labels
        train, test = loaded.task.data.train.groups, loaded.task.data.test.groups
    own = np.asarray(known.parts[client])[chosen]
    held_out = _alike(train[torch.from_numpy(own)].numpy(), test.numpy(), seed)
    tensors = (torch.cat([known.images, known.test_images]), torch.cat([known.labels, known.test_labels]))
    return _Records(TensorSamples(tensors), known.parts, own, held_out + len(known.labels))


def _records(loaded: LoadedTask, client: str, chosen: Indices, seed: int) -> _Records:
    """Number the records of all clients one behind the other, and then the test data."""
    parts, start = {}, 0
    for name, held in loaded.samples.items():
        parts[name] = np.arange(start, start + len(held))
        start += len(held)
    joined, own, held_out = list(loaded.samples.values()), parts[client][chosen], np.zeros(0, np.int64)
    if loaded.test is not None:
        test = samples_of(loaded.test, owner="the test data", collate=loaded.task.collate)
        joined.append(test)
        mine, theirs = _classes(loaded.samples[client]), _classes(test)
        if mine is None or theirs is None:
            order = training_stream(seed, "audit, held out").permutation(len(test))
            held_out = np.sort(order[: max(len(own), FEWEST_RECORDS)]) + start
        else:
            held_out = _alike(mine[chosen], theirs, seed) + start
    return _Records(JoinedSamples(joined, loaded.task.collate or default_collate), parts, own, held_out)


def _classes(samples: Samples) -> Indices | None:
    """The class of each record; None where targets are no classes."""
    targets = targets_of(samples.batch(np.arange(len(samples))))
    whole = isinstance(targets, Tensor) and targets.dim() == 1 and targets.dtype == torch.int64
    return targets.numpy() if whole and int(targets.min()) >= 0 else None


def _lacking(subject: Subject, served: Model) -> dict[Need, str]:
    """What this task does not have, and why."""
    found: dict[Need, str] = {}
    if not len(subject.held_out):
        found["held-out records"] = "the task has no test data, so no records are held out"
        found["shadows"] = found["held-out records"]
    elif hasattr(subject.task, "train_client"):
        found["shadows"] = (
            "the task has a training loop of its own, which is given a client's data as the task has it: no shadow "
            "can hold other records"
        )
    if not subject.classes:
        try:
            network = subject.holding(served)
            losses = record_losses(subject.task, network, subject.samples, subject.records, subject.device)
        except TaskError as error:
            found["record losses"] = f"the task's loss cannot be computed for one record: {error}"
        else:
            if not bool(losses.isfinite().all()) or float(losses.max() - losses.min()) == 0:
                found["record losses"] = "the task's loss says nothing of a single record: it is the same for all"
    return found


def _refuse_too_few_clients(client: str, clients: int, policy: Policy, settings: Settings) -> None:
    # of anchored clusters whole ones take part, gaps and all
    participants = clients - 1 if policy.anchored else participants_of(clients - 1, settings.training.fraction)
    if participants < policy.k:
        raise ConfigError(
            f"without {escaped(client)} only {participants} participants are left, fewer than k = {policy.k}: "
            "there is no model retrained without it to compare with"
        )


def _refuse_too_few_records(client: str, own: Indices, held_out: Indices, fewest: int) -> None:
    if min(len(own), len(held_out)) < fewest:
        raise ConfigError(
            f"{escaped(client)} holds {len(own)} records, and {len(held_out)} held-out ones have their labels; "
            f"an audit needs at least {fewest} of each"
        )


def _refuse(ledger: Ledger, client: str) -> None:
    if client not in ledger.clients():
        raise UnknownClient(f"{client!r} is not a client of this run, or has left it; an audit is for one still in")
    if ledger.last_round == 0:
        raise ConfigError(f"no round stands in {ledger.directory}: there is no model to attack yet")
    waiting = [request for request in ledger.requests() if request.pending]
    if waiting:
        those = "1 request is" if len(waiting) == 1 else f"{len(waiting)} requests are"
        raise ConfigError(
            f"{those} not answered yet in {ledger.directory}; `disavow resume {ledger.directory}` answers them, "
            "then audit"
        )


def _alike(own: Indices, labels: Indices, seed: int) -> Indices:
    """Held-out records with the labels of the own ones (their strata, where images have attributes), as many of
    each where there are so many.
    """
    order = training_stream(seed, "audit, held out").permutation(len(labels))
    times = -(-FEWEST_RECORDS // len(own))  # of few records several times as many: a mean over one says little
    chosen = [order[labels[order] == label][:count] for label, count in enumerate(times * np.bincount(own))]
    return np.sort(np.concatenate(chosen))
