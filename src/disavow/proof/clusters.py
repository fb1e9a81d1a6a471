"""The leaver's clusters: that they are those of the log, and how many others are left in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from disavow.errors import VerificationError
from disavow.proof.leaves import (
    Leaf,
    cluster_leaf,
    hash_of,
    joined,
    list_entry,
    sized,
    withdrawn_entry,
    withdrawn_inner,
)
from disavow.proof.merkle import Growing, root_by_path


def _refuse(leaf: Leaf, reason: str) -> VerificationError:
    return VerificationError(f"round {leaf['number']}: {reason}")


def check_cluster(cluster: Leaf, leaf: Leaf, policy: Mapping[str, Any]) -> None:
    """A cluster with open slots lies in its round, and so do those that lend it neighbours."""
    if len(cluster["slots"]) != cluster["size"] or len(set(cluster["slots"])) != cluster["size"]:
        raise _refuse(leaf, "a cluster does not list all its slots, each once")
    _check_placed(cluster, joined(cluster["slots"]), leaf, policy)
    if not _holds(cluster, cluster["slot"]):
        raise _refuse(leaf, "the leaver's slot is not in the leaver's cluster")
    shown = cluster["neighbours"]
    others = shown["others"] if shown is not None else []
    for other in others:
        _check_placed(other, other["slots"], leaf, policy)
    firsts = [other["first"] for other in others]
    apart = sorted([cluster, *others], key=lambda each: int(each["first"]))
    if firsts != sorted(firsts) or any(
        one["first"] + one["size"] > two["first"] or one["position"] >= two["position"]
        for one, two in pairwise(apart)
    ):
        raise _refuse(leaf, "clusters are not in order, or share slots")


def withdrawn_values(cluster: Leaf, leaf: Leaf, withdrawals: Container[int]) -> Iterator[tuple[int, bytes]]:
    """Each withdrawal that took somebody out of the cluster's round, and the round's value in its map.

    The entries of the round are shown in the order in which they were withdrawn; those of the clusters shown are
    open, so that nobody can be left out of them, and no map can forget what an earlier one knew.
    """
    shown = {cluster["position"]: cluster}
    if cluster["neighbours"] is not None:
        shown |= {other["position"]: other for other in cluster["neighbours"]["others"]}
    tree, last = Growing(), cluster["leaf"]
    for place, entries in groupby(cluster["withdrawn"], key=lambda entry: int(entry["leaf"])):
        if place <= last or place not in withdrawals:
            raise _refuse(leaf, "withdrawn slots are not in the order of the withdrawals")
        last = place
        for entry in entries:
            tree.add(_entry_hash(entry, shown, leaf))
        yield place, sized(tree.size, tree.root)


def _entry_hash(entry: Leaf, shown: Mapping[int, Leaf], leaf: Leaf) -> bytes:
    position, slot, salt, inner = (entry[name] for name in ("position", "slot", "salt", "inner"))
    holder = shown.get(position)
    if holder is None:
        if position >= leaf["clusters"]:
            raise _refuse(leaf, f"a slot is withdrawn from cluster {position}, which is not there")
        if slot is not None or salt is not None or inner is None:
            raise _refuse(leaf, "a withdrawn slot of a cluster that is not shown is open")
        return withdrawn_entry(position, inner)
    if slot is None or salt is None or inner is not None or not _holds(holder, slot):
        raise _refuse(leaf, "a withdrawn slot of a cluster that is shown is closed, or not in it")
    return withdrawn_entry(position, withdrawn_inner(salt, slot))


def withdrawn_slots(cluster: Leaf, leaf: Leaf) -> set[int]:
    """The slots that were withdrawn from the clusters shown, once `withdrawn_values` has been through them."""
    slots = [entry["slot"] for entry in cluster["withdrawn"] if entry["slot"] is not None]
    if len(set(slots)) != len(slots):
        raise _refuse(leaf, "a slot is withdrawn twice")
    return set(slots)


def _check_placed(cluster: Leaf, slots: bytes, leaf: Leaf, policy: Mapping[str, Any]) -> None:
    first, size, position = cluster["first"], cluster["size"], cluster["position"]
    if not 0 < cluster["weight"] <= 1:
        raise _refuse(leaf, f"a cluster has a share of {cluster['weight']} of the data")
    k, behind = policy["k"], leaf["clusters"] - position - 1
    left = leaf["participants"] - first - size
    if not (
        k <= size < 2 * k
        and k * position <= first <= (2 * k - 1) * position
        and k * behind <= left <= (2 * k - 1) * behind
    ):
        raise _refuse(leaf, f"cluster {position} has {size} slots from {first} on, which cannot be")
    if (cluster["lists"] is not None) != (policy["criterion"] == "neighbourhood"):
        raise _refuse(leaf, "a cluster commits to neighbour lists that the criterion does not know, or the reverse")
    told = cluster_leaf(
        position=position,
        first=first,
        size=size,
        weight=cluster["weight"],
        spread=cluster["spread"],
        slots=slots,
        lists=cluster["lists"],
    )
    if _root(hash_of(told), position, cluster["path"], leaf) != leaf["root"]:
        raise _refuse(leaf, "a cluster does not lead to the root of the round")


def _root(value: bytes, position: int, path: Sequence[bytes], leaf: Leaf) -> bytes:
    try:
        return root_by_path(value, position, leaf["clusters"], path)
    except ValueError as error:
        raise _refuse(leaf, f"the path of a cluster cannot be: {error}") from None


def count_survivors(cluster: Leaf, leaf: Leaf, policy: Mapping[str, Any]) -> int:
    """How many others explain the round's model, at least x; for `neighbourhood` the fewest over the slots."""
    gone = withdrawn_slots(cluster, leaf) | {cluster["slot"]}
    survivors = int(cluster["size"]) - sum(_holds(cluster, slot) for slot in gone)
    if policy["criterion"] == "cluster":
        if cluster["neighbours"] is not None:
            raise _refuse(leaf, "neighbours are shown that the criterion does not know")
        if survivors < policy["x"]:
            raise _refuse(leaf, f"{survivors} survivors are left, fewer than x = {policy['x']}")
        return survivors
    return _count_neighbours(cluster, leaf, policy, gone)


