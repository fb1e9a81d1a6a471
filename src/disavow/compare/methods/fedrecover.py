"""FedRecover: retrain with updates that the server estimates from stored ones, and corrects by exact ones.

X. Cao, J. Jia, Z. Zhang and N. Z. Gong, "FedRecover: Recovering from Poisoning Attacks in Federated Learning using
Historical Information" (IEEE S&P 2023). With stored models w̄_t and updates ū_t^i, a client's update at the
recovered model ŵ_t is estimated by the mean value theorem,

    û_t^i = ū_t^i + H_t^i (ŵ_t - w̄_t),

where H is approximated by L-BFGS from differences of models and of updates in the rounds in which the client
computed its update exactly: a warm-up, every few rounds, the last rounds, and whenever an estimate is abnormally
large.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from disavow.compare.averages import stored_updates, weighted_mean
from disavow.compare.method import Federation, Forgotten, Method
from disavow.compare.training import Training


@dataclass(frozen=True)
class FedRecover(Method):
    """See `Method`.

    The paper's warm-up of 20 rounds, correction every 20 and last 5 are for thousands of rounds: of fewer, `shares`
    of them take their place where those are smaller. `tolerance` is the share of numbers of benign updates that an
    estimate may not exceed; `pairs` are those that L-BFGS remembers.
    """

    name = "fedrecover"
    paper = "Cao et al., FedRecover: Recovering from Poisoning Attacks in Federated Learning, IEEE S&P 2023"
    stores = "updates"
    claim = "closeness to a retrained model, where losses are smooth and strongly convex"
    records = False  # a client's stored update cannot be split by its records

    warm_up: int = 20
    every: int = 20
    last: int = 5
    shares: tuple[float, float, float] = (0.1, 0.2, 0.1)
    pairs: int = 2
    tolerance: float = 1e-6

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        training = federation.training
        number_of_rounds = len(training.rounds)
        warm_up, every, last = (
            min(wanted, math.ceil(share * number_of_rounds))
            for wanted, share in zip((self.warm_up, self.every, self.last), self.shares, strict=True)
        )
        largest = _largest_update(training, federation.remaining, self.tolerance)
        curvature: dict[str, Curvature] = {}
        vector, exact_updates = training.initial.clone(), 0
        for trained in training.rounds:
            clients, samples, stored = stored_updates(trained, federation.remaining)
            if not clients:
                continue
            moved = (vector - trained.before).double()
            number = trained.number
            exactly = number <= warm_up or (number - warm_up) % every == 0 or number > number_of_rounds - last
            updates = stored.clone()
            if exactly:
                trained_rows = list(range(len(clients)))
            else:
                trained_rows = []
                for row, client in enumerate(clients):
                    estimate = stored[row].double() + curvature.setdefault(client, Curvature(self.pairs)).times(
                        moved
                    )
                    if bool((estimate.abs() > largest).any()) or not bool(torch.isfinite(estimate).all()):
                        trained_rows.append(row)
                    else:
                        updates[row] = estimate.to(torch.float32)
            if trained_rows:
                found = federation.train(vector, [clients[row] for row in trained_rows], number)
                computed = {client: found.vectors[i].cpu() for i, client in enumerate(found.clients)}
                for row in trained_rows:
                    updates[row] = computed[clients[row]]
                    difference = (updates[row] - stored[row]).double()
                    curvature.setdefault(clients[row], Curvature(self.pairs)).add(moved, difference)
                exact_updates += len(trained_rows)
            vector = vector + weighted_mean(updates, samples)
            federation.tell(number, number_of_rounds)
        return Forgotten(vector, f"{exact_updates} updates computed by clients, the others estimated")


class Curvature:
    """How a client's update changes with the model: L-BFGS over the newest pairs of differences.

    Updates go against the gradient, so what is approximated is minus the Hessian; the compact form of L-BFGS is
    linear in the sign of the second differences, so they are taken with a minus and the product is given back with
    one.

    Args:
        pairs: How many pairs are remembered.

    """

    def __init__(self, pairs: int) -> None:
        self._models: deque[Tensor] = deque(maxlen=pairs)
        self._gradients: deque[Tensor] = deque(maxlen=pairs)

    def add(self, model_difference: Tensor, update_difference: Tensor) -> None:
        """Remember a pair of differences; one along which the loss is not convex is passed over, as L-BFGS must.

        Args:
            model_difference: The recovered model minus the stored one.
            update_difference: The exact update minus the stored one.

        """
        if float(model_difference @ -update_difference) > 0:
            self._models.append(model_difference)
            self._gradients.append(-update_difference)

    def times(self, direction: Tensor) -> Tensor:
        """Return the change of the update along a direction: minus the approximate Hessian times it.

        Args:
            direction: A difference of models, in float64.

        Returns:
            A vector of the same size; zero while no pair is remembered.

        """
        if not self._models:
            return torch.zeros_like(direction)
        models, gradients = torch.stack(tuple(self._models), 1), torch.stack(tuple(self._gradients), 1)
        products = models.T @ gradients
        diagonal, lower = torch.diag(torch.diag(products)), torch.tril(products, -1)
        newest = models[:, -1]
        scale = (gradients[:, -1] @ newest) / (newest @ newest)
        middle = torch.cat(
            [torch.cat([-diagonal, lower.T], 1), torch.cat([lower, scale * (models.T @ models)], 1)], 0
        )
        projected = torch.cat([gradients.T @ direction, scale * (models.T @ direction)])
        solved = torch.linalg.lstsq(middle, projected[:, None]).solution[:, 0]
        product: Tensor = scale * direction - torch.cat([gradients, scale * models], 1) @ solved
        return -product


def _largest_update(training: Training, clients: tuple[str, ...], tolerance: float) -> float:
    """The threshold of abnormal estimates: in no round do more than the tolerated share of numbers exceed it."""
    found = 0.0
    for trained in training.rounds:
        numbers = np.abs(stored_updates(trained, clients)[2].numpy()).ravel()
        if len(numbers):
            exceeding = int(tolerance * len(numbers))
            found = max(found, float(np.partition(numbers, -1 - exceeding)[-1 - exceeding]))
    return found
