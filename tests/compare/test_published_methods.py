"""What single methods promise beyond the contract of all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from disavow.audit.subject import subject_of
from disavow.compare.averages import weighted_mean
from disavow.compare.measures.backdoor import trigger_for
from disavow.compare.method import METHODS, Federation, Method
from disavow.compare.methods.distillation import Distillation
from disavow.compare.methods.fedrecover import Curvature, FedRecover
from disavow.compare.methods.gradient_ascent import GradientAscent
from disavow.compare.methods.gradient_difference import GradientDifference
from disavow.compare.methods.negation import Negation, negated_spans
from disavow.compare.methods.npo import NegativePreference, negative_preference
from disavow.compare.methods.sifu import Sifu, contribution, rounds_within
from disavow.compare.problem import Problem, Trigger, problem_of
from disavow.compare.scheme import SCHEMES, TrainingResources, scheme_of
from disavow.compare.schemes.sampled import draws
from disavow.compare.schemes.shards import shards_of
from disavow.compare.trainer import trainer_of
from disavow.compare.training import TrainedRound, Training
from disavow.data.dataset import Indices
from disavow.domain import VARIANCE_FLOOR
from disavow.engines.state import layout_of, vector_of
from disavow.engines.trainer import Ask
from disavow.models import ResNetMini
from tests.audit.making import CLIENT, keys_of, make_run
from tests.compare.contract import Given

SETTINGS = {
    "rounds": 8,
    "data": {"clients": 8, "test_fraction": 0.3},
    "clustering": {"k": 4},
    "deniability": {"x": 2},
    "training": {"epochs": 2, "batch_size": 8, "learning_rate": 0.1},
    "noise": {"sigma": 0.001},
}
"""Enough rounds to learn something: what a method breaks or brings back can be seen."""

EXACT_SCHEMES = ("run", "s3", "sampled", "shards")
"""Those that exact methods start from."""


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    """A run that has learned its digits, under the schemes of the methods below."""
    folder = tmp_path_factory.mktemp("learned")
    run = make_run(folder / "run", SETTINGS)
    keys = keys_of(run)
    problem = problem_of(subject_of(run, CLIENT, keys=keys), keys=keys)
    with closing(trainer_of(problem)) as trainer:
        resources = TrainingResources(trainer, recompute=True)
        names = ("run", "sampled", "shards")
        trainings = {name: SCHEMES[name].train(problem, 0, folder / name, resources) for name in names}
        yield Given(problem, trainings, trainer, folder)


@pytest.fixture
def given(learned: Given, tmp_path: Path) -> Given:
    """The same, with a folder of the test's own."""
    return replace(learned, folder=tmp_path, progress=[])


def accuracy(problem: Problem, model: Tensor) -> float:
    """The share of test records that a model gets right."""
    chosen = problem.measured
    labels = problem.batch(chosen)[-1].cpu()
    return float((problem.outputs(model, chosen).argmax(1) == labels).float().mean())


@pytest.mark.parametrize(("name", "scheme"), [("fats", "sampled"), ("shards", "shards")])
def test_an_exact_method_gives_the_model_of_a_federation_without_the_leaver(
    name: str, scheme: str, given: Given
) -> None:
    [without] = SCHEMES[scheme].retrain(given.problem, [0], TrainingResources(given.trainer))
    forgotten, meter = given.forget(METHODS[name])
    assert torch.equal(forgotten.model, without)
    assert not torch.equal(forgotten.model, given.trainings[scheme].served)
    assert meter.client_epochs > 0


@pytest.fixture(scope="module")
def other_data(learned: Given, tmp_path_factory: pytest.TempPathFactory) -> Given:
    """The same federation, in which the leaver alone held other records: with a trigger, and with one label."""
    trigger = trigger_for(learned.problem)
    assert isinstance(trigger, Trigger)
    problem, folder = learned.problem.with_backdoor(trigger), tmp_path_factory.mktemp("other data")
    resources = TrainingResources(learned.trainer)
    trainings = {name: SCHEMES[name].train(problem, 1, folder / name, resources) for name in EXACT_SCHEMES}
    return Given(problem, trainings, learned.trainer, folder)


