"""Steps on what leaves: what gradient ascent, gradient difference and negative preference optimization share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from disavow.compare.method import Federation
from disavow.errors import StrategyError

Objective = Callable[[Any], Tensor | None]
"""From a batch of what leaves to what a step minimises; None: enough has been forgotten, and no step is taken."""


@dataclass(frozen=True)
class Steps:
    """How far steps came.

    Attributes:
        number: Of steps.
        ended: Whether they ended before the last batch: enough was forgotten, or the objective was finite no more.

    """

    number: int
    ended: bool


def trainable(network: nn.Module) -> list[nn.Parameter]:
    """Give the parameters of a network that are trained.

    Args:
        network: The network; an adapter's base is frozen.

    """
    return [each for each in network.parameters() if each.requires_grad]


def take_steps(
    federation: Federation,
    optimizer: Optimizer,
    objective: Objective,
    *,
    epochs: int,
    clip: float,
    gradients: bool = False,
    after_step: Callable[[], None] = lambda: None,
) -> Steps:
    """Let the leaver go through what leaves, and take a step on each batch.

    Args:
        federation: The trained federation.
        optimizer: Of the network that the objective is computed with.
        objective: What a step minimises.
        epochs: Passes over what leaves, at the most.
        clip: The largest norm of a step's gradient.
        gradients: Whether the leaver sends the gradient of each batch; see `Federation.batches`.
        after_step: Called after each step.

    """
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    number = 0
    for batch in federation.batches(
        federation.leaver, after_training(federation), epochs=epochs, gradients=gradients
    ):
        optimizer.zero_grad()
        loss = objective(batch)
        if loss is None or not bool(torch.isfinite(loss.detach())):
            return Steps(number, ended=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        after_step()
        number += 1
    return Steps(number, ended=False)


def retained_batches(federation: Federation) -> Iterator[Any]:
    """Give batches of the clients who stay, one client after the other in a drawn order, without end.

    Each batch is one of which the client sends the gradient. What stays of a leaver's own records, where only some
    of them leave, is not among them.

    Args:
        federation: The trained federation.

    Raises:
        StrategyError: There is no other client.

    """
    others = [client for client in federation.remaining if client != federation.leaver]
    if not others:
        raise StrategyError("there is no client but the leaver to compute gradients on what stays")
    order = federation.stream("clients of retained batches").permutation(len(others))
    for round_number in count(after_training(federation)):
        for position in order:
            yield from federation.batches(others[position], round_number, gradients=True)


def loss_of_untrained(federation: Federation) -> float:
    """Compute the mean loss of the initial model, which has learned nothing, on what leaves, over one pass.

    Args:
        federation: The trained federation.

    """
    network = federation.network(federation.training.initial).eval()
    with torch.no_grad():
        losses = [float(federation.loss(network, batch)) for batch in federation.batches(federation.leaver, 1)]
    return sum(losses) / max(1, len(losses))


def after_training(federation: Federation) -> int:
    """Number the round after the last one of the training.

    Args:
        federation: The trained federation.

    """
    return len(federation.training.rounds) + 1
