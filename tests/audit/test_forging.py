"""Forgeries keep to the proof's bound, are made by survivors, and are told from what is none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.audit import forging as forging_module
from disavow.audit.forging import ForgedRound, compare_histories, forge, recompute
from disavow.audit.game import Floats, Scores
from disavow.audit.rehearsal import rehearse
from disavow.domain import Evaluation, Policy
from disavow.engines import build as build_engine
from disavow.erasure.erase import answer_requests
from disavow.erasure.mechanisms.federaser import FedEraser
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.erasure.reporting import Reporting
from disavow.ledger import Ledger
from disavow.rounds.aggregate import aggregate
from disavow.rounds.round import run_round
from disavow.rounds.vectors import Model, Updates
from tests.audit.making import keys_of, make_run, subject_in
from tests.rounds.builders import MOMENT, OPTIONS, POLICY, PROPERTY, gaussian, layout_of_size, ledger_of

SIZE = 400
CLIENTS = tuple("abcdefgh")


@dataclass(frozen=True)
class Homes:
    """An engine whose clients have updates of their own in each round; `factor` makes liars of them."""

    seed: int = 0
    factor: float = 1.0

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        rows = gaussian(len(CLIENTS), model.layout.size, seed=100 * self.seed + round_number)
        chosen = rows[torch.tensor([CLIENTS.index(client) for client in clients])] * self.factor
        return Updates(tuple(clients), (5,) * len(clients), chosen + 0.1 * model.vector)

    def evaluate(self, model: Model) -> Evaluation:
        return Evaluation(0.5, 1.0)

    def close(self) -> None:
        """See `Engine`."""


@dataclass(frozen=True)
class Axes(Homes):
    """Each client's update is one coordinate: whoever was a representative can be read off the step."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        rows = torch.zeros(len(clients), model.layout.size)
        for row, client in enumerate(clients):
            rows[row, CLIENTS.index(client)] = self.factor
        return Updates(tuple(clients), (5,) * len(clients), rows)


@pytest.fixture
def forged(monkeypatch: pytest.MonkeyPatch) -> list[Model]:
    """Every model that is forged, in order."""
    made: list[Model] = []

    def noted(*args: Any, **more: Any) -> Model:
        made.append(aggregate(*args, **more))
        return made[-1]

    monkeypatch.setattr(forging_module, "aggregate", noted)
    return made


NOISE: dict[str, dict[str, Any]] = {
    "none": {"noise": "none", "sigma": 0.0},
    "gaussian": {"noise": "paper", "distribution": "gaussian", "sigma": 0.3},
    "laplace": {"noise": "paper", "distribution": "laplace", "sigma": 0.3},
    "calibrated": {"noise": "calibrated", "clip": 1.0, "tau": 0.05},
    "sensitivity": {"noise": "sensitivity", "sigma": 0.5},
}


def trained(directory: Path, policy: Policy, engine: Homes, rounds: int = 3) -> Ledger:
    ledger = ledger_of(directory, CLIENTS, layout_of_size(SIZE), policy)
    for _ in range(rounds):
        run_round(ledger, engine, OPTIONS)
    return ledger


def left(ledger: Ledger, engine: Homes, *clients: str) -> list[str]:
    ledger.place_requests(clients, at=MOMENT)
    openings = ledger.directory.with_name("openings")
    return [
        str(each.verdict)
        for each in answer_requests(ledger, engine, OPTIONS, Retrain(), Reporting(openings=openings))
    ]


# -- the bound ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("examples", [20, pytest.param(100, marks=pytest.mark.torture)])
@pytest.mark.parametrize("noise", NOISE)
def test_every_forgery_keeps_to_the_bound(tmp_path: Path, noise: str, examples: int) -> None:
    """Σ p·spread by representatives; and where there is noise, what two draws of it lie apart at most."""
    policy = replace(POLICY, k=2, **NOISE[noise])
    with trained(tmp_path / "run", policy, Homes()) as ledger:

        @settings(PROPERTY, max_examples=examples)
        @given(seed=st.integers(0, 2**32 - 1))
        def holds(seed: int) -> None:
            forgery = forge(ledger, Homes().train, forgings=2, seed=seed)
            assert [each.number for each in forgery.rounds] == [1, 2, 3]
            for each in forgery.rounds:
                bound = sum(cluster.weight * cluster.spread for cluster in ledger.round(each.number).clusters)
                assert each.displacement == pytest.approx(bound)
                assert (each.noise == 0) == (noise == "none")
                assert each.distance <= each.displacement + each.noise + 1e-5
                assert each.within
                assert each.identical == each.recomputed == len(CLIENTS)

        holds()


