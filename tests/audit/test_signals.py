"""Confidences against torch's own softmax, and alignments against cosines written out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from disavow.audit.game import Floats
from disavow.audit.signals import alignment, confidences, losses, margin
from disavow.audit.subject import Subject
from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import model_of, put_model
from disavow.engines.trainer import Trainer
from disavow.models import build
from disavow.rounds.vectors import Model
from tests.audit.making import CLIENT, subject_in, trainer_of


@pytest.fixture(scope="module")
def subject(broken: Path) -> Subject:
    return subject_in(broken)


@pytest.fixture(scope="module")
def trainer(subject: Subject) -> Iterator[Trainer]:
    with closing(trainer_of(subject)) as made:
        yield made


def network_of(name: str, seed: int) -> nn.Module:
    network = build(name, (1, 8, 8), 10, seed=seed)
    with torch.no_grad():  # batch-norm statistics that are not those of a new network
        for buffer_name, buffer in network.named_buffers():
            if buffer_name.endswith("running_mean"):
                buffer.add_(0.3)
            elif buffer_name.endswith("running_var"):
                buffer.mul_(2.0)
    return network


def of(subject: Subject, network: nn.Module) -> Floats:
    signals = confidences(replace(subject, network=build_like(network)), model_of(network))
    assert (len(signals.own), len(signals.held_out)) == (len(subject.own), len(subject.held_out))
    return np.concatenate([signals.own, signals.held_out])


def build_like(network: nn.Module) -> nn.Module:
    """The same architecture with other weights: those must come from the model."""
    names = {"ConvNet": "convnet", "LeNet5": "lenet5", "ResNetMini": "resnet-mini"}
    return build(names[type(network).__name__], (1, 8, 8), 10, seed=99)


def probabilities(subject: Subject, network: nn.Module) -> tuple[Floats, Floats]:
    """p of each true label and 1 - p, and the cross-entropy, from torch in float64."""
    network.eval()
    chosen = torch.from_numpy(subject.records)
    labels = subject.labels[chosen]
    with torch.no_grad():
        logits = network(subject.images[chosen]).double()
    p = logits.softmax(dim=1)[torch.arange(len(labels)), labels]
    return p.numpy(), nn.functional.cross_entropy(logits, labels, reduction="none").numpy()


@pytest.mark.parametrize("name", ["lenet5", "convnet", "resnet-mini"])
def test_confidences_are_log_odds_of_the_true_label(subject: Subject, name: str) -> None:
    for seed in (1, 2):
        network = network_of(name, seed)
        p, cross_entropy = probabilities(subject, network)
        found = of(subject, network)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, np.log(p) - np.log1p(-p), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(losses(found), cross_entropy, rtol=1e-9, atol=1e-12)


def test_asking_for_confidences_changes_neither_network_nor_model(subject: Subject) -> None:
    network = network_of("resnet-mini", 1)
    network.train()
    mine = replace(subject, network=network)
    model = model_of(network)
    kept, state = model.vector.clone(), model_of(network).vector.clone()
    first = confidences(mine, Model(model.layout, model.vector * 0.5))
    again = confidences(mine, Model(model.layout, model.vector * 0.5))
    assert torch.equal(model.vector, kept)
    assert torch.equal(model_of(network).vector, state)
    assert network.training
    assert np.array_equal(first.own, again.own)
    assert np.array_equal(first.held_out, again.held_out)


class Fixed(nn.Module):
    """Logits that depend on nothing: 0 for all but the first class."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.tensor([first]))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.first.expand(len(images), 1), torch.zeros(len(images), 9)], dim=1)


