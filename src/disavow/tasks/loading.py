"""Load a task: build its model with the initial weights, and read every client's samples and the test data."""

from __future__ import annotations

import hashlib
import random
import reprlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from disavow.config import TrainingSettings
from disavow.domain import Exclusions, escaped
from disavow.errors import TaskError
from disavow.rounds.randomness import training_stream
from disavow.tasks.factory import Factory
from disavow.tasks.images import ImageTask
from disavow.tasks.samples import Positions, Samples, samples_of, subset_of
from disavow.tasks.task import PartsTask, Task
from disavow.tasks.user_errors import name_of, own_code


@dataclass(frozen=True, eq=False)
class LoadedTask:
    """A task whose model is built and whose clients are known.

    Args:
        task: The task.
        network: Its model, with the initial weights of the run.
        data: Every client's data, as the task gave it.
        samples: The same by position.
        test: The test data as the task gave it; None where there is none.
        factory: What made the task; None where it was given as an object.
        seconds: How long loading took.
        exclusions: What was left out of `data` and `samples`: records that were erased, by client.

    """

    task: Task
    network: nn.Module
    data: Mapping[str, Any]
    samples: Mapping[str, Samples]
    test: Any | None
    factory: Factory | None = None
    seconds: float = 0.0
    exclusions: Mapping[str, Exclusions] = field(default_factory=dict)
    _keys: dict[str, tuple[str, ...] | None] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of what each client holds: its samples where they are tensors, else how many; and their keys."""
        return {client: self.digest_of(client) for client in self.samples}

    def digest_of(self, client: str) -> str:
        """Compute the SHA-256 of what one client holds, as in `digests`."""
        samples = self.samples[client]
        found = hashlib.sha256(b"disavow/client/v1\x00")
        for part in (samples.digest() or str(len(samples)), *(self.record_keys(client) or ())):
            data = part.encode("utf-8", "surrogatepass")
            found.update(len(data).to_bytes(8, "big") + data)
        return found.hexdigest()

    def record_keys(self, client: str) -> tuple[str, ...] | None:
        """Name each example that a client holds, without those that were left out.

        Args:
            client: The client's id.

        Returns:
            One key for each example, in order; None where the task does not name this client's records.

        Raises:
            TaskError: There is no such client, or the task does not name its examples one by one, by texts.

        """
        if client not in self.samples:
            raise TaskError(f"the task has no client {escaped(client)}")
        if client not in self._keys:
            self._keys[client] = _record_keys(self.task, client, len(self.samples[client]), self._excludes(client))
        return self._keys[client]

    def _excludes(self, client: str) -> Callable[[str], bool]:
        excluded = self.exclusions.get(client)
        return _nothing if excluded is None else excluded.excludes

    def without(self, exclusions: Mapping[str, Exclusions]) -> LoadedTask:
        """Leave out the examples of records that were erased, for every engine and every loop of the user's own.

        Args:
            exclusions: What was erased, by client. Clients that the task does not have are passed over.

        Returns:
            The task with what is left of each client's data; itself where it holds nothing that was erased.

        Raises:
            TaskError: A client would be left without any example, or the task no longer names its records.

        """
        found = (
            (client, self._kept(client, excluded)) for client, excluded in exclusions.items() if excluded.hashes
        )
        kept = {client: positions for client, positions in found if positions is not None}
        if not kept:
            return self
        data = {**self.data, **{client: subset_of(self.data[client], some) for client, some in kept.items()}}
        samples = {**self.samples, **{client: self._read(client, data[client]) for client in kept}}
        task = self.task
        if isinstance(task, ImageTask):
            parts = task.data.parts
            left = {client: np.asarray(parts[client])[some] for client, some in kept.items()}
            task = task.holding({**parts, **left})
        return replace(self, task=task, data=data, samples=samples, exclusions=self._excluding(exclusions))

    def _excluding(self, exclusions: Mapping[str, Exclusions]) -> dict[str, Exclusions]:
        """Put together what was left out before and now: worker processes start from all that the task holds."""
        found = dict(self.exclusions)
        for client, excluded in exclusions.items():
            before = found.get(client, excluded)
            found[client] = replace(excluded, hashes=before.hashes | excluded.hashes)
        return found

    def _kept(self, client: str, excluded: Exclusions) -> Positions | None:
        """Find the positions of the examples that stay; None where all of them do, or there is no such client."""
        if client not in self.samples or not excluded.hashes:
            return None
        keys = self.record_keys(client)
        if keys is None:
            raise TaskError(
                f"records of client {escaped(client)} were erased, and {name_of(self.task, 'record_keys')} is None "
                "for it; allowed: the keys that it gave before"
            )
        kept = np.array([i for i, key in enumerate(keys) if not excluded.excludes(key)], dtype=np.int64)
        if len(kept) == 0:
            raise TaskError(
                f"all records of client {escaped(client)} were erased, and nothing is left to train on; allowed: "
                "at least one example (the whole client can be erased)"
            )
        return None if len(kept) == len(keys) else kept

    def _read(self, client: str, held: Any) -> Samples:
        return samples_of(held, owner=f"client {escaped(client)}", collate=self.task.collate)


def load(task: Task, *, training: TrainingSettings, seed: int, factory: Factory | None = None) -> LoadedTask:
    """Build a task's model and read its clients, with every draw from the run's seed.

    Args:
        task: The task.
        training: How its clients train.
        seed: The run's seed.
        factory: What made the task, where something did that can be imported.

    Returns:
        What engines are made from.

    Raises:
        TaskError: Its own code raised, its model has nothing to train, or a client's data cannot be used.

    """
    begun = time.monotonic()
    task.training = training
    network = _call(task, "model", seed)
    if not isinstance(network, nn.Module):
        raise TaskError(f"{name_of(task, 'model')} is a {type(network).__name__}; allowed: a torch.nn.Module")
    if any(is_lazy(each) or each.is_meta for each in (*network.parameters(), *network.buffers())):
        raise TaskError(
            f"{name_of(task, 'model')} has parameters without values (lazy, or on the device meta); allowed: a "
            "model with its initial weights, so call it once with a batch"
        )
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise TaskError(
            f"{name_of(task, 'model')} has no parameter that can be trained: all of them are frozen; allowed: at "
            "least one with requires_grad"
        )
    if task.clip_gradients is not None and not task.clip_gradients > 0:
        raise TaskError(f"clip_gradients is {task.clip_gradients!r}; allowed: a number above 0, or None")
    data = _clients(task, seed)
    samples = {
        client: samples_of(held, owner=f"client {escaped(client)}", collate=task.collate)
        for client, held in data.items()
    }
    test = _call(task, "test_data", seed)
    if test is not None and type(task).evaluate in (Task.evaluate, PartsTask.evaluate):
        samples_of(test, owner="the test data", collate=task.collate)  # refused here, not after the first round
    return LoadedTask(task, network, data, samples, test, factory, time.monotonic() - begun)


def _clients(task: Task, seed: int) -> dict[str, Any]:
    given = _call(task, "clients", seed)
    try:
        pairs = list(given.items() if isinstance(given, Mapping) else given)
        ids = [client for client, _ in pairs]
    except (TypeError, ValueError):
        raise TaskError(
            f"{name_of(task, 'clients')} is a {type(given).__name__}; allowed: a mapping from id to data"
        ) from None
    if not pairs:
        raise TaskError(f"{name_of(task, 'clients')} is empty; allowed: at least one client")
    for client in ids:
        if not isinstance(client, str) or not client:
            shown = reprlib.repr(client)
            raise TaskError(f"{name_of(task, 'clients')} has the id {shown}; allowed: text that is not empty")
    if len(set(ids)) < len(ids):
        twice = next(client for client in ids if ids.count(client) > 1)
        raise TaskError(f"{name_of(task, 'clients')} has the id {escaped(twice)} twice; allowed: every id once")
    return dict(pairs)


def _call(task: Task, method: str, seed: int) -> Any:
    """Call a method of a user's task, with generators of its own, and say whose error it is."""
    # the stream of the built-in networks, whose initial weights stay what they were
    stream = training_stream(seed, "initial model" if method == "model" else method)
    with own_code(name_of(task, method)), seeded(stream.below(1 << 63)):
        return getattr(task, method)()


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, and put them back afterwards.

    Args:
        seed: Below 2^63.
        device: A GPU whose generator is seeded, too.

    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - user code may draw from it
    devices = [] if device is None or device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=devices):
        # not torch.manual_seed: without a GPU it keeps a stack trace of every call, and takes 0.3 ms for it
        torch.default_generator.manual_seed(seed)
        for each in devices:
            with torch.cuda.device(each):
                torch.cuda.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % (1 << 32))  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _record_keys(task: Task, client: str, examples: int, excludes: Callable[[str], bool]) -> tuple[str, ...] | None:
    """Ask a task how a client's examples are named, without those that were left out, and check the answer."""
    name = name_of(task, "record_keys")
    with own_code(f"{name} of client {escaped(client)}"):
        given = task.record_keys(client)
        keys = None if given is None else tuple(given)
    if keys is None:
        return None
    wrong = next((key for key in keys if not isinstance(key, str) or not key), None)
    if isinstance(given, str) or wrong is not None:
        shown = reprlib.repr(given if isinstance(given, str) else wrong)
        raise TaskError(
            f"{name} of client {escaped(client)} holds {shown}; allowed: one text for each example, not empty"
        )
    keys = tuple(str(key) for key in keys if not excludes(key))
    if len(keys) != examples:
        raise TaskError(f"{name} names {len(keys)} records of client {escaped(client)}, who holds {examples}")
    return keys


def _nothing(record: str) -> bool:  # noqa: ARG001 - of a client none of whose records were erased
    return False