def test_the_allowance_for_noise_is_what_noise_needs_and_hardly_more(tmp_path: Path) -> None:
    """All clients nearly alike: representatives move next to nothing, and the noise, drawn twice, is left."""
    policy = replace(POLICY, k=2, **NOISE["calibrated"])
    with trained(tmp_path / "run", policy, Axes(factor=1e-3), rounds=1) as ledger:
        [each] = forge(ledger, Axes(factor=1e-3).train, forgings=40, seed=3).rounds
    typical = 0.05 * (2 * SIZE) ** 0.5
    assert each.displacement < 0.01 * typical
    assert 0.95 * typical < each.distance < each.noise < 1.2 * typical


def test_rebuilt_rounds_cannot_be_forged_and_are_counted(tmp_path: Path) -> None:
    """Nobody was drawn in them."""
    engine, options = Homes(), replace(OPTIONS, keep_every=1)
    with ledger_of(
        tmp_path / "run", CLIENTS, layout_of_size(SIZE), replace(POLICY, k=2, x=2, mechanism="federaser")
    ) as ledger:
        for _ in range(3):
            run_round(ledger, engine, options)
        ledger.place_requests([ledger.membership(1)[0][0]], at=MOMENT)
        [answer] = answer_requests(ledger, engine, options, FedEraser(), Reporting(openings=tmp_path / "openings"))
        assert answer.approximate
        run_round(ledger, engine, options)
        forgery = forge(ledger, Homes().train, forgings=2, seed=1)
    assert [each.number for each in forgery.rounds] == [4]
    assert forgery.left_out == 3


def test_forgeries_differ_from_the_round_and_from_each_other(tmp_path: Path, forged: list[Model]) -> None:
    with trained(tmp_path / "run", replace(POLICY, k=2, **NOISE["none"]), Homes()) as ledger:
        made = forge(ledger, Homes().train, forgings=8, seed=1)
        again = forge(ledger, Homes().train, forgings=8, seed=1)
        other = forge(ledger, Homes().train, forgings=8, seed=2)
    assert len({model.vector.numpy().tobytes() for model in forged[16:24]}) > 4  # the last round's, the first time
    assert made.rounds == again.rounds
    assert made.rounds != other.rounds
    assert all(each.distance > 0.1 * each.displacement for each in made.rounds)


# -- updates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sequential", "auto"])
def test_updates_computed_again_are_those_that_were_recorded(tmp_path: Path, engine: str) -> None:
    directory = make_run(tmp_path / "run", {"engine": {"name": engine}, "rounds": 2})
    subject = subject_in(directory)
    with (
        Ledger.open(directory) as ledger,
        closing(build_engine(subject.workload(), subject.settings.engine)) as made,
    ):
        forgery = forge(ledger, recompute(made), forgings=3, seed=1)
    assert [(each.recomputed, each.identical, each.within) for each in forgery.rounds] == [(6, 6, True)] * 2


def test_updates_that_are_not_the_recorded_ones_are_noticed(tmp_path: Path) -> None:
    with trained(tmp_path / "run", replace(POLICY, k=2, **NOISE["none"]), Homes()) as ledger:
        forgery = forge(ledger, Homes(factor=5.0).train, forgings=3, seed=1)
        one = forge(ledger, OneLiar().train, forgings=3, seed=1)
    assert [(each.identical, each.within) for each in forgery.rounds] == [(0, False)] * 3
    assert [each.identical for each in one.rounds] == [len(CLIENTS) - 1] * 3


