"""Load a task: build its model with the initial weights, and read every client's samples and the test data."""

from __future__ import annotations

import hashlib
import random
import reprlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from disavow.config import TrainingSettings
from disavow.domain import escaped
from disavow.errors import TaskError
from disavow.rounds.randomness import training_stream
from disavow.tasks.factory import Factory
from disavow.tasks.samples import Samples, samples_of
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

    """

    task: Task
    network: nn.Module
    data: Mapping[str, Any]
    samples: Mapping[str, Samples]
    test: Any | None
    factory: Factory | None = None
    seconds: float = 0.0

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of what each client holds: its samples where they are tensors, else how many; and their keys."""
        return {client: self.digest_of(client) for client in self.samples}

    def digest_of(self, client: str) -> str:
        """Compute the SHA-256 of what one client holds, as in `digests`."""
        return _digest(self.task, client, self.samples[client])


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


def _digest(task: Task, client: str, samples: Samples) -> str:
    name = name_of(task, "record_keys")
    with own_code(f"{name} of client {escaped(client)}"):
        given = task.record_keys(client)
        keys = None if given is None else [str(key) for key in given]
    if keys is not None and len(keys) != len(samples):
        raise TaskError(f"{name} names {len(keys)} records of client {escaped(client)}, who holds {len(samples)}")
    found = hashlib.sha256(b"disavow/client/v1\x00")
    for part in (samples.digest() or str(len(samples)), *(keys or ())):
        data = part.encode()
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()
