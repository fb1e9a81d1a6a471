"""Every method keeps to the contract; a method that does what it did not declare is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from disavow.compare.method import METHODS, Federation, Forgotten, Method
from disavow.compare.methods.planted import Keep, Reset
from disavow.compare.problem import Problem
from disavow.compare.training import Training
from disavow.engines.trainer import Trainer
from disavow.errors import StrategyError
from tests.compare.contract import Given, MethodContract


@pytest.fixture
def given(problem: Problem, trainings: dict[str, Training], trainer: Trainer, tmp_path: Path) -> Given:
    """The shared run, to be tried on."""
    return Given(problem, trainings, trainer, tmp_path)


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_keeps_to_the_contract(name: str, given: Given) -> None:
    MethodContract().check(METHODS[name], given)


@pytest.mark.parametrize("method", [Keep(), Reset()])
def test_a_planted_failure_keeps_to_it_too_and_is_not_listed(method: Method, given: Given) -> None:
    MethodContract().check(method, given)
    assert method.name not in METHODS


class Undeclared(Method):
    """Declares nothing."""

    name = "undeclared"
    paper = "none"
    claim = "none"

    def forget(self, federation: Federation) -> Forgotten:
        raise NotImplementedError


class TakesModels(Undeclared):
    def forget(self, federation: Federation) -> Forgotten:
        return Forgotten(federation.training.rounds[1].before)


class TakesUpdates(Undeclared):
    stores = "models"

    def forget(self, federation: Federation) -> Forgotten:
        assert federation.training.rounds[1].before is not None
        update = federation.training.rounds[0].update_of(federation.leaver)
        assert update is not None
        return Forgotten(update)


class AsksTheLeaver(Undeclared):
    def forget(self, federation: Federation) -> Forgotten:
        return Forgotten(federation.train_leaver(federation.training.served, 1).vectors[0])


class TakesTheLeaversData(Undeclared):
    def forget(self, federation: Federation) -> Forgotten:
        next(iter(federation.batches(federation.leaver, 1)))
        return Forgotten(federation.training.served)


class TrainsTheLeaver(Undeclared):
    def forget(self, federation: Federation) -> Forgotten:
        return Forgotten(federation.train(federation.training.served, [federation.leaver], 1).vectors[0])


class TakesPublicData(Undeclared):
    def forget(self, federation: Federation) -> Forgotten:
        next(iter(federation.public_batches(1)))
        return Forgotten(federation.training.served)


class ComputesLikelihoods(Undeclared):
    def forget(self, federation: Federation) -> Forgotten:
        batch = next(iter(federation.batches(federation.remaining[0], 1)))
        federation.log_likelihoods(federation.network(federation.training.served), batch)
        return Forgotten(federation.training.served)


@pytest.mark.parametrize(
    ("method", "declaration"),
    [
        (TakesModels, "models"),
        (TakesUpdates, "updates"),
        (AsksTheLeaver, "leaver_helps"),
        (TakesTheLeaversData, "leaver_helps"),
        (TrainsTheLeaver, "does not remain"),
        (TakesPublicData, "needs_public_data"),
        (ComputesLikelihoods, "needs_likelihood"),
    ],
)
def test_what_a_method_did_not_declare_is_refused(method: type[Undeclared], declaration: str, given: Given) -> None:
    with pytest.raises(StrategyError, match=declaration):
        given.forget(method())


@dataclass
class CountsByHand(Undeclared):
    """Two clients train two epochs, one gives its batches for three, and one whole round is run."""

    name = "by-hand"

    def forget(self, federation: Federation) -> Forgotten:
        served = federation.training.served
        federation.train(served, federation.remaining[:2], 4)
        for _ in federation.batches(federation.remaining[0], 4, epochs=3):
            pass
        [model] = federation.run_rounds(served, 4, 4)
        return Forgotten(model)


def test_the_meter_counts_epochs_and_bytes(given: Given) -> None:
    _, meter = given.forget(CountsByHand())
    assert meter.client_epochs == 2 * 2 + 3 + 7 * 2
    assert meter.bytes_sent == 2 * given.problem.model_bytes * (2 + 1 + 7)


def test_a_retraining_from_scratch_costs_every_round_of_those_who_remain(given: Given) -> None:
    _, meter = given.forget(METHODS["retrain-from-scratch"])
    assert meter.client_epochs == 3 * 7 * 2


def test_what_is_withheld_of_a_training_is_known_to_the_server(given: Given) -> None:
    """Who took part and the first model, whatever was stored."""

    class Looks(Undeclared):
        def forget(self, federation: Federation) -> Forgotten:
            training = federation.training
            assert training.first_round_of(federation.leaver) == 1
            assert training.rounds[2].samples[0] > 0
            return Forgotten(training.initial)

    forgotten, meter = given.forget(Looks())
    assert torch.equal(forgotten.model, given.problem.subject.initial.vector)
    assert (meter.client_epochs, meter.bytes_sent) == (0, 0)