@pytest.mark.parametrize("first", [1e4, -1e4, 1e30, -1e30, 3e38])
def test_extreme_logits_stay_finite(subject: Subject, first: float) -> None:
    """Where p is 1 or 0 in every floating-point number, its log odds are still known."""
    network = Fixed(first)
    signals = confidences(replace(subject, network=Fixed(0.0)), model_of(network))
    found = np.concatenate([signals.own, signals.held_out])
    assert np.isfinite(found).all()
    zeros = subject.labels[torch.from_numpy(subject.records)].numpy() == 0
    assert zeros.any()
    wide = float(np.float32(first))
    np.testing.assert_allclose(found[zeros], wide - np.log(9), rtol=1e-12)
    np.testing.assert_allclose(found[~zeros], -np.logaddexp(wide, np.log(8)), rtol=1e-12)
    assert np.isfinite(losses(found)).all()


def test_losses_hold_at_both_ends() -> None:
    found = losses(np.array([-1e5, -30.0, 0.0, 30.0, 1e5]))
    np.testing.assert_allclose(found, [1e5, 30.0 + np.log1p(np.exp(-30)), np.log(2), np.exp(-30.0), 0.0], rtol=1e-9)


# -- alignment ---------------------------------------------------------------------------------------------------


def course(subject: Subject, rounds: int) -> list[Model]:
    """A made-up run: what an observer has who kept every model."""
    steps = torch.randn(rounds, subject.layout.size, generator=torch.Generator().manual_seed(5)) * 0.01
    vectors = torch.cat([subject.initial.vector[None], subject.initial.vector + steps.cumsum(dim=0)])
    return [Model(subject.layout, vector) for vector in vectors]


def test_alignment_is_the_mean_cosine_with_the_clients_own_update(subject: Subject, trainer: Trainer) -> None:
    models = course(subject, 3)
    engine = SequentialEngine(subject.workload())
    cosines = []
    for number in (1, 2, 3):  # the round's number decides the batches
        update = engine.train(models[number - 1], [CLIENT], number).vectors[0].double().numpy()
        step = models[number].vector.double().numpy() - models[number - 1].vector.double().numpy()
        cosines.append(update @ step / np.linalg.norm(update) / np.linalg.norm(step))
    assert alignment(subject, trainer, models) == pytest.approx(np.mean(cosines), abs=1e-4)
    assert max(cosines) - min(cosines) > 1e-3


def test_alignment_is_one_where_the_steps_are_the_clients_updates(subject: Subject, trainer: Trainer) -> None:
    engine = SequentialEngine(subject.workload())
    models = [subject.initial]
    for number in (1, 2, 3):
        update = engine.train(models[-1], [CLIENT], number).vectors[0]
        models.append(Model(subject.layout, models[-1].vector + update))
    assert alignment(subject, trainer, models) == pytest.approx(1.0, abs=1e-4)
    # a step the other way round, and one round numbered wrongly
    back = [models[0], Model(subject.layout, 2 * models[0].vector - models[1].vector)]
    assert alignment(subject, trainer, back) == pytest.approx(-1.0, abs=1e-4)
    assert alignment(subject, trainer, models[1:]) < 0.999


def test_alignment_without_rounds_or_steps_is_nought(subject: Subject, trainer: Trainer) -> None:
    assert alignment(subject, trainer, [subject.initial]) == 0.0
    assert alignment(subject, trainer, [subject.initial, subject.initial]) == 0.0


def test_the_network_is_only_an_architecture(subject: Subject, trainer: Trainer) -> None:
    other = build("lenet5", (1, 8, 8), 10, seed=5)
    models = course(subject, 1)
    assert alignment(replace(subject, network=other), trainer, models) == alignment(subject, trainer, models)
    mine, theirs = network_of("lenet5", 3), network_of("lenet5", 4)
    put_model(theirs, model_of(mine))
    assert np.array_equal(of(subject, mine), of(subject, theirs))


def test_attributes_give_the_confidence_of_their_mean_loss() -> None:
    logits = torch.tensor([[3.0, -2.0, 0.1], [-900.0, 800.0, 5.0], [20.0, 20.0, -20.0]], dtype=torch.float64)
    labels = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    found = losses(margin(logits, labels).numpy())
    expected = functional.binary_cross_entropy_with_logits(logits, labels.double(), reduction="none").mean(dim=1)
    assert found == pytest.approx(expected.numpy(), rel=1e-9)