@pytest.mark.parametrize("name", [*(name for name in METHODS if METHODS[name].exact), "rapid-retraining"])
def test_what_the_leaver_held_changes_no_bit_of_an_exact_model(
    name: str, other_data: Given, given: Given, tmp_path: Path
) -> None:
    method, resources = METHODS[name], TrainingResources(given.trainer)
    scheme = scheme_of(method.scheme, given.problem)
    training = SCHEMES[scheme].train(given.problem, 1, tmp_path / scheme, resources)
    mine, _ = replace(given, trainings={scheme: training}).forget(method)
    others, _ = other_data.forget(method)
    assert not torch.equal(training.served, other_data.trainings[scheme].served)
    assert torch.equal(mine.model, others.model)


def test_without_a_client_the_draws_that_fell_on_others_stay() -> None:
    clients = [f"client-{number}" for number in range(9)]
    for number in range(1, 40):
        before, after = draws(clients, 3, 5, number), draws(clients[1:], 3, 5, number)
        assert all(after[client] >= before[client] for client in clients[1:])
        assert after.total() == before.total() == 3


def test_shards_hold_everybody_once_and_are_even() -> None:
    clients = [f"client-{number}" for number in range(11)]
    found = shards_of(clients, 3)
    assert sorted(client for shard in found for client in shard) == sorted(clients)
    assert {len(shard) for shard in found} == {2, 3}


def test_curvature_is_that_of_a_quadratic_along_the_directions_it_has_seen() -> None:
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    hessian = root @ root.T + torch.eye(6)
    curvature = Curvature(pairs=2)
    steps = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    assert torch.equal(curvature.times(steps[0]), torch.zeros(6, dtype=torch.float64))
    for step in steps:
        curvature.add(step, -hessian @ step)  # an update goes against the gradient
    torch.testing.assert_close(curvature.times(steps[1]), -hessian @ steps[1])
    curvature.add(steps[0], hessian @ steps[0])  # not convex along it: passed over
    torch.testing.assert_close(curvature.times(steps[1]), -hessian @ steps[1])


def test_fedrecover_asks_clients_for_less_than_a_retraining(given: Given) -> None:
    method = replace(FedRecover(), warm_up=1, every=20, last=1, shares=(1.0, 1.0, 1.0))
    _, meter = given.forget(method)
    _, whole = given.forget(METHODS["retrain-from-scratch"])
    assert 0 < meter.client_epochs < whole.client_epochs


def test_fedrecover_with_exact_updates_alone_is_a_retraining_by_averaging(given: Given) -> None:
    """Every round of the warm-up: the estimate plays no part."""
    training, problem = given.trainings["run"], given.problem
    method = replace(FedRecover(), warm_up=len(training.rounds), shares=(1.0, 1.0, 1.0))
    forgotten, _ = given.forget(method)
    vector = training.initial
    workload = problem.workload(0, without_leaver=True)
    for each in training.rounds:
        ask = Ask(workload, training.model(vector), problem.remaining, each.number)
        updates = given.trainer.train([ask])[0].in_id_order()
        vector = vector + weighted_mean(updates.vectors, updates.samples)
    torch.testing.assert_close(forgotten.model, vector)


def _round(updates: list[list[float]], clients: tuple[str, ...], samples: tuple[int, ...]) -> TrainedRound:
    return TrainedRound(1, torch.zeros(2), clients, samples, torch.tensor(updates))


def test_a_contribution_is_the_distance_between_the_means_with_and_without_a_client() -> None:
    trained = _round([[3.0, 0.0], [0.0, 0.0]], ("a", "b"), (1, 2))
    assert contribution(trained, "a") == pytest.approx(1.0)
    assert contribution(trained, "nobody") == 0
    assert contribution(_round([[1.0, 0.0]], ("a",), (1,)), "a") == float("inf")


def test_sifu_goes_back_to_the_last_round_whose_sensitivity_its_noise_hides(given: Given) -> None:
    assert rounds_within([0.1, 0.1, 0.1], 0.25) == 2
    assert rounds_within([0.3], 0.25) == 0
    last = len(given.trainings["run"].rounds)
    little, _ = given.forget(replace(Sifu(), sigma=1e-9))
    much, meter = given.forget(replace(Sifu(), sigma=0.01, epsilon=1e6))
    assert little.remark == f"back to round 0 of {last}"
    assert much.remark == f"back to round {last} of {last}"
    assert meter.client_epochs == 0


