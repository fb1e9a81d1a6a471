"""Fixed clusters in runs: anchored before the first round, whoever leaves, joins or is away after that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from disavow.data import client_ids
from disavow.domain import Anchors, Cluster, Evaluation, Policy, VerdictKind
from disavow.erasure.erase import answer_requests
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.erasure.reporting import Reporting
from disavow.errors import ConfigError, RoundRefused
from disavow.ledger import Ledger, fsck
from disavow.rounds.clustering.fixed import position_by_seed
from disavow.rounds.options import RoundOptions
from disavow.rounds.participation import SecretOrder
from disavow.rounds.randomness import Secrets
from disavow.rounds.round import open_round, run_round
from disavow.rounds.vectors import Model, Updates
from tests.ledger.making import change
from tests.refusals import refuses
from tests.rounds.builders import FRESH, OPTIONS, POLICY, gaussian, layout_of_size, ledger_of, updates_of

KEY = bytes(range(32))
CLIENTS = client_ids(11)
FIXED = replace(POLICY, clustering="fixed", sticky=False, x=1)
DENIABLE = replace(FIXED, delta=1e9)


class Engine:
    """Updates that depend on the client and the round alone; who is in `away` returns none."""

    def __init__(self, away: Sequence[str] = ()) -> None:
        self.away = set(away)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        here = [client for client in clients if client not in self.away]
        rows = [gaussian(1, 3, seed=1000 * round_number + int(client[-2:])) for client in here]
        held = [1 + int(client[-2:]) for client in here]
        return updates_of(torch.cat(rows), held, here)

    def evaluate(self, model: Model) -> Evaluation:
        return Evaluation(0.5, 1.0)

    def close(self) -> None:
        """See `Engine`."""


def book_of(directory: Path, policy: Policy = DENIABLE, clients: Sequence[str] = CLIENTS) -> Ledger:
    return ledger_of(directory / "run", clients, layout_of_size(3), policy)


def leave(
    book: Ledger, clients: Sequence[str], tmp_path: Path, options: RoundOptions = OPTIONS
) -> set[VerdictKind]:
    book.place_requests(sorted(clients), at=OPTIONS.clock())
    answered = answer_requests(book, Engine(), options, Retrain(), Reporting(openings=tmp_path / "openings"))
    return {request.verdict.kind for request in answered if request.verdict is not None}


def anchors_of(book: Ledger) -> Anchors:
    anchors = book.anchors()
    assert anchors is not None
    return anchors


def by_clients(clusters: Sequence[Cluster]) -> dict[tuple[str, ...], tuple[float, int]]:
    return {tuple(sorted(each.clients)): (each.weight, each.capacity) for each in clusters}


def members_of(anchors: Anchors, number: int) -> list[str]:
    return sorted(client for client, place in anchors.assignments.items() if place.cluster == number)


def test_who_leaves_leaves_a_gap_and_nothing_else_moves(tmp_path: Path) -> None:
    with book_of(tmp_path) as book:
        before = by_clients(run_round(book, Engine(), OPTIONS).clusters)
        anchors = anchors_of(book)
        leaver = CLIENTS[4]
        assert leave(book, [leaver], tmp_path) == {VerdictKind.DENIABLE}
        after = by_clients(run_round(book, Engine(), OPTIONS).clusters)
        assert anchors_of(book) == anchors.without([leaver])
        assert {tuple(c for c in group if c != leaver): weights for group, weights in before.items()} == after
        rates = {event.rate for event in book.events()}
    assert len(rates) == 1
    assert not fsck(tmp_path / "run")


def test_a_cluster_that_everybody_left_is_in_no_round_and_keeps_its_weight(tmp_path: Path) -> None:
    with book_of(tmp_path, replace(DENIABLE, delta=None)) as book:
        before = by_clients(run_round(book, Engine(), OPTIONS).clusters)
        anchors = anchors_of(book)
        gone = members_of(anchors, 1)
        # nobody is left who could have been drawn instead: the round is undone, and run again without them
        assert leave(book, gone, tmp_path) == {VerdictKind.ROLLBACK}
        again = book.round(1)
        assert again.attempt == 2
        assert by_clients(again.clusters) == {
            group: weights for group, weights in before.items() if group != tuple(gone)
        }
        assert sum(cluster.weight for cluster in again.clusters) < 1
        assert anchors_of(book).clusters == anchors.clusters
    assert not fsck(tmp_path / "run")


def test_a_newcomer_adds_a_place_and_a_share_to_the_cluster_of_its_hash(tmp_path: Path) -> None:
    with book_of(tmp_path) as book:
        run_round(book, Engine(), OPTIONS)
        anchors = anchors_of(book)
        leave(book, [CLIENTS[0]], tmp_path)
        book.register(["new-50", "new-51"])
        record = run_round(book, Engine(away=["new-51"]), OPTIONS)
        grown = anchors_of(book)
        assert [anchor.until for anchor in grown.clusters] == [anchor.until for anchor in anchors.clusters]
        assert {c: grown.assignments[c] for c in CLIENTS[1:]} == {c: anchors.assignments[c] for c in CLIENTS[1:]}
        assert sum(a.capacity for a in grown.clusters) == len(CLIENTS) + 2
        # who was away has a place, and counts for nothing until its first update
        assert grown.assignments["new-51"].share is None
        assert sum(a.share for a in grown.clusters) == sum(a.share for a in anchors.clusters) + (
            grown.assignments["new-50"].share or 0
        )
        total = sum(anchor.share for anchor in grown.clusters)
        for cluster in record.clusters:
            number = grown.assignments[cluster.clients[0]].cluster
            assert (cluster.capacity, cluster.weight) == (
                grown.clusters[number].capacity,
                grown.clusters[number].share / total,
            )
    assert not fsck(tmp_path / "run")


def test_who_is_away_is_a_gap_in_that_round(tmp_path: Path) -> None:
    with book_of(tmp_path) as book:
        first = by_clients(run_round(book, Engine(), OPTIONS).clusters)
        away = CLIENTS[2]
        second = by_clients(run_round(book, Engine(away=[away]), OPTIONS).clusters)
        third = by_clients(run_round(book, Engine(), OPTIONS).clusters)
    assert second == {tuple(c for c in group if c != away): weights for group, weights in first.items()}
    assert third == first
    assert not fsck(tmp_path / "run")


def test_a_share_is_settled_by_the_first_update_and_a_refused_round_settles_nothing(tmp_path: Path) -> None:
    class Growing(Engine):
        def train(
            self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
        ) -> Updates:
            updates = super().train(model, clients, round_number)
            return replace(updates, samples=tuple(10 * round_number * count for count in updates.samples))

    class Broken(Engine):
        def train(
            self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
        ) -> Updates:
            updates = super().train(model, clients, round_number)
            return replace(updates, vectors=updates.vectors * float("nan"))

    with book_of(tmp_path) as book:
        with pytest.raises(RoundRefused):
            run_round(book, Broken(), OPTIONS)
        assert {place.share for place in anchors_of(book).assignments.values()} == {None}
        first = by_clients(run_round(book, Growing(), OPTIONS).clusters)
        assert by_clients(run_round(book, Growing(), OPTIONS).clusters) == first


def test_anchors_outlive_a_restart_and_are_settled_over_the_whole_roster(tmp_path: Path) -> None:
    options = FRESH  # fresh borders, which cannot be drawn again
    with book_of(tmp_path) as book:
        open_round(book, options)  # and then the process dies
        settled = anchors_of(book)
        assert sorted(settled.assignments) == list(CLIENTS)
    with Ledger.open(tmp_path / "run", write=True) as book:
        run_round(book, Engine(), options)
        anchors = anchors_of(book)
        assert [(a.until, a.capacity) for a in anchors.clusters] == [
            (a.until, a.capacity) for a in settled.clusters
        ]
    with Ledger.open(tmp_path / "run", write=True) as book:
        assert anchors_of(book) == anchors
        run_round(book, Engine(), options)
        assert anchors_of(book) == anchors
    assert not fsck(tmp_path / "run")


def test_of_some_of_the_clients_whole_clusters_take_part_whoever_has_left(tmp_path: Path) -> None:
    options = replace(OPTIONS, fraction=0.5)
    clients = client_ids(20)
    with book_of(tmp_path, clients=clients) as book:
        _, chosen = open_round(book, options)
        anchors = anchors_of(book)
        numbers = [options.clusters(anchors, number).numbers for number in range(1, 9)]
        assert len(set(map(tuple, numbers))) > 3
        assert {len(each) for each in numbers} == {3}
        assert list(chosen) == sorted(c for number in numbers[0] for c in members_of(anchors, number))
        for number in range(1, 5):
            record = run_round(book, Engine(), options)
            due = {tuple(members_of(anchors_of(book), each)) for each in numbers[number - 1]}
            assert set(by_clients(record.clusters)) == due
            assert sum(cluster.weight for cluster in record.clusters) == pytest.approx(1)
        leave(book, chosen[:2], tmp_path, options)
        for number in range(book.last_round + 1, 9):
            record = run_round(book, Engine(), options)
            due = {tuple(members_of(anchors_of(book), each)) for each in numbers[number - 1]}
            assert set(by_clients(record.clusters)) == {group for group in due if group}
    assert not fsck(tmp_path / "run")


def test_with_fewer_than_k_clients_left_no_round_is_opened(tmp_path: Path) -> None:
    with book_of(tmp_path, replace(DENIABLE, x=1)) as book:
        run_round(book, Engine(), OPTIONS)
        leave(book, CLIENTS[:9], tmp_path)
        with pytest.raises(RoundRefused):
            open_round(book, OPTIONS)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE anchors SET capacity = capacity - 1 WHERE number = 0",
        "UPDATE anchors SET share = '1' WHERE number = 1",
        "UPDATE anchors SET until = NULL WHERE number = 0",
        "UPDATE anchors SET capacity = capacity + 1 WHERE number = 2",
        "UPDATE clusters SET capacity = 2 WHERE position = 0",
        "DELETE FROM anchors",
    ],
)
def test_changed_anchors_are_noticed(tmp_path: Path, damage: str) -> None:
    with book_of(tmp_path) as book:
        run_round(book, Engine(), OPTIONS)
    assert not fsck(tmp_path / "run")
    change(tmp_path / "run", damage)
    assert any(finding.fault for finding in fsck(tmp_path / "run"))


def test_nothing_kept_of_a_leaver_is_in_the_anchors(tmp_path: Path) -> None:
    """Neither its id nor its position, of which a border would be one if it were not drawn."""
    with book_of(tmp_path) as book:
        options = replace(OPTIONS, secrets=Secrets(), participation=SecretOrder.of(book))
        positions = {client: options.position(client) for client in CLIENTS}
        run_round(book, Engine(), options)
        leave(book, CLIENTS[:2], tmp_path, options)
        keyring = book.keyring.folder
    files = [
        path.read_bytes() for folder in (tmp_path / "run", keyring) for path in folder.iterdir() if path.is_file()
    ]
    assert any(files)
    for client in CLIENTS[:2]:
        for raw in files:
            assert client.encode() not in raw
            for length in (8, 32):
                assert positions[client][:length] not in raw


def test_with_fresh_draws_a_list_of_ids_does_not_say_who_is_in_which_cluster(tmp_path: Path) -> None:
    """Whoever has the run has its borders; the seed is public."""
    clients = client_ids(40)
    with book_of(tmp_path, clients=clients) as book:
        options = replace(OPTIONS, secrets=Secrets(), participation=SecretOrder.of(book))
        run_round(book, Engine(), options)
        anchors = book.anchors()
    assert anchors is not None
    alone = Anchors(anchors.clusters, {})  # what the table says to whoever has no keyring
    guessed = alone.joined({client: position_by_seed(OPTIONS.seed)(client) for client in clients})
    secret = alone.joined({client: options.position(client) for client in clients})
    right = [
        sum(each.assignments[c].cluster == anchors.assignments[c].cluster for c in clients)
        for each in (guessed, secret)
    ]
    assert right[1] == 40
    assert right[0] < 20  # about 3 of 13 clusters by chance


def test_fresh_draws_without_a_secret_order_are_refused(tmp_path: Path) -> None:
    with book_of(tmp_path) as book, refuses(ConfigError, "participation"):
        run_round(book, Engine(), replace(OPTIONS, secrets=Secrets()))
