from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from disavow.data import client_ids
from disavow.domain import Cluster, Evaluation, Member, Policy, Round, Slot
from disavow.errors import RoundRefused
from disavow.ledger import Ledger
from disavow.rounds.local_training import Engine
from disavow.rounds.options import RoundOptions
from disavow.rounds.randomness import Secrets, Stream, derive
from disavow.rounds.round import close_round, run_round
from disavow.rounds.vectors import Model, Updates
from tests.ledger.making import by_id
from tests.refusals import refuses
from tests.rounds.builders import (
    FEW,
    FRESH,
    MOMENT,
    OPTIONS,
    POLICY,
    gaussian,
    layout_of_size,
    ledger_of,
    opened,
    permuted,
    updates_of,
)
from tests.selection import some_of

SIZE = 5
GOOD = updates_of(gaussian(8, SIZE), samples=[3, 1, 4, 1, 5, 9, 2, 6])


def new_ledger(directory: Path, policy: Policy = POLICY, updates: Updates = GOOD) -> Ledger:
    return ledger_of(directory, updates.clients, layout_of_size(updates.vectors.shape[1]), policy)


def together(membership: tuple[tuple[str, ...], ...]) -> set[frozenset[str]]:
    return {frozenset(group) for group in membership}


def state_of(ledger: Ledger) -> tuple[object, ...]:
    """Everything about a run that a refused round must leave as it is."""
    files = {path: path.read_bytes() for path in (ledger.directory / "models").iterdir()}
    return ledger.next_round(), ledger.summaries(), ledger.clients(), files


# -- order of arrival ----------------------------------------------------------------------------------------


@FEW
@given(st.randoms(use_true_random=False), st.integers(6, 20), st.booleans())
@pytest.mark.parametrize(
    ("method", "sticky", "metric"),
    some_of(
        [
            (method, sticky, metric)
            for method, sticky in [
                ("mdav", True),
                ("mdav", False),
                ("constrained-kmeans", True),
                ("constrained-kmeans", False),
                ("fixed", False),
            ]
            for metric in ["l2", "cosine", "published"]
        ],
        [
            ("mdav", True, "cosine"),
            ("mdav", False, "published"),
            ("constrained-kmeans", True, "l2"),
            ("constrained-kmeans", False, "cosine"),
            ("fixed", False, "l2"),
        ],
    ),
)
def test_the_order_of_arrival_does_not_matter(
    method: str, sticky: bool, metric: str, random: Random, count: int, alike: bool
) -> None:
    policy = replace(POLICY, clustering=method, sticky=sticky, metric=metric, sigma=0.5)
    rows = torch.ones(count, 3) if alike else gaussian(count, 3, seed=count)
    samples = [1 + i % 4 for i in range(count)]
    first = updates_of(rows, samples)
    # somebody stays away in the second round and somebody new has come, so that sticky has work to do
    second = updates_of(rows[1:] * 1.5, samples[1:], [*first.clients[2:], "newcomer"])

    def run(folder: str, arrive: Callable[[Updates], Updates]) -> list[tuple[str, set[frozenset[str]]]]:
        everyone = [*first.clients, "newcomer"]
        with ledger_of(Path(folder) / "run", everyone, layout_of_size(3), policy) as ledger:
            outcome = []
            for updates in (first, second):
                recorded = close_round(ledger, opened(ledger), arrive(updates), OPTIONS)
                outcome.append((recorded.after, together(ledger.membership(recorded.number))))
            return outcome

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        in_order = run(one, lambda updates: updates)
        assert (
            run(other, lambda updates: permuted(updates, random.sample(range(len(updates)), len(updates))))
            == in_order
        )


# -- what is refused -----------------------------------------------------------------------------------------


def with_value(value: float) -> Updates:
    rows = GOOD.vectors.clone()
    rows[3, 1] = value
    return replace(GOOD, vectors=rows)


