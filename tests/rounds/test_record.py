from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from pathlib import Path

from disavow.domain import Round
from disavow.rounds.cluster import cluster
from disavow.rounds.record import Hashing, new_round
from disavow.rounds.round import close_round
from disavow.rounds.vectors import Updates
from tests.rounds.builders import (
    MOMENT,
    OPTIONS,
    POLICY,
    gaussian,
    layout_of_size,
    ledger_of,
    opened,
    updates_of,
)

UPDATES = updates_of(gaussian(11, 4), samples=range(1, 12))
CLUSTERS = cluster(UPDATES, policy=POLICY, layout=layout_of_size(4), previous=(), seed=7, round_number=1)


def recorded(directory: Path, updates: Updates = UPDATES, seed: int = 7) -> Round:
    secrets = replace(OPTIONS.secrets, seed=seed)
    with ledger_of(directory, updates.clients, layout_of_size(4), POLICY) as ledger:
        opening = opened(ledger)
        new = new_round(
            POLICY, opening, updates, CLUSTERS, opening.model, Hashing(updates), secrets=secrets, at=MOMENT
        )
        return ledger.record(new)


def clients_of(recorded_round: Round) -> list[str]:
    return [slot.member.client for slot in recorded_round.slots if slot.member is not None]


def test_each_cluster_is_recorded_with_its_own_weight_spread_and_members(tmp_path: Path) -> None:
    kept = {(c.weight, c.spread, frozenset(c.clients)) for c in recorded(tmp_path / "run").clusters}
    expected = {
        (weight, spread, frozenset(UPDATES.clients[i] for i in members))
        for weight, spread, members in zip(CLUSTERS.weights, CLUSTERS.spreads, CLUSTERS.members, strict=True)
    }
    assert kept == expected


def test_what_delta_is_read_against_is_recorded(tmp_path: Path) -> None:
    made = recorded(tmp_path / "run")
    assert (made.delta, made.update_norm, made.pairs_within) == (
        CLUSTERS.delta,
        CLUSTERS.update_norm,
        CLUSTERS.pairs_within,
    )


def test_a_member_has_its_samples_and_the_digest_of_its_update_as_little_endian_float32(tmp_path: Path) -> None:
    for slot in recorded(tmp_path / "run").slots:
        assert slot.member is not None
        item = UPDATES.clients.index(slot.member.client)
        packed = struct.pack("<4f", *UPDATES.vectors[item].tolist())
        assert slot.member.update_digest == hashlib.sha256(packed).digest()
        assert slot.member.samples == UPDATES.samples[item]


def test_digests_do_not_depend_on_how_the_rows_lie_in_memory(tmp_path: Path) -> None:
    columns = replace(UPDATES, vectors=UPDATES.vectors.T.contiguous().T)
    assert not columns.vectors.is_contiguous()
    assert recorded(tmp_path / "one") == recorded(tmp_path / "other", columns)


def test_clusters_and_the_slots_inside_them_are_numbered_in_a_drawn_order(tmp_path: Path) -> None:
    rounds = [recorded(tmp_path / str(seed), seed=seed) for seed in range(6)]
    # three clusters of at least three: six draws that all agree would be a miracle
    assert len({tuple(frozenset(cluster.clients) for cluster in each.clusters) for each in rounds}) > 1
    assert len({frozenset(cluster.clients for cluster in each.clusters) for each in rounds}) > 1
    assert UPDATES.clients not in {tuple(clients_of(each)) for each in rounds}


def test_in_calibrated_mode_digests_are_of_what_the_clients_returned(tmp_path: Path) -> None:
    policy = replace(POLICY, noise="calibrated", clip=0.1, tau=0.1)
    with ledger_of(tmp_path / "run", UPDATES.clients, layout_of_size(4), policy) as ledger:
        clipped = close_round(ledger, opened(ledger), UPDATES, OPTIONS)
    members = {slot.member for slot in clipped.slots}
    assert members == {slot.member for slot in recorded(tmp_path / "plain").slots}
