"""Who takes part in a round: as many as are wanted, and with fresh draws nobody can tell without the key."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.cli.status import status
from disavow.data import client_ids
from disavow.errors import BudgetSpent, ConfigError, KeyringMissing, UnknownClient
from disavow.ledger import Ledger
from disavow.privacy.budget import Budget
from disavow.rounds.options import RoundOptions, foreseen, room_for
from disavow.rounds.participation import Rank, SecretOrder, participants, participation_of, rank_by_seed
from disavow.rounds.randomness import Secrets
from disavow.rounds.training import train
from tests.erasure.mechanisms.contract import leave, reopen_toy, start_toy, toy_settings, trained_toy
from tests.refusals import refuses
from tests.rounds.builders import PROPERTY, order_of

KEY = bytes(range(32))
fractions = st.floats(0.01, 1.0)
populations = st.integers(1, 60).map(client_ids)


def rank_by_key(secret: bytes) -> Rank:
    return order_of(secret).rank


ranks = st.one_of(st.integers(0, 9).map(rank_by_seed), st.binary(min_size=32, max_size=32).map(rank_by_key))


@PROPERTY
@given(populations, fractions, st.integers(1, 20), ranks)
def test_a_fraction_of_the_clients_takes_part_sorted_by_id(
    clients: tuple[str, ...], fraction: float, number: int, rank: Rank
) -> None:
    chosen = participants(clients, fraction=fraction, rank=rank, round_number=number)
    assert len(chosen) == max(1, round(len(clients) * fraction))
    assert list(chosen) == sorted(set(chosen))
    assert set(chosen) <= set(clients)


@PROPERTY
@given(populations, fractions, st.randoms(use_true_random=False), ranks)
def test_the_order_of_the_clients_does_not_matter(
    clients: tuple[str, ...], fraction: float, random: Random, rank: Rank
) -> None:
    shuffled = random.sample(clients, len(clients))
    assert participants(shuffled, fraction=fraction, rank=rank, round_number=1) == participants(
        clients, fraction=fraction, rank=rank, round_number=1
    )


@PROPERTY
@given(populations.filter(lambda clients: len(clients) > 1), fractions, st.data(), ranks)
def test_when_a_client_leaves_at_most_one_other_enters(
    clients: tuple[str, ...], fraction: float, data: st.DataObject, rank: Rank
) -> None:
    leaver = data.draw(st.sampled_from(clients))
    rest = [client for client in clients if client != leaver]
    before = set(participants(clients, fraction=fraction, rank=rank, round_number=3))
    after = set(participants(rest, fraction=fraction, rank=rank, round_number=3))
    assert len(after - before) <= (1 if leaver in before else 0)
    # one place fewer for fewer clients, never more
    assert len(before - after - {leaver}) <= (0 if leaver in before else 1)


def test_all_take_part_when_the_fraction_is_1_and_nobody_is_ranked() -> None:
    options = RoundOptions(seed=1)
    assert options.participants(client_ids(9), 1) == client_ids(9)


def test_who_takes_part_changes_with_round_and_seed_or_key() -> None:
    def drawn(rank: Rank, number: int) -> tuple[str, ...]:
        return participants(client_ids(30), fraction=0.3, rank=rank, round_number=number)

    ranked = rank_by_seed(1), rank_by_seed(2), rank_by_key(KEY), rank_by_key(bytes(32))
    assert len({drawn(rank, number) for rank in ranked for number in (1, 2)}) == 8
    assert all(drawn(rank, 1) == drawn(rank, 1) for rank in ranked)


@pytest.mark.parametrize("rank", [rank_by_seed(5), rank_by_key(KEY)], ids=["by seed", "by key"])
def test_every_client_takes_part_about_as_often(rank: Rank) -> None:
    counts = Counter(
        client
        for number in range(1, 401)
        for client in participants(client_ids(10), fraction=0.3, rank=rank, round_number=number)
    )
    # 400 draws at 0.3: 120 each, with a standard deviation of 9
    assert set(counts) == set(client_ids(10))
    assert all(count == pytest.approx(120, abs=45) for count in counts.values())


# -- runs ---------------------------------------------------------------------------------------------------------

SOME = toy_settings(clients=12, draws="fresh", rounds=6, training={"fraction": 0.5})


def schedule(ledger: Ledger) -> dict[str, list[int]]:
    """The rounds in which each client took part, as its proof would list them."""
    return {client: sorted(ledger.rounds_with(client)) for client in ledger.clients()}


def schedule_by(rank: Rank, rounds: int = 6, clients: int = 12, fraction: float = 0.5) -> dict[str, list[int]]:
    """The rounds in which each client would take part if clients were ranked like this."""
    chosen = {
        number: participants(client_ids(clients), fraction=fraction, rank=rank, round_number=number)
        for number in range(1, rounds + 1)
    }
    return {client: [n for n in chosen if client in chosen[n]] for client in client_ids(clients)}


def test_schedules_tell_clients_apart_so_that_they_must_be_secret() -> None:
    found = schedule_by(rank_by_seed(1), rounds=20, clients=40, fraction=0.3)
    assert len(set(map(tuple, found.values()))) == 40


def test_with_fresh_draws_the_public_seed_predicts_nobodys_schedule(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", SOME) as run:
        run.train()
        found, due = schedule(run.ledger), schedule_by(SecretOrder.of(run.ledger).rank)
    guessed = schedule_by(rank_by_seed(SOME.seed))
    assert found == due
    right = sum(found[client] == guessed[client] for client in found)
    # each of 12 clients has one of 64 schedules; by chance 3 or more are guessed right in one run of a thousand
    assert right < 3


def test_with_seeded_draws_the_seed_tells_who_takes_part(tmp_path: Path) -> None:
    settings = SOME.model_copy(update={"draws": "seeded"})
    with trained_toy(tmp_path / "run", settings) as run:
        assert schedule(run.ledger) == schedule_by(rank_by_seed(settings.seed))
        assert run.options.participation is None


def test_runs_of_one_seed_differ_by_key_and_by_run(tmp_path: Path) -> None:
    found = []
    for name, keys in (("one", "keys"), ("two", "keys"), ("three", "others")):
        with start_toy(tmp_path / name, SOME, keys=tmp_path / keys) as run:
            run.train()
            found.append(schedule(run.ledger))
    assert found[0] != found[1] != found[2] != found[0]


def test_resuming_and_retraining_keep_the_participants(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", SOME.model_copy(update={"rounds": 3})) as run:
        run.train()
    with reopen_toy(tmp_path / "run") as run:
        options = run.options
        train(run.ledger, run.engine, options, rounds=6)
        before = schedule(run.ledger)
        assert before == {
            c: [n for n in range(1, 7) if c in options.participants(client_ids(12), n)] for c in client_ids(12)
        }
        # two of one cluster of three: its round is broken, and all from it on are retrained
        pair = sorted(run.ledger.membership(1)[0])[:2]
        answered = leave(run, *pair)
        assert all(request.cost is not None and request.cost.rounds == 6 for request in answered)
        rest = run.ledger.clients()
        assert schedule(run.ledger) == {
            c: [n for n in range(1, 7) if c in options.participants(rest, n)] for c in rest
        }


def test_without_the_keyring_nobody_says_who_takes_part_and_none_is_made(tmp_path: Path) -> None:
    with start_toy(tmp_path / "run", SOME) as run:
        run.train()
        found = schedule(run.ledger)
    with (
        Ledger.open(tmp_path / "run", keys=tmp_path / "empty") as ledger,
        refuses(KeyringMissing, "DISAVOW_KEYS"),
    ):
        participation_of(SOME, ledger)
    with refuses(KeyringMissing, "DISAVOW_KEYS"):
        Ledger.open(tmp_path / "run", keys=tmp_path / "empty", write=True)
    assert not (tmp_path / "empty").exists()
    with Ledger.open(tmp_path / "run") as ledger:
        order = participation_of(SOME, ledger)
        assert order is not None
        assert schedule_by(order.rank) == found


def test_no_key_is_needed_where_everybody_takes_part(tmp_path: Path) -> None:
    with trained_toy(tmp_path / "run", toy_settings(draws="fresh")) as run:
        assert run.options.participation is None


def test_status_shows_a_run_whose_key_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = {"mode": "calibrated", "clip": 1.0, "tau": 1.0}
    settings = toy_settings(
        clients=12, draws="fresh", training={"fraction": 0.5}, noise=noise, rounds=4, privacy={"epsilon": 50.0},
        clustering={"k": 3, "method": "fixed", "sticky": False},
    )  # fmt: skip
    with start_toy(tmp_path / "run", settings) as run:
        train(run.ledger, run.engine, run.options, rounds=1)
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "empty"))
    status(tmp_path / "run", as_json=False)
    assert "1 of 4" in capsys.readouterr().out
    assert not (tmp_path / "empty").exists()


def test_a_budget_is_foreseen_with_the_participants_that_the_key_chooses(tmp_path: Path) -> None:
    noise = {"mode": "calibrated", "clip": 1.0, "tau": 1.0}
    clustering = {"k": 3, "method": "fixed", "sticky": False}
    # the toy's clients hold unequal data, so that who takes part decides what a round costs
    settings = toy_settings(
        clients=12, draws="fresh", training={"fraction": 0.5}, noise=noise, clustering=clustering, rounds=40
    )
    with start_toy(tmp_path / "run", settings) as run:
        everybody = replace(run.options, fraction=1.0)
        train(run.ledger, run.engine, everybody, rounds=1)
        options = replace(run.options, budget=Budget(4.0, 1e-5))
        room = room_for(run.ledger, options, 2, 30)
        anchors = run.ledger.anchors()
        assert anchors is not None
        with pytest.raises(BudgetSpent):
            train(run.ledger, run.engine, options, rounds=31)
        assert run.ledger.last_round - 1 == room.rounds > 1
        for event in run.ledger.events()[1:]:
            assert event == foreseen(run.ledger.policy, event.number, options.clusters(anchors, event.number))


def test_options_without_a_key_refuses_rather_than_fall_back_to_the_seed() -> None:
    with refuses(ConfigError, "participation"):
        RoundOptions(seed=1, fraction=0.5).participants(client_ids(9), 1)
    assert RoundOptions(seed=1, fraction=0.5, secrets=Secrets(1)).participants(client_ids(9), 1)


def test_the_key_is_not_shown() -> None:
    assert repr(KEY) not in repr(RoundOptions(seed=1, participation=order_of(KEY)))


def test_once_a_client_is_forgotten_its_schedule_cannot_be_worked_out_from_run_and_keyring(tmp_path: Path) -> None:
    """Its proof lists its rounds; the keyring's secret, which stays, must not say whose they are."""
    with start_toy(tmp_path / "run", SOME) as run:
        run.train()
        leave(run, "client-03")
        order = SecretOrder.of(run.ledger)
        assert order.rank(1, "client-04")
        with refuses(UnknownClient, "client-03"):
            order.rank(1, "client-03")
