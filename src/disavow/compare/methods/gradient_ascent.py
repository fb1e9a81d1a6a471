"""Gradient ascent in a ball: the leaver climbs its own loss near a model of the others, who then train a few
rounds.

A. Halimi, S. Kadhe, A. Rawat and N. Baracaldo, "Federated Unlearning: How to Erase a Client in FL?" (2022). The
centre of the ball is the mean of the other clients' last local models, which the leaver computes from the served
model and its own last one: w_ref = (N w - w_i) / (N - 1). Its radius is a third of the distance from the centre to
a randomly initialised model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from disavow.compare.method import Federation, Forgotten, Method
from disavow.compare.methods.ascent import loss_of_untrained, take_steps, trainable
from disavow.compare.methods.rounds import share_of_rounds, train_on

_RANDOM_MODELS = 10
"""Random models to which the distance is averaged, as in the paper."""


@dataclass(frozen=True)
class GradientAscent(Method):
    """See `Method`.

    `epochs` of ascent at the most, at `learning_rate` with `momentum` and gradients of a norm of at most `clip`;
    the ascent ends once the leaver's loss is that of the initial model, which has learned nothing. After that,
    `share` of the training's rounds are run with those who remain.
    """

    name = "gradient-ascent"
    paper = "Halimi et al., Federated Unlearning: How to Erase a Client in FL?, 2022"
    stores = "models"
    leaver_helps = True
    claim = "nothing: the ball keeps the model useful, and bounds no attacker"

    learning_rate: float = 0.01
    momentum: float = 0.9
    clip: float = 5.0
    epochs: int = 5
    share: float = 0.1

    def bytes_stored(self, rounds: int, participants: int, model_bytes: int) -> int:
        """The last model that was broadcast, which the leaver trained from; see `Method`."""
        del rounds, participants
        return model_bytes

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        centre = _mean_of_others(federation)
        radius = _distance_to_random(federation, centre) / 3
        enough = loss_of_untrained(federation)
        network = federation.network(centre)
        parameters = trainable(network)
        reference = [each.detach().clone() for each in parameters]
        optimizer = torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum)

        def objective(batch: Any) -> Tensor | None:
            loss = federation.loss(network, batch)
            return None if float(loss.detach()) >= enough else -loss

        steps = take_steps(
            federation,
            optimizer,
            objective,
            epochs=self.epochs,
            clip=self.clip,
            after_step=lambda: _project(parameters, reference, radius),
        )
        rounds = share_of_rounds(federation, self.share)
        vector = train_on(federation, federation.vector_of(network), rounds)
        ended = "until its loss was that of an untrained model" if steps.ended else "to the end of its epochs"
        return Forgotten(vector, f"{steps.number} steps of ascent, {ended}; {rounds} more rounds")


def _mean_of_others(federation: Federation) -> Tensor:
    """The mean of the others' last local models: the served one without the leaver's share.

    Weighted by records, as the aggregate is. Where the leaver did not take part in the last round, or took part in
    it under a scheme that draws representatives, this is what the served model would be without its mean share.
    """
    training = federation.training
    last = training.rounds[-1]
    if federation.leaver not in last.clients:
        return training.served
    share = last.samples[last.clients.index(federation.leaver)] / sum(last.samples)
    if share >= 1:
        return training.served
    own = last.before + federation.train_leaver(last.before, last.number).vectors[0].cpu()
    return (training.served - share * own) / (1 - share)


def _distance_to_random(federation: Federation, centre: Tensor) -> float:
    """The mean distance, over trainable parameters, from a model to randomly initialised ones."""
    network = federation.network(centre)
    parameters = trainable(network)
    start = [each.detach().clone() for each in parameters]
    stream = federation.stream("random models")
    distances = []
    for _ in range(_RANDOM_MODELS):
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(stream.below(1 << 63))
            redraw(network)
        distances.append(_distance(parameters, start))
    found = sum(distances) / len(distances)
    if found > 0:
        return found
    initial = federation.network(federation.training.initial)  # no layer of the user's own can be drawn anew
    return _distance(trainable(initial), start)


def redraw(network: nn.Module) -> None:
    """Initialise all layers anew, and then the adapters of PEFT, whose B matrices begin as zero.

    Args:
        network: Is changed in place.

    """
    for module in network.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
    for module in network.modules():
        reset, adapters = (getattr(module, name, None) for name in ("reset_lora_parameters", "active_adapters"))
        if callable(reset) and isinstance(adapters, list):
            for adapter in adapters:
                reset(adapter, init_lora_weights=True)


def _distance(parameters: list[nn.Parameter], reference: list[Tensor]) -> float:
    differences = [(each.detach() - then).double() for each, then in zip(parameters, reference, strict=True)]
    return math.sqrt(sum(float(each.square().sum()) for each in differences))


def _project(parameters: list[nn.Parameter], reference: list[Tensor], radius: float) -> None:
    """Put parameters back into the ball, in place."""
    distance = _distance(parameters, reference)
    if distance <= radius or distance == 0:
        return
    with torch.no_grad():
        for each, then in zip(parameters, reference, strict=True):
            each.copy_(then + (each - then) * (radius / distance))
