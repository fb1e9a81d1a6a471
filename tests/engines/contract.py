"""What every engine owes, whatever it runs on: one suite, inherited by one test class an engine.

    class TestSequential(EngineContract):
        def make(self, case: Case) -> Engine: ...

`tolerance` is how far two updates that must be the same may be apart in any number; for the reference, 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from disavow.config import TrainingSettings
from disavow.domain import Evaluation, Layout
from disavow.engines.batches import batches
from disavow.engines.sequential import SequentialEngine
from disavow.engines.state import model_of, put_model
from disavow.engines.workload import Workload
from disavow.errors import ModelMismatch
from disavow.models import build
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model
from tests.selection import some_of

SHAPE = (1, 6, 6)
CLASSES = 4
PARTS = {"ada": 7, "bo": 12, "cy": 1, "dee": 9}
"""How many samples each client holds: none a multiple of the batch of 4 but one, and one a single sample."""

BY_HAND = 1e-5
"""How far an update may be from SGD written out: rounding, in another order of operations, and no more."""

SETTINGS = TrainingSettings(epochs=2, batch_size=4, learning_rate=0.1)

NETWORKS = ["convnet", "lenet5", "resnet-mini"]


@dataclass(frozen=True, eq=False)
class Case(Workload):
    """All that an engine is made from, and the model it starts with."""

    @property
    def model(self) -> Model:
        """The model that the network starts from."""
        return model_of(self.network)


def a_case(network: str = "lenet5", settings: TrainingSettings = SETTINGS) -> Case:
    """Random images; the indices of the clients are scattered, as after a partition."""
    generator = torch.Generator().manual_seed(5)
    total, held_out = sum(PARTS.values()), 30
    order = torch.randperm(total, generator=generator).numpy()
    bounds = np.cumsum(list(PARTS.values()))[:-1]
    images = torch.rand(total + held_out, *SHAPE, generator=generator)
    labels = torch.randint(CLASSES, (total + held_out,), generator=generator)
    return Case(
        network=build(network, SHAPE, CLASSES, seed=3),
        images=images[:total],
        labels=labels[:total],
        parts=dict(zip(PARTS, np.split(order, bounds), strict=True)),
        test_images=images[total:],
        test_labels=labels[total:],
        settings=settings,
        seed=11,
    )


def with_attributes(case: Case) -> Case:
    """The same samples with four attributes each instead of a class; about a third of them are there."""
    generator = torch.Generator().manual_seed(6)
    drawn = [torch.rand(len(each), CLASSES, generator=generator) < 0.35 for each in (case.labels, case.test_labels)]
    return replace(case, labels=drawn[0].float(), test_labels=drawn[1].float())


def batches_of(case: Case, client: str, round_number: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The client's images and labels, batch by batch."""
    images, labels = case.images[case.parts[client]], case.labels[case.parts[client]]
    for batch in batches(
        len(labels),
        epochs=case.settings.epochs,
        batch_size=case.settings.batch_size,
        seed=case.seed,
        round_number=round_number,
        client=client,
    ):
        yield images[batch], labels[batch]


def by_hand(case: Case, client: str, round_number: int) -> Tensor:
    """The client's update by SGD written out: velocity, decay and all, without an optimiser."""
    network, settings = build_like(case).train(), case.settings
    parameters = list(network.parameters())
    velocity = [torch.zeros_like(parameter) for parameter in parameters]
    for step, (images, labels) in enumerate(batches_of(case, client, round_number)):
        gradients = torch.autograd.grad(functional.cross_entropy(network(images), labels), parameters)
        with torch.no_grad():
            for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                decayed = gradient.add(parameter, alpha=settings.weight_decay)
                velocity[i] = decayed if step == 0 else velocity[i] * settings.momentum + decayed
                parameter.add_(velocity[i], alpha=-settings.learning_rate)
    return model_of(network).vector - case.model.vector


