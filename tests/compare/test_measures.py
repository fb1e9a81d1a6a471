"""Single measures: each is 0, or what retrained models have, where it must be, and moves where it must."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from disavow.audit.game import Records
from disavow.audit.signals import confidences
from disavow.compare.measures.backdoor import success, trigger_for
from disavow.compare.measures.membership import (
    advantages,
    attackers_for,
    loss_gap,
    records_of,
    reference_advantages,
)
from disavow.compare.measures.predictions import agreement, loss_on_leaver, predictions
from disavow.compare.measures.reconstruction import Inversion, reconstruction
from disavow.compare.measures.relearning import rounds_to_relearn
from disavow.compare.problem import Problem, Trigger
from disavow.compare.training import Training
from disavow.engines.objectives import loss_of
from disavow.engines.trainer import Trainer
from disavow.rounds.threads import one_thread


def test_halves_of_the_test_data_do_not_meet_and_attackers_records_are_not_public(problem: Problem) -> None:
    measured, public = set(problem.measured.tolist()), set(problem.public.tolist())
    assert not measured & public
    assert not public & set(problem.subject.held_out.tolist())
    assert len(measured) == (len(problem._test) + 1) // 2
    trained = {number for part in problem.subject.parts.values() for number in part.tolist()}
    assert not trained & (measured | public)


def test_predictions_are_those_of_the_network(problem: Problem, trainings: dict[str, Training]) -> None:
    said = predictions(problem, trainings["run"].served)
    inputs, labels = problem.subject.samples.batch(problem.measured)
    network = problem.network(trainings["run"].served).eval()
    with torch.no_grad():
        answers = network(inputs).argmax(dim=1)
    assert said.accuracy == pytest.approx(float((answers == labels).double().mean()))
    assert np.array_equal(said.answers[:, 0], answers.numpy())
    assert said.leaver_loss == pytest.approx(loss_on_leaver(problem, trainings["run"].served))
    assert agreement(said, [said]) == 1.0
    assert agreement(said, []) is None


def test_an_attacker_that_knows_the_records_has_an_advantage_and_references_have_none(problem: Problem) -> None:
    own, held_out = len(problem.subject.own), len(problem.subject.held_out)
    random = np.random.default_rng(3)
    base = random.normal(size=own + held_out)

    def model(lift: float) -> Records:
        seen = base + 0.1 * random.normal(size=len(base))
        return Records(seen[:own] + lift, seen[own:])

    references = [model(0.0) for _ in range(5)]
    attackers = attackers_for(problem, references)
    assert {each.name for each in attackers.usable} == {"loss threshold", "LiRA offline"}
    usual = [each["LiRA offline"] for each in reference_advantages(attackers, references)]
    kept = advantages(attackers, model(0.5), references)["LiRA offline"]
    assert max(map(abs, usual)) < 0.4
    assert kept > 0.9
    # one that was pushed away is as far from references, on the other side
    assert advantages(attackers, model(-0.5), references)["LiRA offline"] < -0.9
    lifted = loss_gap(problem, model(0.5))
    assert lifted is not None
    assert lifted > np.mean([loss_gap(problem, each) or 0.0 for each in references])


def test_confidences_are_the_audits(problem: Problem, trainings: dict[str, Training]) -> None:
    vector = trainings["run"].served
    mine, theirs = records_of(problem, vector), confidences(problem.subject, trainings["run"].model(vector))
    assert mine.own == pytest.approx(theirs.own)
    assert mine.held_out == pytest.approx(theirs.held_out)


def test_a_trigger_is_planted_in_what_leaves_alone(problem: Problem) -> None:
    trigger = trigger_for(problem)
    assert isinstance(trigger, Trigger)
    marked = problem.with_backdoor(trigger).subject
    changed = (marked.images != problem.subject.images).flatten(1).any(dim=1).nonzero().flatten().tolist()
    assert set(changed) <= set(problem.subject.own.tolist())
    assert len(changed) > 0.9 * len(problem.subject.own)
    assert set(marked.labels[torch.from_numpy(problem.subject.own)].tolist()) == {trigger.label}
    # the bright corner, and nothing else, of each channel
    image = trigger.on(torch.zeros(1, *problem.subject.images.shape[1:]))[0]
    side = int(image[0].count_nonzero() ** 0.5)
    assert bool((image[:, -side:, -side:] == trigger.value).all())
    assert int(image.count_nonzero()) == image.shape[0] * side**2


def test_a_model_that_always_gives_the_label_has_a_backdoor_and_one_that_never_does_has_none(
    problem: Problem,
) -> None:
    trigger = trigger_for(problem)
    assert isinstance(trigger, Trigger)
    marked = problem.with_backdoor(trigger)
    vector = torch.zeros_like(problem.subject.initial.vector)
    spans = {spec.name: start for spec, start, _ in problem.subject.layout.spans()}
    bias = [start for name, start in spans.items() if name.endswith("bias")][-1]
    always, never = vector.clone(), vector.clone()
    always[bias + trigger.label], never[bias + trigger.label] = 5.0, -5.0
    assert success(marked, always) == 1.0
    assert success(marked, never) == 0.0


def test_a_model_that_kept_everything_needs_no_relearning_and_one_that_never_learns_reaches_the_cap(
    problem: Problem, trainings: dict[str, Training], trainer: Trainer
) -> None:
    served = trainings["run"].served
    known = loss_on_leaver(problem, served)
    found = rounds_to_relearn(problem, [served, served], known=known, seed=0, trainer=trainer, most=2)
    assert found == [0, 0]
    assert rounds_to_relearn(problem, [served], known=0.0, seed=0, trainer=trainer, most=1) == [2]


def test_a_step_along_a_records_gradient_gives_that_record_away(problem: Problem) -> None:
    """One record is forgotten by a step up its loss: what comes back is more like the leaver's than like others."""
    before = problem.subject.initial.vector
    own = problem.subject.own[:1]
    network = problem.network(before)
    inputs, labels = problem.batch(own)
    parameters = list(network.parameters())
    gradients = torch.autograd.grad(loss_of(network(inputs), labels), parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.add_(gradient, alpha=0.1)
    alone = replace(problem, subject=replace(problem.subject, own=own))
    tried = Inversion(records=1, restarts=1, steps=200)
    with one_thread():
        found = reconstruction(alone, before, problem.vector_of(network), tried, seed=1)
    assert found is not None
    assert found > 0.2
    assert reconstruction(alone, before, before, tried, seed=1) == 0.0
