"""The leaves of the log, made from the rows that they log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from disavow.domain import Policy
from disavow.ledger import rows
from disavow.proof.leaves import Leaf, cluster_leaf, joined, list_entries, rebuilt_leaf, round_leaf, run_leaf, sized
from disavow.proof.merkle import HASH_BYTES, root_of
from disavow.proof.noise import noise_of
from disavow.proof.notes import PublicKey


def promises(row: sa.Row[Any], key: PublicKey | None) -> Leaf:
    """Leaf 0, from the row of the run."""
    return run_leaf(
        run_id=row.run_id,
        created_at=row.created_at,
        initial_model=row.initial_model,
        policy=asdict(rows.policy_from_json(row.policy)),
        key=key,
    )


def leaf_of_round(
    header: Mapping[str, Any], groups: Iterable[Mapping[str, Any]], made: Sequence[Leaf], policy: Policy
) -> Leaf:
    """A round's leaf, from its rows and the leaves of its clusters."""
    tau = noise_of(asdict(policy), [(row["weight"], row["spread"]) for row in groups])
    return round_leaf(
        number=header["number"],
        attempt=header["attempt"],
        before=header["before"],
        after=header["after"],
        delta=header["delta"],
        tau=tau,
        participants=header["participants"],
        clusters=made,
        at=header["recorded_at"],
    )


def leaf_of_rebuilt(header: Mapping[str, Any], mechanism: str, places: Sequence[Mapping[str, Any]]) -> Leaf:
    """A rebuilt round's leaf, from its row and those of its slots."""
    return rebuilt_leaf(
        number=header["number"],
        attempt=header["attempt"],
        before=header["before"],
        after=header["after"],
        mechanism=mechanism,
        commitments=[place["commitment"] for place in places],
        at=header["recorded_at"],
    )


def cluster_leaves(
    participants: int, groups: Sequence[Mapping[str, Any]], places: Sequence[Mapping[str, Any]], seed: bytes | None
) -> list[Leaf]:
    """The leaves of a round's clusters. `places` are its slots, or those of the clusters in `groups`."""
    by_number = {place["slot"]: place for place in places}
    made = []
    for row in groups:
        mine = [by_number[number] for number in range(row["first_slot"], row["first_slot"] + row["size"])]
        lists = None if seed is None else joined(list_digests(participants, mine, seed))
        made.append(
            cluster_leaf(
                position=row["position"],
                first=row["first_slot"],
                size=row["size"],
                weight=row["weight"],
                spread=row["spread"],
                slots=joined(place["commitment"] for place in mine),
                lists=lists,
            )
        )
    return made


def list_digests(participants: int, places: Iterable[Mapping[str, Any]], seed: bytes) -> list[bytes]:
    """For each slot what its cluster holds of its neighbour list."""
    found = []
    for place in places:
        entries = list_entries(seed, place["slot"], rows.unpack_slots(place["neighbours"], participants))
        found.append(sized(len(entries), root_of(entries)))
    return found


def cluster_hashes(data: bytes) -> list[bytes]:
    """The leaf hashes of a round's clusters, as the log keeps them."""
    return [data[start : start + HASH_BYTES] for start in range(0, len(data), HASH_BYTES)]