def by_optimiser(case: Case, client: str, round_number: int) -> Tensor:
    """The client's update by torch's own SGD: what the names of the settings mean to everyone else."""
    network, settings = build_like(case).train(), case.settings
    optimiser = torch.optim.SGD(
        network.parameters(),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    for images, labels in batches_of(case, client, round_number):
        optimiser.zero_grad()
        functional.cross_entropy(network(images), labels).backward()
        optimiser.step()
    return model_of(network).vector - case.model.vector


def build_like(case: Case) -> nn.Module:
    """A network of the same kind that holds the model of the case."""
    network = build(NETWORK_NAMES[type(case.network).__name__], SHAPE, CLASSES, seed=99)
    put_model(network, case.model)
    return network


NETWORK_NAMES = {"ConvNet": "convnet", "LeNet5": "lenet5", "ResNetMini": "resnet-mini"}


def evaluated(engine: Engine, model: Model) -> Evaluation:
    """What an engine that holds test data says of a model."""
    evaluation = engine.evaluate(model)
    assert evaluation is not None
    return evaluation


class EngineContract(ABC):
    """Inherit, say how the engine is made, and every test here runs over it."""

    tolerance = 0.0

    stranger: type[Exception] = KeyError
    """What comes of asking for a client that nobody has heard of."""

    @abstractmethod
    def make(self, case: Case) -> Engine:
        """The engine under test."""

    def alike(self, one: Tensor, other: Tensor) -> None:
        torch.testing.assert_close(one, other, rtol=0.0, atol=self.tolerance)

    def near(self, row: Tensor, by_hand: Tensor) -> None:
        torch.testing.assert_close(row, by_hand, rtol=0.0, atol=BY_HAND)

    # LeNet-5 is what the tests without this fixture train
    @pytest.fixture(params=some_of(NETWORKS, ["convnet", "resnet-mini"]))
    def case(self, request: pytest.FixtureRequest) -> Case:
        return a_case(request.param)

    # -- what comes back -------------------------------------------------------------------------------------

    def test_each_client_returns_one_float32_row_in_the_order_asked_for(self, case: Case) -> None:
        updates = self.make(case).train(case.model, ["cy", "ada"], 1)
        assert updates.clients == ("cy", "ada")
        assert updates.samples == (PARTS["cy"], PARTS["ada"])
        assert updates.vectors.shape == (2, case.model.layout.size)
        assert updates.vectors.dtype == torch.float32
        assert bool((updates.vectors != 0).any(dim=1).all())
        assert updates.trainer  # the ledger records who trained a round

    def test_when_nobody_takes_part_there_are_no_updates(self, case: Case) -> None:
        # so that the round refuses them, as it does whenever there are fewer than k
        updates = self.make(case).train(case.model, [], 1)
        assert len(updates) == 0
        assert updates.vectors.shape == (0, case.model.layout.size)

    def test_an_update_is_what_plain_sgd_makes_of_the_model_minus_the_model(self, case: Case) -> None:
        updates = self.make(case).train(case.model, list(PARTS), 3)
        for client, row in zip(updates.clients, updates.vectors, strict=True):
            self.near(row, by_hand(case, client, 3))

    @pytest.mark.parametrize(
        "settings",
        [
            pytest.param(SETTINGS.model_copy(update={"momentum": 0.9}), marks=pytest.mark.torture),
            pytest.param(SETTINGS.model_copy(update={"weight_decay": 0.1}), marks=pytest.mark.torture),
            SETTINGS.model_copy(update={"momentum": 0.5, "weight_decay": 0.05, "learning_rate": 0.02}),
            SETTINGS.model_copy(update={"epochs": 1, "batch_size": 100}),
            SETTINGS.model_copy(update={"batch_size": 1}),
        ],
        ids=lambda settings: str(settings.model_dump(exclude_defaults=True)),
    )
    def test_every_training_setting_is_honoured(self, settings: TrainingSettings) -> None:
        case = a_case(settings=settings)
        updates = self.make(case).train(case.model, list(PARTS), 1)
        plain = self.make(a_case()).train(case.model, list(PARTS), 1)
        for client, row in zip(updates.clients, updates.vectors, strict=True):
            for expected in (by_hand(case, client, 1), by_optimiser(case, client, 1)):
                self.near(row, expected)
        # and the setting does make a difference
        assert float((updates.vectors - plain.vectors)[1].abs().max()) > 1e-3

    @pytest.mark.parametrize("epochs", [1, 3])
    def test_epochs_that_are_asked_for_are_those_of_other_settings(self, epochs: int) -> None:
        case, other = a_case(), a_case(settings=SETTINGS.model_copy(update={"epochs": epochs}))
        engine = self.make(case)
        before = engine.train(case.model, list(PARTS), 2)
        updates = engine.train(case.model, list(PARTS), 2, epochs=epochs)
        for client, row in zip(updates.clients, updates.vectors, strict=True):
            self.near(row, by_hand(other, client, 2))
        self.alike(engine.train(case.model, list(PARTS), 2).vectors, before.vectors)
        assert float((updates.vectors - before.vectors)[1].abs().max()) > 1e-3

    def test_a_larger_step_moves_a_client_further(self) -> None:
        lengths = []
        for rate in (0.001, 0.01, 0.1):
            case = a_case(settings=SETTINGS.model_copy(update={"learning_rate": rate}))
            lengths.append(float(self.make(case).train(case.model, ["bo"], 1).vectors.norm()))
        assert lengths[0] * 5 < lengths[1]
        assert lengths[1] * 5 < lengths[2]

    def test_the_last_short_batch_is_included(self) -> None:
        # 7 samples in batches of 4, one epoch: whichever came last, changing it changes the update
        case = a_case(settings=SETTINGS.model_copy(update={"epochs": 1}))
        engine_update = self.make(case).train(case.model, ["ada"], 1).vectors
        for sample in case.parts["ada"]:
            images = case.images.clone()
            images[sample] = 1 - images[sample]
            changed = self.make(replace(case, images=images)).train(case.model, ["ada"], 1).vectors
            assert not torch.equal(changed, engine_update)

    def test_training_lowers_the_loss_of_the_client(self) -> None:
        case = a_case(settings=SETTINGS.model_copy(update={"epochs": 60}))
        held = case.parts["bo"]
        judge = self.make(replace(case, test_images=case.images[held], test_labels=case.labels[held]))
        update = judge.train(case.model, ["bo"], 1).vectors[0]
        after = Model(case.model.layout, case.model.vector + update)
        assert evaluated(judge, after).loss < evaluated(judge, case.model).loss - 0.05

    # -- what it depends on ----------------------------------------------------------------------------------

    def test_an_update_does_not_depend_on_who_else_takes_part_nor_on_the_order(self, case: Case) -> None:
        alone = {client: self.make(case).train(case.model, [client], 2).vectors[0] for client in PARTS}
        for clients in (list(PARTS), list(PARTS)[::-1], ["dee", "bo"]):
            updates = self.make(case).train(case.model, clients, 2)
            for client, row in zip(updates.clients, updates.vectors, strict=True):
                self.alike(row, alone[client])

    def test_an_update_does_not_depend_on_other_clients_data(self, case: Case) -> None:
        images, labels = torch.zeros_like(case.images), torch.zeros_like(case.labels)
        held = case.parts["ada"]
        images[held], labels[held] = case.images[held], case.labels[held]
        one = self.make(case).train(case.model, ["dee", "ada"], 1).vectors[1]
        other = (
            self.make(replace(case, images=images, labels=labels)).train(case.model, ["dee", "ada"], 1).vectors[1]
        )
        self.alike(one, other)

    def test_an_update_does_not_depend_on_what_the_engine_did_before(self, case: Case) -> None:
        engine = self.make(case)
        engine.evaluate(case.model)
        engine.train(Model(case.model.layout, case.model.vector * 0.5), ["bo", "dee"], 7)
        self.alike(
            engine.train(case.model, ["ada"], 1).vectors, self.make(case).train(case.model, ["ada"], 1).vectors
        )

    def test_an_update_depends_on_the_model_the_round_the_seed_and_the_id(self, case: Case) -> None:
        def update(changed: Case, client: str = "ada", round_number: int = 1, scale: float = 1.0) -> Tensor:
            model = Model(case.model.layout, case.model.vector * scale)
            return self.make(changed).train(model, [client], round_number).vectors[0]

        namesake = replace(case, parts={**case.parts, "eve": case.parts["ada"]})
        first = update(case)
        for other in (
            update(case, scale=0.9),
            update(case, round_number=2),
            update(replace(case, seed=12)),
            update(namesake, client="eve"),
        ):
            assert float((first - other).abs().max()) > 1e-6

    def test_the_same_question_has_the_same_answer(self, case: Case) -> None:
        engine = self.make(case)
        first = engine.train(case.model, list(PARTS), 4).vectors
        self.alike(engine.train(case.model, list(PARTS), 4).vectors, first)
        self.alike(self.make(case).train(case.model, list(PARTS), 4).vectors, first)

    def test_the_global_generator_plays_no_part(self, case: Case) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            state = torch.get_rng_state()
            first = self.make(case).train(case.model, ["ada", "bo"], 1).vectors
            evaluated(self.make(case), case.model)
            assert torch.equal(torch.get_rng_state(), state)
            torch.manual_seed(2)
            self.alike(self.make(case).train(case.model, ["ada", "bo"], 1).vectors, first)

    # -- what it must leave alone ----------------------------------------------------------------------------

    def test_the_model_and_the_network_it_was_made_from_stay_as_they_are(self, case: Case) -> None:
        model, network = case.model, {name: t.clone() for name, t in case.network.state_dict().items()}
        before = model.vector.clone()
        engine = self.make(case)
        engine.train(model, list(PARTS), 1)
        engine.evaluate(model)
        assert torch.equal(model.vector, before)
        assert all(torch.equal(tensor, network[name]) for name, tensor in case.network.state_dict().items())

    @pytest.mark.parametrize("take", [slice(0, -1), slice(None, None, -1)], ids=["shorter", "in another order"])
    def test_a_model_of_other_tensors_is_refused(self, case: Case, take: slice) -> None:
        # `test_other_models` hands engines many more of them, where a crash does no harm
        layout = Layout(case.model.layout.tensors[take])
        other, engine = Model(layout, torch.zeros(layout.size)), self.make(case)
        with pytest.raises(ModelMismatch):
            engine.train(other, ["ada"], 1)
        with pytest.raises(ModelMismatch):
            engine.evaluate(other)

    def test_the_number_of_threads_is_put_back_even_after_an_error(self, case: Case) -> None:
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(2)
            engine = self.make(case)
            engine.train(case.model, ["ada"], 1)
            engine.evaluate(case.model)
            assert torch.get_num_threads() == 2
            with pytest.raises(self.stranger):
                engine.train(case.model, ["nobody"], 1)
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(threads)

    def test_the_number_of_threads_does_not_change_a_bit(self, case: Case) -> None:
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            one = self.make(case).train(case.model, ["bo"], 1).vectors
            torch.set_num_threads(2)
            self.alike(self.make(case).train(case.model, ["bo"], 1).vectors, one)
        finally:
            torch.set_num_threads(threads)

    # -- batch norm ------------------------------------------------------------------------------------------

    def test_batch_norm_statistics_are_part_of_the_update(self) -> None:
        case = a_case("resnet-mini")
        update = self.make(case).train(case.model, ["bo"], 1).vectors[0]
        moved = Model(case.model.layout, update).tensors()
        statistics = [name for name in moved if name.endswith(("running_mean", "running_var"))]
        assert len(statistics) == 12
        assert all(float(moved[name].abs().max()) > 0 for name in statistics)

    def test_batch_norm_statistics_start_from_the_broadcast_model(self) -> None:
        # were they kept from client to client, the second would start from those of the first
        case = a_case("resnet-mini")
        shifted = case.model.vector.clone()
        for spec, start, end in case.model.layout.spans():
            if spec.name.endswith("running_mean"):
                shifted[start:end] += 10
        one = self.make(case).train(case.model, ["bo"], 1).vectors[0]
        other = self.make(case).train(Model(case.model.layout, shifted), ["bo"], 1).vectors[0]
        # six batches of momentum 0.1 forget 1 - 0.9^6 of the shift
        name = "block1.norm1.running_mean"
        difference = Model(case.model.layout, other - one).tensors()[name]
        torch.testing.assert_close(difference, torch.full_like(difference, -10 * (1 - 0.9**6)), rtol=1e-4, atol=0.0)

    # -- evaluation ------------------------------------------------------------------------------------------

    def test_an_evaluation_is_the_accuracy_and_the_mean_loss_in_evaluation_mode(self, case: Case) -> None:
        network = build_like(case).eval()
        with torch.no_grad():
            scores = network(case.test_images).double()
        expected = functional.cross_entropy(scores, case.test_labels).item()
        evaluation = evaluated(self.make(case), case.model)
        assert evaluation.loss == pytest.approx(expected, abs=max(1e-6, self.tolerance))
        assert evaluation.accuracy == (scores.argmax(dim=1) == case.test_labels).double().mean().item()

    def test_an_evaluation_does_not_depend_on_how_the_samples_are_batched(self) -> None:
        # in training mode, batch norm would mix the samples of a batch
        case = a_case("resnet-mini")
        whole = evaluated(self.make(case), case.model)
        singly = [
            evaluated(
                self.make(replace(case, test_images=case.test_images[[i]], test_labels=case.test_labels[[i]])),
                case.model,
            )
            for i in range(len(case.test_labels))
        ]
        assert whole.loss == pytest.approx(sum(each.loss for each in singly) / len(singly), abs=1e-6)
        assert whole.accuracy == pytest.approx(sum(each.accuracy for each in singly) / len(singly))

    def test_an_evaluation_takes_more_samples_than_fit_in_a_batch(self, case: Case) -> None:
        many = replace(
            case, test_images=case.test_images.repeat(100, 1, 1, 1), test_labels=case.test_labels.repeat(100)
        )
        few, whole = evaluated(self.make(case), case.model), evaluated(self.make(many), case.model)
        assert whole.loss == pytest.approx(few.loss, abs=1e-6)
        assert whole.accuracy == pytest.approx(few.accuracy)

    def test_evaluating_changes_nothing_about_later_evaluations_or_training(self) -> None:
        case = a_case("resnet-mini")
        engine = self.make(case)
        first = engine.evaluate(case.model)
        assert engine.evaluate(case.model) == first
        self.alike(
            engine.train(case.model, ["bo"], 1).vectors, self.make(case).train(case.model, ["bo"], 1).vectors
        )
        assert engine.evaluate(case.model) == first


class AttributesContract(ABC):
    """What engines owe that learn attributes: inherit it beside `EngineContract`.

    `rounding` is how far an update may be from the reference, in shares of its length; for the reference, 0.
    """

    rounding = 0.0

    @abstractmethod
    def make(self, case: Case) -> Engine:
        """The engine under test."""

    @pytest.fixture(params=some_of(NETWORKS, ["lenet5", "resnet-mini"]))
    def labelled(self, request: pytest.FixtureRequest) -> Case:
        return with_attributes(a_case(request.param))

    def test_the_task_is_read_off_the_labels(self) -> None:
        assert a_case().task == "classes"
        assert with_attributes(a_case()).task == "attributes"

    def test_attributes_are_learned_by_mean_binary_cross_entropy(self, labelled: Case) -> None:
        """Written out: the mean over attributes and samples of softplus(score) - label * score."""
        updates = self.make(labelled).train(labelled.model, list(PARTS), 3)
        for client, row in zip(updates.clients, updates.vectors, strict=True):
            network, settings = build_like(labelled).train(), labelled.settings
            parameters = list(network.parameters())
            for images, labels in batches_of(labelled, client, 3):
                scores = network(images)
                loss = (functional.softplus(scores) - labels * scores).mean()
                gradients = torch.autograd.grad(loss, parameters)
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter.sub_(gradient, alpha=settings.learning_rate)
            expected = model_of(network).vector - labelled.model.vector
            assert float((row - expected).norm()) <= max(self.rounding, 3e-5) * float(expected.norm())

    def test_unequal_clients_agree_with_the_reference(self, labelled: Case) -> None:
        expected = SequentialEngine(labelled).train(labelled.model, list(PARTS), 1).vectors
        found = self.make(labelled).train(labelled.model, list(PARTS), 1).vectors
        deviation = (found - expected).norm(dim=1) / expected.norm(dim=1)
        assert float(deviation.max()) <= self.rounding
        assert float((found - expected).abs().max()) <= 1e-5

    def test_momentum_and_decay_are_honoured_with_attributes_too(self) -> None:
        settings = SETTINGS.model_copy(update={"momentum": 0.5, "weight_decay": 0.05})
        case = with_attributes(a_case(settings=settings))
        expected = SequentialEngine(case).train(case.model, list(PARTS), 1).vectors
        found = self.make(case).train(case.model, list(PARTS), 1).vectors
        assert float((found - expected).abs().max()) <= 1e-5

    def test_the_accuracy_is_the_mean_over_attributes_and_samples(self, labelled: Case) -> None:
        # more samples than are scored at once, and no multiple of that
        many = replace(
            labelled,
            test_images=labelled.test_images.repeat(70, 1, 1, 1),
            test_labels=labelled.test_labels.repeat(70, 1),
        )
        with torch.no_grad():
            scores = build_like(labelled).eval()(labelled.test_images).double()
        right = (scores > 0) == labelled.test_labels.bool()
        loss = functional.binary_cross_entropy_with_logits(scores, labelled.test_labels.double())
        for case in (labelled, many):
            evaluation = evaluated(self.make(case), case.model)
            assert evaluation.accuracy == pytest.approx(right.double().mean().item(), abs=1e-12)
            assert evaluation.loss == pytest.approx(loss.item(), abs=1e-5)

    def test_attributes_can_be_learned(self) -> None:
        case = with_attributes(a_case(settings=SETTINGS.model_copy(update={"epochs": 150})))
        held = case.parts["bo"]
        judge = self.make(replace(case, test_images=case.images[held], test_labels=case.labels[held]))
        update = judge.train(case.model, ["bo"], 1).vectors[0]
        after = evaluated(judge, Model(case.model.layout, case.model.vector + update))
        before = evaluated(judge, case.model)
        assert after.loss < before.loss - 0.05
        assert after.accuracy >= before.accuracy

    def test_a_client_with_one_sample_and_no_attribute_trains(self) -> None:
        case = with_attributes(a_case())
        case = replace(case, labels=torch.zeros_like(case.labels))
        row = self.make(case).train(case.model, ["cy"], 1).vectors[0]
        assert bool(torch.isfinite(row).all())
        assert bool(row.any())
