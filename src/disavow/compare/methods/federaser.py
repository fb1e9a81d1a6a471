"""FedEraser: go through stored updates again, each as long as it was and in the direction of a short training now.

G. Liu, X. Ma, Y. Yang, C. Wang and J. Liu, "FedEraser: Enabling Efficient Client-Level Data Removal from Federated
Learning Models", IWQoS 2021. Every Δt-th round's updates are stored. The first stored round is aggregated as it is,
from the initial model; before each later one the clients who remain train a few epochs from the new model. The
arithmetic is that of the mechanism `federaser`, which in the product starts at the first round that broke. Where
only records leave, all updates of their holder are left out, as the product does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from disavow.compare.method import Federation, Forgotten, Method
from disavow.erasure.mechanisms.federaser import calibrate
from disavow.ledger.rebuilt import model_from
from disavow.rounds.vectors import on_cpu


@dataclass(frozen=True)
class FedEraser(Method):
    """Calibrated updates of the clients who remain.

    Attributes:
        interval: Δt: the updates of every so many rounds are stored.
        calibration: r: the share of a round's local epochs that a calibration takes.

    """

    name = "federaser"
    paper = "G. Liu et al., FedEraser: Enabling Efficient Client-Level Data Removal, IWQoS 2021"
    stores = "updates"
    claim = "none: the model is close to a retrained one in experiments"

    interval: int = 2
    calibration: float = 0.5

    def bytes_stored(self, rounds: int, participants: int, model_bytes: int) -> int:
        """Count updates of every Δt-th round; see `Method`."""
        return math.ceil(rounds / self.interval) * participants * model_bytes

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        training = federation.training
        stored = training.rounds[:: self.interval]
        model, epochs = training.initial, math.ceil(self.calibration * federation.epochs)
        for done, source in enumerate(stored):
            clients = [client for client in source.clients if client != federation.leaver]
            then = [source.update_of(client) for client in clients]
            samples = [
                count for client, count in zip(source.clients, source.samples, strict=True) if client in clients
            ]
            sent = [each.numpy() for each in then if each is not None]
            if done:  # the first round starts from the model that it started from then
                fresh = federation.train(model, clients, source.number, epochs=epochs).in_id_order()
                now = on_cpu(fresh.vectors).numpy()
                sent = [calibrate(old, new) for old, new in zip(sent, now, strict=True)]
            model = torch.from_numpy(model_from(training.layout, model.numpy(), sent, samples))
            federation.tell(done + 1, len(stored))
        return Forgotten(model)