@dataclass(frozen=True)
class OneLiar(Homes):
    """Everybody tells the truth but one, in the last bit."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        updates = super().train(model, clients, round_number)
        updates.vectors[0, 0] = torch.nextafter(updates.vectors[0, 0], torch.tensor(9.0))
        return updates


def test_real_updates_scaled_are_outside_the_bound(broken: Path) -> None:
    subject = subject_in(broken)
    with (
        Ledger.open(broken) as ledger,
        closing(build_engine(subject.workload(), subject.settings.engine)) as engine,
    ):

        def scaled(model: Model, clients: Sequence[str], number: int) -> Updates:
            updates = engine.train(model, clients, number)
            return replace(updates, vectors=updates.vectors * 5)

        forgery = forge(ledger, scaled, forgings=3, seed=1)
    assert [(each.identical, each.within) for each in forgery.rounds] == [(0, False)] * 3


# -- survivors ---------------------------------------------------------------------------------------------------


def test_who_has_left_is_never_a_representative_of_a_forgery(tmp_path: Path, forged: list[Model]) -> None:
    policy = replace(POLICY, k=4, x=2, **NOISE["none"])
    with trained(tmp_path / "run", policy, Axes()) as ledger:
        assert left(ledger, Axes(), "c") == ["deniable"]
        calls: list[Sequence[str]] = []

        def noted(model: Model, clients: Sequence[str], number: int) -> Updates:
            calls.append(clients)
            return Axes().train(model, clients, number)

        forgery = forge(ledger, noted, forgings=60, seed=1)
        before = torch.from_numpy(ledger.model_before(3))
    assert calls == [tuple(client for client in CLIENTS if client != "c")] * 3
    steps = torch.stack([model.vector - before for model in forged[-60:]])
    representatives = {client for i, client in enumerate(CLIENTS) if bool((steps[:, i] > 0.1).any())}
    assert representatives == set(CLIENTS) - {"c"}  # and every survivor is one, sooner or later
    assert all(each.recomputed == each.identical == 7 for each in forgery.rounds)


def test_rounds_whose_models_were_thinned_cannot_be_forged(tmp_path: Path) -> None:
    with trained(tmp_path / "run", replace(POLICY, **NOISE["none"]), Homes()) as ledger:
        ledger.thin(1)
        forgery = forge(ledger, Homes().train, forgings=2, seed=1)
    assert (forgery.thinned, forgery.left_out, forgery.rounds) == (3, 0, ())


def test_a_rehearsed_rollback_can_be_forged(broken: Path, tmp_path: Path) -> None:
    subject = subject_in(broken)
    with rehearse(subject, tmp_path, keys=keys_of(broken), mechanism=Retrain()) as rehearsal:
        forgery = forge(rehearsal.ledger, recompute(rehearsal.engine), forgings=2, seed=1)
    assert [(each.recomputed, each.identical, each.within) for each in forgery.rounds] == [(5, 5, True)] * 3


# -- whole histories ---------------------------------------------------------------------------------------------


def scored(values: Floats) -> Scores:
    return Scores(values[: len(values) // 2], values[len(values) // 2 :])


def answers(served: Floats, retrained: Floats) -> dict[str, tuple[Scores, list[Scores]]]:
    return {"loss": (scored(served), [scored(row) for row in retrained])}


def test_by_hand_how_far_two_histories_lie_apart_and_how_often_they_answer_alike() -> None:
    retrained = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]], dtype=np.float32)
    said = np.array([[4.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])
    found = compare_histories(np.zeros(2, np.float32), retrained, answers(said[0], said))
    assert found.retrainings == 3
    assert found.distance == pytest.approx((0 + 5 + 10) / 3)
    assert found.among == pytest.approx((5 + 10 + 5) / 3)
    [alike] = found.alike
    assert (alike.attacker, alike.points) == ("loss", 4)
    assert alike.served == pytest.approx(2 / 3)  # with the first two on all points, with the third on none
    assert alike.retrained == pytest.approx(1 / 3)  # two of three pairs have nothing in common


def test_an_exact_retraining_is_as_near_and_as_alike_as_two_others_and_another_model_is_not() -> None:
    rng = np.random.default_rng(1)
    means, records = rng.normal(size=50), rng.normal(size=200)
    models = (means + 0.3 * rng.normal(size=(21, 50))).astype(np.float32)
    said = records + 0.3 * rng.normal(size=(21, 200))
    exact = compare_histories(models[0], models[1:], answers(said[0], said[1:]))
    assert exact.distance == pytest.approx(exact.among, rel=0.1)
    assert exact.alike[0].low <= exact.alike[0].served <= exact.alike[0].high
    assert exact.alike[0].retrained > 0.8
    stranger = compare_histories(-models[0], models[1:], answers(rng.normal(size=200), said[1:]))
    assert stranger.distance > 2 * stranger.among
    assert abs(stranger.alike[0].served - 0.5) < 0.1 < stranger.alike[0].low - stranger.alike[0].served


@pytest.mark.parametrize("shift", [-1e3, 0.0, 1e3])
def test_however_sure_an_attacker_is_it_calls_half_of_the_records_present(shift: float) -> None:
    """Two models that have nothing in common agree on half, not on all because all are called absent."""
    said = np.random.default_rng(2).normal(size=(9, 400)) + shift
    [alike] = compare_histories(
        np.zeros(1, np.float32), np.zeros((8, 1), np.float32), answers(said[0], said[1:])
    ).alike
    assert abs(alike.served - 0.5) < 0.05
    assert abs(alike.retrained - 0.5) < 0.05


def test_a_distance_on_the_bound_is_within_it_and_one_beyond_is_not() -> None:
    def forged(distance: float) -> ForgedRound:
        return ForgedRound(1, 6, 6, distance, displacement=1.0, noise=0.5)

    assert forged(1.5).within
    assert forged(1.5014).within
    assert not forged(1.51).within
    assert not ForgedRound(1, 6, 6, 1e-3, 0.0, 0.0).within
