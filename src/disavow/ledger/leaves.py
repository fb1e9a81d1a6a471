"""The leaves of the log, made from the rows that they log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from disavow.domain import TrainedBy
from disavow.ledger import rows
from disavow.proof.leaves import ClusterLeaf, LoggedPolicy, RebuiltLeaf, RoundLeaf, RunLeaf, joined
from disavow.proof.merkle import HASH_BYTES, leaf_hash, root_of
from disavow.proof.notes import PublicKey


def promises(row: sa.Row[Any], key: PublicKey | None) -> RunLeaf:
    """Make leaf 0 from the row of the run."""
    return RunLeaf(
        run=row.run_id,
        created_at=row.created_at,
        initial_model=row.initial_model,
        policy=LoggedPolicy(**asdict(rows.policy_from_json(row.policy))),
        key=key,
        frozen=TrainedBy.from_json(row.trainer).frozen,
    )


def leaf_of_round(header: Mapping[str, Any], made: Sequence[ClusterLeaf]) -> RoundLeaf:
    """Make a round's leaf from its row and the leaves of its clusters."""
    return RoundLeaf(
        number=header["number"],
        attempt=header["attempt"],
        before=header["before"],
        after=header["after"],
        delta=header["delta"],
        update_norm=header["update_norm"],
        pairs_within=header["pairs_within"],
        tau=header["tau"],
        participants=header["participants"],
        clusters=len(made),
        root=root_of([cluster.hash for cluster in made]),
        at=header["recorded_at"],
    )


def leaf_of_rebuilt(
    header: Mapping[str, Any], mechanism: str, slot_rows: Sequence[Mapping[str, Any]]
) -> RebuiltLeaf:
    """Make a rebuilt round's leaf from its row and those of its slots."""
    return RebuiltLeaf(
        number=header["number"],
        attempt=header["attempt"],
        before=header["before"],
        after=header["after"],
        mechanism=mechanism,
        participants=len(slot_rows),
        root=root_of([leaf_hash(place["commitment"]) for place in slot_rows]),
        at=header["recorded_at"],
    )


def cluster_leaves(
    groups: Iterable[Mapping[str, Any]], slot_rows: Iterable[Mapping[str, Any]]
) -> list[ClusterLeaf]:
    """Make the leaves of a round's clusters. `slot_rows` are its slots, or those of the clusters in `groups`."""
    commitments = {place["slot"]: place["commitment"] for place in slot_rows}
    return [
        ClusterLeaf(
            position=row["position"],
            first=row["first_slot"],
            size=row["size"],
            weight=row["weight"],
            spread=row["spread"],
            slots=joined(commitments[slot] for slot in range(row["first_slot"], row["first_slot"] + row["size"])),
        )
        for row in groups
    ]


def cluster_hashes(data: bytes) -> list[bytes]:
    """The leaf hashes of a round's clusters, as the log keeps them."""
    return [data[start : start + HASH_BYTES] for start in range(0, len(data), HASH_BYTES)]
