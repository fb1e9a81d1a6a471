"""Clients that train by an optimizer that a method brings along: in one stack, or one after the other."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from disavow.engines.stacked.check import CannotStack
from disavow.engines.stacked.dropout import keys_of, own_dropout
from disavow.engines.stacked.task_stack import StackedClient, StackedOptimizer
from disavow.engines.stacked.tasks import ClientStacks
from disavow.engines.state import put_model, vector_of
from disavow.engines.task_workload import TaskWorkload
from disavow.rounds.vectors import Model
from disavow.tasks.loading import seeded
from disavow.tasks.samples import moved

_log = logging.getLogger(__name__)


class LocalTraining:
    """Trains clients by a task's loss and another optimizer than the task's.

    Args:
        workload: The task, the records of each client, and the device.
        stacked: Whether clients are stacked where they can be.

    """

    def __init__(self, workload: TaskWorkload, *, stacked: bool) -> None:
        self._workload = workload
        self._stacks: ClientStacks | None = None
        if stacked:
            try:
                self._stacks = ClientStacks(workload)
            except CannotStack as reason:
                _log.warning("clients train one after the other, not in a stack: %s", reason)

    @property
    def stacked(self) -> bool:
        """Whether clients train in a stack."""
        return self._stacks is not None

    def train(self, model: Model, clients: Sequence[StackedClient], optimizer: StackedOptimizer) -> Tensor:
        """Train clients from a model.

        Args:
            model: What they start from.
            clients: Who trains, on which batches.
            optimizer: Makes what steps their parameters.

        Returns:
            The update of each, one row a client, on the CPU.

        """
        if self._stacks is not None:
            try:
                return self._stacks.train_clients(model, clients, optimizer)[0]
            except CannotStack as reason:
                _log.warning("clients train one after the other from now on, not in a stack: %s", reason)
                self._stacks = None
        return torch.stack([self._train_alone(model, client, optimizer) for client in clients])

    def _train_alone(self, model: Model, client: StackedClient, optimizer: StackedOptimizer) -> Tensor:
        """One client's update; its parameters are stepped as those of a stack of one."""
        workload, device = self._workload, self._workload.device
        network = copy.deepcopy(workload.network)
        put_model(network, model)
        network.to(device).train()
        trained = {name: each for name, each in network.named_parameters() if each.requires_grad}
        stack = {
            name: each.detach().unsqueeze(0) for name, each in trained.items()
        }  # views: steps move the network
        steps = optimizer(stack)
        with seeded(client.seed, device):
            for positions, key in zip(client.batches, keys_of(client.words, device), strict=True):
                batch = moved(workload.parts[client.client].batch(positions), device)
                with own_dropout(key):
                    loss = workload.loaded.task.loss(network, batch)
                gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
                for each, gradient in zip(stack.values(), gradients, strict=True):
                    each.grad = None if gradient is None else gradient.unsqueeze(0)
                steps.step()
        return vector_of(network).cpu() - model.vector
