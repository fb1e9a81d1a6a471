"""The maps of withdrawals: that those shown as withdrawn are in every one of them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from disavow.errors import VerificationError
from disavow.proof.clusters import withdrawn_values
from disavow.proof.history import History
from disavow.proof.leaves import UNTOUCHED, Leaf
from disavow.proof.merkle import Changing, leaf_hash


def check_maps(said: Leaf, history: History) -> None:
    """The withdrawn slots shown are in the maps of all withdrawals, the first as well as the last."""
    maps, leaves = said["maps"], history.leaves
    if len(maps) != len(history.withdrawals):
        raise VerificationError("there is not one map for each withdrawal")
    ordinal = {place: i for i, place in enumerate(history.rounds)}
    shown = {cluster["leaf"] for cluster in said["clusters"]}
    closed = [place for place in history.rounds if place not in shown]
    changed: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    withdrawals = set(history.withdrawals)
    for cluster in said["clusters"]:
        place = cluster["leaf"]
        for withdrawal, value in withdrawn_values(cluster, leaves[place], withdrawals):
            changed[withdrawal].append((place, value))
    tree, latest = Changing(), dict[int, bytes]()
    for withdrawal, told in zip(history.withdrawals, maps, strict=True):
        covered = bisect_left(closed, withdrawal)
        if len(told) != covered:
            raise VerificationError(f"the map of leaf {withdrawal} does not have one value for each closed round")
        while tree.size < leaves[withdrawal]["rounds"]:
            tree.put(tree.size, leaf_hash(UNTOUCHED))
        given = [(place, value) for place, value in zip(closed, told, strict=False) if value is not None]
        if any(value == latest.get(place, UNTOUCHED) for place, value in given):
            raise VerificationError(f"the map of leaf {withdrawal} gives a value that has not changed")
        for place, value in [*changed[withdrawal], *given]:
            latest[place] = value
            tree.put(ordinal[place], leaf_hash(value))
        if tree.root != leaves[withdrawal]["root"]:
            raise VerificationError(f"those withdrawn do not lead to the map of leaf {withdrawal}")
