"""Train one client of any task: the loop that every generic engine runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from disavow.domain import escaped
from disavow.errors import DisavowError, RoundRefused, TaskError
from disavow.tasks.samples import Positions, Samples, moved, shapes_of
from disavow.tasks.task import Task
from disavow.tasks.user_errors import described, name_of, own_code


def train_client(
    task: Task,
    network: nn.Module,
    samples: Samples,
    batches: Iterable[Positions],
    *,
    client: str,
    round_number: int,
    device: torch.device | None = None,
) -> None:
    """Train a network in place on a client's samples, with a fresh optimizer.

    Args:
        task: Whose loss and optimizer are used.
        network: The model as it was broadcast.
        samples: What the client holds.
        batches: Which positions make up which batch.
        client: Who trains, for errors.
        round_number: Which round it is.
        device: Where the network is; None for the CPU.

    Raises:
        RoundRefused: The loss became NaN or infinite.
        TaskError: The user's code raised.

    """
    network.train()
    optimizer = optimizer_of(task, network, round_number)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    own_zero_grad = type(optimizer).zero_grad is not Optimizer.zero_grad
    total = torch.zeros((), device=device)
    batch: Any = None

    def closure() -> Any:
        if own_zero_grad:
            optimizer.zero_grad()
        else:  # what it does, without what it costs: as much as a tenth of a small model's step
            for parameter in parameters:
                parameter.grad = None
        loss = task.loss(network, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise TypeError(f"the loss is {shapes_of(loss)}; allowed: one number with a gradient, such as a mean")
        loss.backward()
        if task.clip_gradients is not None:
            nn.utils.clip_grad_norm_(parameters, task.clip_gradients)
        return loss

    try:
        for positions in batches:
            batch = None
            batch = moved(samples.batch(positions), device)
            # a closure, because some optimizers evaluate the loss several times a step
            total += torch.as_tensor(optimizer.step(closure)).detach()
    except DisavowError:
        raise
    except Exception as error:
        raise cannot_train(client, round_number, batch, error) from error
    if not bool(torch.isfinite(total)):
        raise not_finite(client, round_number)


def not_finite(client: str, round_number: int) -> RoundRefused:
    """Make the refusal of a round in which a client's loss became NaN or infinite."""
    prefix, hint = (
        f"round {round_number} refused: the loss of",
        "became NaN or infinite (is the learning rate too high?)",
    )
    return RoundRefused(
        f"{prefix} client {escaped(client)} {hint}{RoundRefused.UNCHANGED}", nameless=f"{prefix} a client {hint}"
    )


def cannot_train(client: str, round_number: int, batch: Any, error: Exception) -> TaskError:
    """Make the error of a batch that the user's code could not take.

    Args:
        client: Whose batch it is.
        round_number: Which round it is.
        batch: The batch; None where reading it failed.
        error: What was raised.

    """
    what = (
        "its samples cannot be read" if batch is None else f"it cannot be trained on a batch of {shapes_of(batch)}"
    )
    return TaskError(f"client {escaped(client)} in round {round_number}: {what}: {described(error)}")


def optimizer_of(task: Task, network: nn.Module, round_number: int) -> Optimizer:
    """Build a task's optimizer, with the learning rates of a round.

    Args:
        task: Whose optimizer.
        network: What it is to train.
        round_number: Which round it is.

    Raises:
        TaskError: The user's code raised, or returned something else.

    """
    name = name_of(task, "optimizer")
    with own_code(name):
        optimizer = task.optimizer(network)
    if not isinstance(optimizer, Optimizer):
        raise TaskError(f"{name} is a {type(optimizer).__name__}; allowed: a torch.optim.Optimizer")
    name = name_of(task, "learning_rate_factor")
    with own_code(name):
        factor = float(task.learning_rate_factor(round_number))
    if factor != 1.0:
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor
    return optimizer
