"""Keep the clusters of the round before; repair only what leavers broke.

Repairs leave nearly as many clusters as a fresh partition has: with fewer, fewer updates enter every later round.

Deniability breaks when one of *all stored* clusters runs short. A fresh partition each round makes about T·N/k
different groups that can run short; a sticky one makes N/k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from disavow.rounds.clustering.geometry import Geometry

Partition = Callable[[Tensor], list[Tensor]]
TooWide = Callable[[Tensor], bool]


def sticky(
    geometry: Geometry,
    clients: Sequence[str],
    previous: Sequence[Sequence[str]],
    k: int,
    *,
    partition: Partition,
    too_wide: TooWide,
) -> list[Tensor]:
    """Partition clients along the membership of the round before.

    Clusters that kept at least k members and are not too wide stay. One that ran short is filled with the nearest
    of the newcomers and of those whom larger clusters can spare, or dissolved. If k or more then have no cluster,
    they are partitioned among themselves. Whoever is left, or would be in too wide a cluster, joins the nearest one
    with room that does not become too wide, in id order; those who find none are partitioned after all. Where they
    are too few for that, they join wherever there is room, and where there is none, one full cluster is opened.

    Args:
        geometry: Distances between clients.
        clients: Ids, in order.
        previous: The clusters of the round before.
        k: The fewest members.
        partition: Partitions those who have no cluster.
        too_wide: Whether a cluster would be wider than Δ.

    Returns:
        The members of each cluster.

    """
    position = {client: i for i, client in enumerate(clients)}
    stayed = [sorted(position[client] for client in group if client in position) for group in previous]
    # ties go in id order, not in the order in which the ledger numbers clusters
    stayed = sorted(group for group in stayed if group and not too_wide(torch.tensor(group)))
    kept, short = [g for g in stayed if len(g) >= k], [g for g in stayed if len(g) < k]
    settled = {i for group in stayed for i in group}
    homeless = [i for i in range(len(clients)) if i not in settled]
    _fill_or_dissolve(geometry, kept, short, homeless, k, too_wide)
    if len(homeless) >= k:
        anew = [sorted(group.tolist()) for group in partition(torch.tensor(homeless))]
        narrow = [group for group in anew if not too_wide(torch.tensor(group))]
        kept = sorted(kept + narrow)
        homeless = sorted(set(homeless).difference(*narrow))
    homeless = _join_nearest(geometry, kept, homeless, k, too_wide)
    if len(homeless) < k:
        # too few to stay among themselves: width gives way to size
        homeless = _join_nearest(geometry, kept, homeless, k, lambda items: False)
    if homeless and len(homeless) < k:
        # every cluster is full: open the one nearest to them, which with them is enough for two
        nearest = min(range(len(kept)), key=lambda c: float(_distance(geometry, homeless, kept[c]).mean()))
        homeless = sorted(homeless + kept.pop(nearest))
    clusters = [torch.tensor(sorted(group)) for group in kept]
    return clusters + (partition(torch.tensor(homeless)) if homeless else [])


def _fill_or_dissolve(
    geometry: Geometry,
    kept: list[list[int]],
    short: list[list[int]],
    homeless: list[int],
    k: int,
    too_wide: TooWide,
) -> None:
    """Fill short clusters, the fullest first, as long as there are enough for them; change the lists in place."""
    short.sort(key=len, reverse=True)
    while short:
        fullest = short[0]
        to_spare = len(homeless) + sum(len(group) - k for group in kept)
        if k - len(fullest) > min(len(fullest), to_spare):
            homeless.extend(short.pop())  # the smallest, whose members may fill the others
        elif _fill(geometry, fullest, kept, homeless, k, too_wide):
            kept.append(short.pop(0))
        else:
            homeless.extend(short.pop(0))
    homeless.sort()
    kept[:] = sorted(map(sorted, kept))


def _fill(
    geometry: Geometry, group: list[int], kept: list[list[int]], homeless: list[int], k: int, too_wide: TooWide
) -> bool:
    """Move the nearest who can be spared into a group until it has k members, or none if it gets too wide."""
    moved: list[tuple[int, list[int]]] = []
    while len(group) < k:
        spared = dict.fromkeys(homeless, homeless) | {i: g for g in kept if len(g) > k for i in g}
        items = sorted(spared)
        item = items[int(_distance(geometry, items, group).argmin())]
        spared[item].remove(item)
        group.append(item)
        moved.append((item, spared[item]))
        if too_wide(torch.tensor(sorted(group))):
            for mover, home in moved:
                group.remove(mover)
                home.append(mover)
            return False
    return True


def _join_nearest(
    geometry: Geometry, kept: list[list[int]], homeless: list[int], k: int, too_wide: TooWide
) -> list[int]:
    """Let each join the nearest cluster that has room and stays narrow; those who find none come back."""
    left = []
    for item in homeless:
        with_room = [group for group in kept if len(group) < 2 * k - 1]
        with_room.sort(key=lambda group: float(_distance(geometry, [item], group)))
        nearest = (group for group in with_room if not too_wide(torch.tensor(sorted([*group, item]))))
        home = next(nearest, None)
        if home is None:
            left.append(item)
        else:
            home.append(item)
    return left


def _distance(geometry: Geometry, items: list[int], group: list[int]) -> Tensor:
    """The mean squared distance from each item to the members of a group."""
    return geometry.between(torch.tensor(items), torch.tensor(group)).mean(dim=1)