REFUSED = {
    "NaN": (with_value(math.nan), "client-04"),
    "infinity": (with_value(-math.inf), "client-04"),
    "too long": (updates_of(gaussian(8, SIZE + 1)), "6 numbers, the model has 5"),
    "float64": (replace(GOOD, vectors=GOOD.vectors.double()), "torch.float64"),
    "twice": (replace(GOOD, clients=(*GOOD.clients[:7], "client-01")), "client-01"),
    "too few": (updates_of(gaussian(2, SIZE)), "k = 3"),
    "no samples": (replace(GOOD, samples=(0,) * 8), "at least one sample"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_round_leaves_the_run_as_it_was_and_usable(name: str, tmp_path: Path) -> None:
    updates, named = REFUSED[name]
    with new_ledger(tmp_path / "run") as ledger, new_ledger(tmp_path / "untroubled") as untroubled:
        close_round(ledger, opened(ledger), GOOD, OPTIONS)
        close_round(untroubled, opened(untroubled), GOOD, OPTIONS)
        before = state_of(ledger)
        with refuses(RoundRefused, "round 2", named):
            close_round(ledger, opened(ledger), updates, OPTIONS)
        assert state_of(ledger) == before
        # a refusal is no attempt: the round that follows is the one that would have been
        recorded = close_round(ledger, opened(ledger), GOOD, OPTIONS)
        assert (recorded.number, recorded.attempt) == (2, 1)
        assert recorded.after == close_round(untroubled, opened(untroubled), GOOD, OPTIONS).after


@pytest.mark.parametrize("policy", [POLICY, replace(POLICY, noise="none")])
def test_a_model_that_would_not_be_finite_is_refused(policy: Policy, tmp_path: Path) -> None:
    # each update is finite, the sum of model and update is not
    largest = torch.full((8, SIZE), 3e38)
    with ledger_of(tmp_path / "run", GOOD.clients, layout_of_size(SIZE), policy, largest[0]) as ledger:
        before = state_of(ledger)
        with pytest.raises(RoundRefused):
            close_round(ledger, opened(ledger), updates_of(largest), OPTIONS)
        assert state_of(ledger) == before


def test_an_update_of_a_client_that_the_run_does_not_have_is_refused(tmp_path: Path) -> None:
    stranger = replace(GOOD, clients=(*GOOD.clients[:7], "stranger"))
    with new_ledger(tmp_path / "run") as ledger:
        before = state_of(ledger)
        with refuses(RoundRefused, "round 1", "stranger"):
            close_round(ledger, opened(ledger), stranger, OPTIONS)
        assert state_of(ledger) == before


# -- what is recorded ----------------------------------------------------------------------------------------


def test_a_round_is_in_the_ledger_when_it_is_returned(tmp_path: Path) -> None:
    with new_ledger(tmp_path / "run") as ledger:
        opening = opened(ledger)
        recorded = close_round(ledger, opening, GOOD, OPTIONS)
        assert by_id(ledger.round(1)) == by_id(recorded)
        assert (recorded.before, recorded.recorded_at) == (opening.digest, MOMENT)
        assert sum(cluster.weight for cluster in recorded.clusters) == pytest.approx(1, abs=1e-12)
        assert {client for cluster in recorded.clusters for client in cluster.clients} == set(GOOD.clients)


def test_without_noise_the_model_moves_by_the_weighted_sum_of_one_member_of_each_cluster(tmp_path: Path) -> None:
    with new_ledger(tmp_path / "run", replace(POLICY, noise="none")) as ledger:
        recorded = close_round(ledger, opened(ledger), GOOD, OPTIONS)
        after = torch.from_numpy(ledger.model_after(1)).double()
    row_of = dict(zip(GOOD.clients, GOOD.vectors.double(), strict=True))
    possible = [torch.zeros(SIZE, dtype=torch.float64)]
    for cluster in recorded.clusters:
        possible = [step + cluster.weight * row_of[client] for step in possible for client in cluster.clients]
    assert sum(bool((step - after).abs().max() < 1e-6) for step in possible) == 1


def test_sticky_clusters_last_over_rounds(tmp_path: Path) -> None:
    with new_ledger(tmp_path / "run") as ledger:
        for number in range(1, 4):
            updates = replace(GOOD, vectors=gaussian(8, SIZE, seed=number))
            close_round(ledger, opened(ledger), updates, OPTIONS)
        assert together(ledger.membership(1)) == together(ledger.membership(2)) == together(ledger.membership(3))


def test_without_sticky_clusters_follow_the_updates(tmp_path: Path) -> None:
    with new_ledger(tmp_path / "run", replace(POLICY, sticky=False)) as ledger:
        for number in range(1, 4):
            updates = replace(GOOD, vectors=gaussian(8, SIZE, seed=number))
            close_round(ledger, opened(ledger), updates, OPTIONS)
        assert together(ledger.membership(1)) != together(ledger.membership(3))


def test_in_calibrated_mode_spreads_are_those_of_the_clipped_updates(tmp_path: Path) -> None:
    policy = replace(POLICY, noise="calibrated", clip=0.5, tau=0.01)
    with new_ledger(tmp_path / "run", policy) as ledger:
        recorded = close_round(ledger, opened(ledger), replace(GOOD, vectors=GOOD.vectors * 1000), OPTIONS)
    assert 0 < max(cluster.spread for cluster in recorded.clusters) <= 1.0


# -- secrets -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OtherChoice(Secrets):
    """The same noise and slots, other representatives."""

    choice: int = 0

    def stream(self, round_number: int, attempt: int, purpose: str) -> Stream:
        if purpose == "representatives":
            return Stream(derive("choice", self.choice))
        return super().stream(round_number, attempt, purpose)


def test_nothing_recorded_or_returned_depends_on_who_was_drawn_but_the_model(tmp_path: Path) -> None:
    seen: list[Round] = []
    for choice in range(6):
        options = replace(OPTIONS, secrets=OtherChoice(7, choice))
        with new_ledger(tmp_path / str(choice), replace(POLICY, noise="none")) as ledger:
            returned = close_round(ledger, opened(ledger), GOOD, options)
            assert by_id(ledger.round(1)) == by_id(returned)
            seen.append(returned)
    # 3 to 5 members in each of two clusters: that all six agree would be a miracle
    assert len({each.after for each in seen}) > 1
    assert len({replace(each, after="") for each in seen}) == 1


def test_a_round_has_no_place_for_a_representative() -> None:
    assert {field.name for kind in (Round, Cluster, Slot, Member) for field in fields(kind)} == {
        *("number", "attempt", "before", "after", "delta", "clusters", "recorded_at"),
        *("update_norm", "pairs_within"),
        *("weight", "spread", "slots", "capacity"),
        "member",
        *("client", "samples", "update_digest"),
    }


@pytest.mark.parametrize("noise", ["none", "paper", "sensitivity", "calibrated"])
def test_fresh_draws_make_another_model_from_the_same_updates(noise: str, tmp_path: Path) -> None:
    # twenty clusters of three: without noise, two runs draw the same members with probability 3^-20
    updates = updates_of(gaussian(60, SIZE))
    policy = replace(POLICY, noise=noise, clip=1.0, tau=0.1)
    rounds = []
    for name in ("one", "other"):
        with new_ledger(tmp_path / name, policy, updates) as ledger:
            rounds.append(close_round(ledger, opened(ledger), updates, FRESH))
    assert rounds[0].after != rounds[1].after
    # who is with whom is no secret draw
    assert together(tuple(c.clients for c in rounds[0].clusters)) == together(
        tuple(c.clients for c in rounds[1].clusters)
    )


def test_seeded_draws_repeat(tmp_path: Path) -> None:
    rounds = []
    for name in ("one", "other"):
        with new_ledger(tmp_path / name) as ledger:
            rounds.append(close_round(ledger, opened(ledger), GOOD, OPTIONS))
    assert rounds[0] == rounds[1]


# -- the whole round -----------------------------------------------------------------------------------------


@dataclass
class Recorder(Engine):
    """An engine that notes whom it was asked to train, and from which model."""

    calls: list[tuple[tuple[str, ...], int, list[float]]]

    def train(  # type: ignore[override]
        self, model: Model, clients: tuple[str, ...], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        self.calls.append((tuple(clients), round_number, model.vector.tolist()))
        return updates_of(gaussian(len(clients), SIZE, seed=round_number), clients=clients)

    def evaluate(self, model: Model) -> Evaluation:
        return Evaluation(0.5, 1.0)

    def close(self) -> None:
        """See `Engine`."""


def test_a_round_trains_the_participants_from_the_broadcast_model(tmp_path: Path) -> None:
    engine = Recorder([])
    with new_ledger(tmp_path / "run") as ledger:
        for _ in range(2):
            run_round(ledger, engine, replace(OPTIONS, fraction=0.5))
        (first, number, model), (second, next_number, next_model) = engine.calls
        assert (number, next_number) == (1, 2)
        assert len(first) == len(second) == 4
        assert model == [0.0] * SIZE
        assert next_model == ledger.model_after(1).tolist()
        assert {client for group in ledger.membership(1) for client in group} == set(first)


def test_too_small_a_fraction_is_refused_and_nothing_recorded(tmp_path: Path) -> None:
    with new_ledger(tmp_path / "run") as ledger:
        before = state_of(ledger)
        with refuses(RoundRefused, 2, "k = 3"):
            run_round(ledger, Recorder([]), replace(OPTIONS, fraction=0.25))
        assert state_of(ledger) == before


def test_so_many_at_least_take_part_however_small_the_fraction(tmp_path: Path) -> None:
    engine = Recorder([])
    with new_ledger(tmp_path / "run") as ledger:
        run_round(ledger, engine, replace(OPTIONS, fraction=0.25, at_least=5))
        run_round(ledger, engine, replace(OPTIONS, fraction=0.25, at_least=99))
    assert [len(clients) for clients, *_ in engine.calls] == [5, 8]


def test_only_those_who_can_be_reached_take_part(tmp_path: Path) -> None:
    engine, here = Recorder([]), GOOD.clients[2:7]
    with new_ledger(tmp_path / "run") as ledger:
        run_round(ledger, engine, replace(OPTIONS, reachable=lambda: [*here, "a stranger"]))
        with refuses(RoundRefused, 2, "k = 3"):
            run_round(ledger, engine, replace(OPTIONS, reachable=lambda: here[:2]))
    assert [clients for clients, *_ in engine.calls] == [tuple(sorted(here))]


def test_whoever_is_reached_for_the_first_time_takes_part_at_once(tmp_path: Path) -> None:
    engine = Recorder([])
    with new_ledger(tmp_path / "run") as ledger:

        def reachable() -> list[str]:
            ledger.register(["zoe"])
            return [*ledger.clients()]

        run_round(ledger, engine, replace(OPTIONS, reachable=reachable))
    assert "zoe" in engine.calls[0][0]


def test_the_clock_of_the_options_dates_the_round(tmp_path: Path) -> None:
    later = MOMENT.replace(year=2031)
    with new_ledger(tmp_path / "run") as ledger:
        recorded = run_round(ledger, Recorder([]), RoundOptions(seed=1, clock=lambda: later))
    assert recorded.recorded_at == later


def test_client_ids_need_not_look_like_ours(tmp_path: Path) -> None:
    names = ["ä", "hospital/7", "Z", "a b", "10", "9", "\N{SNOWMAN}", client_ids(1)[0]]
    updates = updates_of(gaussian(8, SIZE), clients=names)
    with new_ledger(tmp_path / "run", updates=updates) as ledger:
        close_round(ledger, opened(ledger), updates, OPTIONS)
        assert {client for group in ledger.membership(1) for client in group} == set(names)