def _count_neighbours(cluster: Leaf, leaf: Leaf, policy: Mapping[str, Any], gone: set[int]) -> int:
    """Each slot may have been drawn, so each needs x survivors within Δ; itself counts while it survives.

    Mates are within Δ of each other where the cluster is no wider than that. Others are shown one by one from the
    slot's committed list, as many as are missing and no more.
    """
    slots = range(cluster["first"], cluster["first"] + cluster["size"])
    alike = cluster["spread"] <= leaf["delta"]
    survivors = set(slots) - gone
    shown = _Shown(cluster, leaf, gone)
    counts = []
    for slot in slots:
        near = survivors if alike else survivors & {slot}
        listed = shown.neighbours(slot)
        if not near.isdisjoint(listed):
            raise _refuse(leaf, f"slot {slot} counts a neighbour twice")
        if len(near) + len(listed) < policy["x"]:
            raise _refuse(leaf, f"slot {slot} has {len(near) + len(listed)} survivors near it, fewer than x")
        if listed and len(near) + len(listed) > policy["x"]:
            raise _refuse(leaf, f"slot {slot} shows more neighbours than are needed")
        counts.append(len(near) + len(listed))
    shown.refuse_idle()
    return min(counts)


def _holds(cluster: Leaf, slot: int) -> bool:
    return bool(cluster["first"] <= slot < cluster["first"] + cluster["size"])


class _Shown:
    """The neighbours that a cluster shows, each checked against its list and against those withdrawn."""

    def __init__(self, cluster: Leaf, leaf: Leaf, gone: set[int]) -> None:
        self._cluster, self._leaf, self._gone = cluster, leaf, gone
        self._used: set[int] = set()
        self._told = cluster["neighbours"]
        if self._told is None:
            return
        if len(self._told["lists"]) != cluster["size"] or len(self._told["listed"]) != cluster["size"]:
            raise _refuse(leaf, "there is not one neighbour list for each slot")
        if joined(self._told["lists"]) != cluster["lists"]:
            raise _refuse(leaf, "the neighbour lists are not those of the log")
        if not any(self._told["listed"]):
            raise _refuse(leaf, "neighbour lists are shown that are not needed")
        self._firsts = [other["first"] for other in self._told["others"]]

    def neighbours(self, slot: int) -> set[int]:
        """The surviving neighbours that are shown for a slot, in the order of its list."""
        if self._told is None:
            return set()
        at, last = slot - self._cluster["first"], -1
        found: set[int] = set()
        for entry in self._told["listed"][at]:
            other = entry["slot"]
            self._check_entry(entry, self._told["lists"][at], slot)
            if other == slot or other in self._gone or other in found or entry["index"] <= last:
                raise _refuse(self._leaf, f"slot {slot} counts one that is withdrawn, or counts one twice")
            if not _holds(self._cluster, other):
                self._used.add(self._lender(other))
            found.add(other)
            last = entry["index"]
        return found

    def _lender(self, slot: int) -> int:
        number = bisect_right(self._firsts, slot) - 1
        if number >= 0 and _holds(self._told["others"][number], slot):
            return number
        raise _refuse(self._leaf, f"the cluster of neighbour {slot} is not shown")

    def _check_entry(self, entry: Leaf, expected: bytes, slot: int) -> None:
        try:
            root = root_by_path(
                list_entry(entry["salt"], entry["slot"]), entry["index"], entry["size"], entry["path"]
            )
        except (ValueError, OverflowError) as error:
            raise _refuse(self._leaf, f"the path of a neighbour of slot {slot} cannot be: {error}") from None
        if sized(entry["size"], root) != expected:
            raise _refuse(self._leaf, f"a neighbour of slot {slot} is not in its list")

    def refuse_idle(self) -> None:
        """Nothing is shown that no slot needs."""
        if self._told is not None and len(self._used) != len(self._told["others"]):
            raise _refuse(self._leaf, "a cluster is shown that lends no neighbour")
