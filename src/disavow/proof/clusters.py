"""The leaver's clusters: that they are those of the log, and how many others are left in them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from disavow.errors import VerificationError
from disavow.proof.leaves import (
    Leaf,
    cluster_leaf,
    cluster_sizes,
    hash_of,
    joined,
    sized,
    withdrawn_entry,
    withdrawn_inner,
)
from disavow.proof.merkle import Growing, root_by_path


def _refuse(leaf: Leaf, reason: str) -> VerificationError:
    return VerificationError(f"round {leaf['number']}: {reason}")


def check_cluster(cluster: Leaf, leaf: Leaf, policy: Mapping[str, Any]) -> None:
    """The leaver's cluster, all its slots open, lies in its round and holds the leaver's slot."""
    if len(cluster["slots"]) != cluster["size"] or len(set(cluster["slots"])) != cluster["size"]:
        raise _refuse(leaf, "a cluster does not list all its slots, each once")
    _check_placed(cluster, leaf, policy)
    if not _holds(cluster, cluster["slot"]):
        raise _refuse(leaf, "the leaver's slot is not in the leaver's cluster")


def withdrawn_values(cluster: Leaf, leaf: Leaf, withdrawals: Container[int]) -> Iterator[tuple[int, bytes]]:
    """Each withdrawal that took somebody out of the cluster's round, and the round's value in its map.

    The entries of the round are shown in the order in which they were withdrawn; those of the cluster are open, so
    that nobody can be left out of it, and no map can forget what an earlier one knew.
    """
    tree, last = Growing(), cluster["leaf"]
    for place, entries in groupby(cluster["withdrawn"], key=lambda entry: int(entry["leaf"])):
        if place <= last or place not in withdrawals:
            raise _refuse(leaf, "withdrawn slots are not in the order of the withdrawals")
        last = place
        for entry in entries:
            tree.add(_entry_hash(entry, cluster, leaf))
        yield place, sized(tree.size, tree.root)


def _entry_hash(entry: Leaf, cluster: Leaf, leaf: Leaf) -> bytes:
    position, slot, salt, inner = (entry[name] for name in ("position", "slot", "salt", "inner"))
    if position != cluster["position"]:
        if position >= leaf["clusters"]:
            raise _refuse(leaf, f"a slot is withdrawn from cluster {position}, which is not there")
        if slot is not None or salt is not None or inner is None:
            raise _refuse(leaf, "a withdrawn slot of another cluster is open")
        return withdrawn_entry(position, inner)
    if slot is None or salt is None or inner is not None or not _holds(cluster, slot):
        raise _refuse(leaf, "a withdrawn slot of the cluster is closed, or not in it")
    return withdrawn_entry(position, withdrawn_inner(salt, slot))


def withdrawn_slots(cluster: Leaf, leaf: Leaf) -> set[int]:
    """The slots that were withdrawn from the cluster, once `withdrawn_values` has been through them."""
    slots = [entry["slot"] for entry in cluster["withdrawn"] if entry["slot"] is not None]
    if len(set(slots)) != len(slots):
        raise _refuse(leaf, "a slot is withdrawn twice")
    return set(slots)


def _check_placed(cluster: Leaf, leaf: Leaf, policy: Mapping[str, Any]) -> None:
    first, size, position = cluster["first"], cluster["size"], cluster["position"]
    if not 0 < cluster["weight"] <= 1:
        raise _refuse(leaf, f"a cluster has a share of {cluster['weight']} of the data")
    if leaf["clusters"] == 1 and policy["clustering"] != "fixed" and cluster["weight"] != 1:
        raise _refuse(leaf, f"its only cluster has a share of {cluster['weight']} of the data")
    (least, most), behind = cluster_sizes(policy), leaf["clusters"] - position - 1
    left = leaf["participants"] - first - size
    if not (
        least <= size <= most
        and least * position <= first <= most * position
        and least * behind <= left <= most * behind
    ):
        raise _refuse(leaf, f"cluster {position} has {size} slots from {first} on, which cannot be")
    told = cluster_leaf(
        position=position,
        first=first,
        size=size,
        weight=cluster["weight"],
        spread=cluster["spread"],
        slots=joined(cluster["slots"]),
    )
    if _root(hash_of(told), position, cluster["path"], leaf) != leaf["root"]:
        raise _refuse(leaf, "a cluster does not lead to the root of the round")


def _root(value: bytes, position: int, path: Sequence[bytes], leaf: Leaf) -> bytes:
    try:
        return root_by_path(value, position, leaf["clusters"], path)
    except ValueError as error:
        raise _refuse(leaf, f"the path of a cluster cannot be: {error}") from None


def count_survivors(cluster: Leaf, leaf: Leaf, policy: Mapping[str, Any]) -> int:
    """How many members of the cluster are left: at least x, beside the s - 1 that were drawn with the leaver."""
    gone = withdrawn_slots(cluster, leaf) | {cluster["slot"]}
    survivors, needed = int(cluster["size"]) - len(gone), survivors_needed(policy)
    if survivors < needed:
        raise _refuse(leaf, f"{survivors} survivors are left, fewer than {needed} (x = {policy['x']})")
    return survivors


def survivors_needed(policy: Mapping[str, Any]) -> int:
    """X + s - 1."""
    return int(policy["x"] + policy["representatives"] - 1)


def _holds(cluster: Leaf, slot: int) -> bool:
    return bool(cluster["first"] <= slot < cluster["first"] + cluster["size"])
