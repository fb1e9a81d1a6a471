"""Subtract all that the leaver sent, and teach the model again what the old one knew, on unlabelled data.

C. Wu, S. Zhu and P. Mitra, "Federated Unlearning with Knowledge Distillation" (2022). The server subtracts the
leaver's share of every round's aggregate from the served model, which breaks it, and repairs it without any client:
the old model is the teacher, and the loss is the divergence of softened outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from disavow.compare.method import Federation, Forgotten, Method
from disavow.rounds.vectors import Model, floor_variances
from disavow.tasks.task import outputs_and_targets

_CLASSES = 2
"""Outputs of so many numbers or more are taken for logits of classes."""


@dataclass(frozen=True)
class Distillation(Method):
    """See `Method`. `epochs` over the unlabelled data at `learning_rate`; `temperature` softens outputs."""

    name = "distillation"
    paper = "Wu, Zhu and Mitra, Federated Unlearning with Knowledge Distillation, 2022"
    stores = "updates"
    claim = "nothing: the teacher is the model that remembers"
    records = False  # a client's stored update cannot be split by its records
    needs_public_data = True

    epochs: int = 5
    learning_rate: float = 0.01
    momentum: float = 0.9
    temperature: float = 3.0

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        training = federation.training
        subtracted = Model(training.layout, training.served - _share_of_leaver(federation))
        student = federation.network(floor_variances(subtracted, 0.0).vector)
        teacher = federation.network(training.served).eval()
        parameters = [each for each in student.parameters() if each.requires_grad]
        optimizer = torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum)
        for epoch in range(self.epochs):
            for batch in federation.public_batches(epoch):
                with torch.no_grad():
                    taught = _outputs(teacher, batch)
                optimizer.zero_grad()
                loss = self._divergence(_outputs(student, batch), taught)
                loss.backward()
                optimizer.step()
            federation.tell(epoch + 1, self.epochs)
        return Forgotten(federation.vector_of(student))

    def _divergence(self, found: Tensor, taught: Tensor) -> Tensor:
        if found.dim() < _CLASSES or found.shape[-1] < _CLASSES:
            return functional.mse_loss(found, taught)
        softened = functional.log_softmax(found / self.temperature, dim=-1)
        target = functional.log_softmax(taught / self.temperature, dim=-1)
        return functional.kl_div(softened, target, log_target=True, reduction="batchmean") * self.temperature**2


def _share_of_leaver(federation: Federation) -> Tensor:
    """What the leaver added to the served model: its share of the mean of each round, added up."""
    training = federation.training
    total = torch.zeros_like(training.served, dtype=torch.float64)
    for trained in training.rounds:
        update = trained.update_of(federation.leaver)
        if update is not None:
            samples = trained.samples[trained.clients.index(federation.leaver)]
            total += samples / sum(trained.samples) * update.cpu().double()
    return total.to(torch.float32)


def _outputs(network: nn.Module, batch: Any) -> Tensor:
    return outputs_and_targets(network, batch)[0]
