"""The reconstruction attacker: whoever sees the model before and after an erasure inverts the difference.

J. Geiping, H. Bauermeister, H. Dröge and M. Moeller, "Inverting Gradients - How easy is it to break privacy in
federated learning?", NeurIPS 2020: find inputs whose gradient points the way a difference does, by its cosine, with
a total-variation prior for images. Here the difference is that of two published models, and forgetting climbs the
loss of what is forgotten. The attacker is given the labels, which makes it stronger than a real one.

What it found is compared with the leaver's records and with held-out records of the same labels, each time with the
most alike. The score is how much more alike the leaver's are: 0 where nothing of the leaver came back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from disavow.compare.problem import Problem
from disavow.data.dataset import Indices
from disavow.engines.objectives import loss_of
from disavow.rounds.randomness import training_stream

_IMAGE = 4


@dataclass(frozen=True)
class Inversion:
    """How hard the attacker tries.

    Attributes:
        records: That are looked for at once.
        restarts: From other random inputs.
        steps: Of Adam, each.
        rate: Its step size.
        variation: Weight of the total variation of images.

    """

    records: int = 8
    restarts: int = 2
    steps: int = 120
    rate: float = 0.1
    variation: float = 1e-2


QUICK = Inversion(records=4, restarts=1, steps=60)


def obstacle(problem: Problem) -> str | None:
    """Say why inputs cannot be reconstructed; None where they can.

    Args:
        problem: What is compared on.

    """
    if not problem.subject.labelled:
        return "the task is not one of inputs with labels"
    if not problem.subject.images.is_floating_point():
        return "inputs are no numbers"
    if not len(problem.subject.held_out):
        return "no records are held out"
    return None


def reconstruction(
    problem: Problem, before: Tensor, after: Tensor, inversion: Inversion, *, seed: int
) -> float | None:
    """Score what comes back of the leaver's records from two published models.

    Args:
        problem: What is compared on.
        before: The model before the erasure.
        after: The one after it.
        inversion: How hard the attacker tries.
        seed: Of its random inputs.

    Returns:
        The mean likeness to the leaver's records less that to held-out ones; 0 where both models are the same, None
        where inputs cannot be reconstructed.

    """
    if obstacle(problem) is not None:
        return None
    if torch.equal(before, after):
        return 0.0
    subject, stream = problem.subject, training_stream(seed, "compare, reconstruction")
    count = min(inversion.records, len(subject.own))
    chosen = subject.own[stream.permutation(len(subject.own))[:count]]
    labels = subject.labels[torch.from_numpy(chosen)].to(problem.device)
    found = _inverted(problem, before, after, labels, inversion, seed)
    pairs = [(found[i : i + 1], subject.labels[int(chosen[i])]) for i in range(count)]
    own, held_out = _equally_many(subject.own, subject.held_out)
    return float(np.mean([_likeness(problem, *pair, own) - _likeness(problem, *pair, held_out) for pair in pairs]))


def _equally_many(own: Indices, held_out: Indices) -> tuple[Indices, Indices]:
    """As many of each: the best of more is better."""
    count = min(len(own), len(held_out))
    return own[:count], held_out[:count]


def _inverted(
    problem: Problem, before: Tensor, after: Tensor, labels: Tensor, inversion: Inversion, seed: int
) -> Tensor:
    """Inputs whose gradient at the model before points to the model after; those of the best restart."""
    network = problem.network(before).eval()  # running statistics are known to who has the model
    parameters = [each for each in network.parameters() if each.requires_grad]
    moved_to = problem.network(after)
    wanted = _flat([each.detach() for each in moved_to.parameters() if each.requires_grad])
    wanted -= _flat([each.detach() for each in parameters])
    known = problem.subject.images
    low, high = float(known.min()), float(known.max())
    middle, deviation = float(known[:1000].mean()), float(known[:1000].std())
    shape = (len(labels), *known.shape[1:])
    best: tuple[float, Tensor] | None = None
    for restart in range(inversion.restarts):
        noise = training_stream(seed, f"compare, reconstruction from {restart}").normal(int(np.prod(shape)))
        inputs = (noise.float().reshape(shape) * deviation + middle).clamp(low, high)
        inputs = inputs.to(problem.device).requires_grad_()
        optimizer = torch.optim.Adam([inputs], lr=inversion.rate * (high - low))
        cost = torch.tensor(0.0)
        for _ in range(inversion.steps):
            optimizer.zero_grad()
            gradients = torch.autograd.grad(loss_of(network(inputs), labels), parameters, create_graph=True)
            cost = 1 - _cosine(_flat(gradients), wanted) + inversion.variation * _variation(inputs)
            inputs.grad = torch.autograd.grad(cost, inputs)[0].sign()  # Geiping et al.: signed steps
            optimizer.step()
            with torch.no_grad():
                inputs.clamp_(low, high)
        reached = float(cost.detach())
        if best is None or reached < best[0]:
            best = reached, inputs.detach().cpu()
    if best is None:
        raise ValueError("an inversion takes at least one restart")
    return best[1]


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.flatten() for each in tensors])


def _cosine(mine: Tensor, wanted: Tensor) -> Tensor:
    # of one vector each: tensor by tensor, most of a small network's step would be spent here
    lengths: Tensor = torch.linalg.vector_norm(mine) * torch.linalg.vector_norm(wanted)
    return torch.dot(mine, wanted) / lengths.clamp_min(1e-12)


def _variation(inputs: Tensor) -> Tensor:
    if inputs.dim() != _IMAGE:
        return inputs.new_zeros(())
    across = (inputs[..., 1:] - inputs[..., :-1]).abs().mean()
    return across + (inputs[..., 1:, :] - inputs[..., :-1, :]).abs().mean()


def _likeness(problem: Problem, found: Tensor, label: Tensor, records: Indices) -> float:
    """The largest correlation with one of the records of that label, or of all where none has it."""
    subject = problem.subject
    chosen = torch.from_numpy(np.ascontiguousarray(records))
    alike = (
        chosen[(subject.labels[chosen] == label).flatten(1).all(dim=1)]
        if subject.labels.dim() > 1
        else (chosen[subject.labels[chosen] == label])
    )
    others = subject.images[alike if len(alike) else chosen].flatten(1).double()
    mine = found.flatten(1).double()
    mine, others = (each - each.mean(dim=1, keepdim=True) for each in (mine, others))
    scale = (mine.norm(dim=1) * others.norm(dim=1)).clamp_min(1e-12)
    return float(((others @ mine[0]) / scale).max())