def test_negation_turns_the_first_weights_round_and_nothing_else(given: Given) -> None:
    layout = given.problem.subject.layout
    [(name, start, end)] = negated_spans(layout)
    assert (start, name.endswith("weight")) == (0, True)
    assert end < layout.size
    served = given.trainings["run"].served
    negated = given.forget(Negation(share=0.0))[0].model
    assert torch.equal(negated[start:end], -served[start:end])
    assert torch.equal(negated[end:], served[end:])


def loss(problem: Problem, model: Tensor, records: Indices) -> float:
    """The mean loss of a model on some records."""
    network = problem.network(model).eval()
    with torch.no_grad():
        return float(problem.subject.task.loss(network, problem.batch(records)))


def test_the_ascent_raises_the_leavers_loss_before_others_train_on(given: Given) -> None:
    own, served = given.problem.subject.own, given.trainings["run"].served
    ascended, meter = given.forget(replace(GradientAscent(), share=0.0, learning_rate=0.05))
    assert loss(given.problem, ascended.model, own) > loss(given.problem, served, own)
    # one epoch of the leaver for its last model, one to see what an untrained model's loss is, five of ascent
    assert meter.client_epochs == 2 + 1 + 5


@pytest.mark.parametrize("method", [GradientDifference(), NegativePreference()])
def test_what_leaves_becomes_less_likely_and_what_stays_hardly_does(
    method: GradientDifference | NegativePreference, given: Given
) -> None:
    problem, served = given.problem, given.trainings["run"].served
    own, others = problem.subject.own, np.concatenate([problem.subject.parts[each] for each in problem.remaining])
    forgotten, meter = given.forget(method)
    raised = loss(problem, forgotten.model, own) - loss(problem, served, own)
    assert raised > 0
    assert loss(problem, forgotten.model, others) - loss(problem, served, others) < raised
    # the leaver and those who stay send a gradient for each step, and each of them an update at the least
    steps = int(forgotten.remark.split()[0])
    assert steps > 0
    assert meter.bytes_sent >= 2 * (2 * steps) * problem.model_bytes


def test_without_its_retained_term_the_leaver_optimizes_the_negative_preference_alone(given: Given) -> None:
    _, meter = given.forget(replace(NegativePreference(), retain=0.0, epochs=2))
    assert (meter.client_epochs, meter.bytes_sent) == (2, 2 * given.problem.model_bytes)


def test_a_negative_preference_is_bounded_and_has_the_gradient_of_ascent_for_a_small_beta() -> None:
    before = torch.tensor([-1.0, -3.0], dtype=torch.float64)
    assert float(negative_preference(before, before, 0.1)) == pytest.approx(2 * math.log(2) / 0.1)
    assert float(negative_preference(before - 1e6, before, 0.1)) == pytest.approx(0)
    now = (before + 0.5).requires_grad_()
    [gradient] = torch.autograd.grad(negative_preference(now, before, 1e-9), [now])
    torch.testing.assert_close(gradient, torch.full((2,), 0.5, dtype=torch.float64))  # of the mean log-likelihood


def test_distillation_brings_back_what_the_subtraction_broke(given: Given) -> None:
    untaught, _ = given.forget(replace(Distillation(), epochs=0))
    taught, meter = given.forget(Distillation())
    assert accuracy(given.problem, taught.model) > accuracy(given.problem, untaught.model)
    assert meter.client_epochs == 0


@pytest.mark.parametrize("method", [METHODS["rapid-retraining"], Negation(share=1.0), METHODS["fine-tune"]])
def test_those_who_remain_train_a_useful_model(method: Method, given: Given) -> None:
    forgotten, _ = given.forget(method)
    assert accuracy(given.problem, forgotten.model) > 0.3


def test_fedaccum_leaves_no_running_variance_below_zero() -> None:
    """Updates that were made from other models add up to anything; a network would take the root of it."""
    network = ResNetMini((1, 8, 8), 4)
    layout, initial = layout_of(network), vector_of(network)
    shrinking = TrainedRound(1, initial, ("ada", "bob"), (3, 1), torch.full((2, layout.size), -2.0))
    training = Training(layout, (shrinking,), initial, seed=0)
    federation = SimpleNamespace(training=training, remaining=("ada",), tell=lambda done, total: None)
    model = METHODS["fedaccum"].forget(cast("Federation", federation)).model
    floored = [model[start:end] for start, end in layout.variances()]
    assert floored
    assert all(bool((each >= VARIANCE_FLOOR).all()) for each in floored)
    assert model.min() < 0
