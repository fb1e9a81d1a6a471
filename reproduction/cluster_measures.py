"""How alike the members of clusters are, and how well noise hides them: measured while a run is made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, median

import numpy as np
import torch

from disavow.domain import ClusterEvidence
from disavow.federation import Federation
from disavow.ledger import RoundSummary
from disavow.proof.bounds import Bounds, log10_odds, total_ratio
from disavow.rounds.clustering.distances import squared_l2
from disavow.rounds.clustering.geometry import ExactGeometry
from disavow.rounds.clustering.spread import spreads
from disavow.rounds.vectors import Updates, on_cpu
from reproduction.lines import ClusterWidth, Hidden, NeededDelta

EVERY = 5
"""Rounds between two that are measured: distances of all pairs are computed again for it."""

_TWENTIETHS = np.linspace(0, 1, 21)

_PARTITIONS = 8
"""Random partitions of a round's clients that clusters are compared with."""


class WidthMeter:
    """Compares the clusters of a run with random groups of the same sizes, every few rounds."""

    def __init__(self) -> None:
        self._over_update: list[float] = []
        self._over_random: list[float] = []
        self._pairs_within: list[float] = []

    def add(self, run: Federation, summary: RoundSummary, updates: Updates | None) -> None:
        """Measure a round that was just recorded; nothing where it is not its turn, or nothing was clustered.

        Args:
            run: The open run.
            summary: The round.
            updates: What its clients sent.

        """
        if (summary.number - 1) % EVERY or summary.rebuilt or run.ledger.policy.k == 1 or updates is None:
            return
        clusters = run.ledger.round(summary.number).clusters
        spread = fmean(cluster.spread for cluster in clusters)
        layout = run.ledger.layout
        averaged = list(layout.running_statistics()) if run.ledger.policy.averages_statistics else []
        rng = np.random.default_rng([run.settings.seed, summary.number])
        random = random_spread(updates, [len(cluster.slots) for cluster in clusters], averaged, rng)
        if summary.update_norm > 0 and random > 0:
            self._over_update.append(spread / summary.update_norm)
            self._over_random.append(spread / random)
            self._pairs_within.append(summary.pairs_within)

    @property
    def mean(self) -> ClusterWidth | None:
        """The means over all rounds that were measured; None where none was."""
        if not self._over_update:
            return None
        return ClusterWidth(
            over_update=fmean(self._over_update),
            over_random=fmean(self._over_random),
            pairs_within=fmean(self._pairs_within),
        )


def random_spread(
    updates: Updates, sizes: Sequence[int], averaged: Sequence[tuple[int, int]], rng: np.random.Generator
) -> float:
    """Compute the mean spread of random groups, of the same sizes as the clusters of a round.

    Args:
        updates: All updates of the round.
        sizes: Of the clusters.
        averaged: Stretches that are released as a mean over a cluster; see `spreads`.
        rng: Draws the groups.

    Returns:
        An L2 distance.

    """
    vectors = on_cpu(updates.vectors)
    geometry = ExactGeometry(squared_l2(vectors))
    bounds = np.cumsum(sizes)[:-1]
    groups = [
        torch.from_numpy(group)
        for _ in range(_PARTITIONS)
        for group in np.split(rng.permutation(len(updates)), bounds)
    ]
    return fmean(spreads(vectors, geometry, groups, averaged))


def needed_delta(run: Federation) -> NeededDelta | None:
    """Compute the Δ that each client who is still there would need to leave at once; None without clusters.

    Args:
        run: The open run.

    """
    relative: defaultdict[str, float] = defaultdict(float)
    fixed: defaultdict[str, float] = defaultdict(float)
    for number in range(1, run.ledger.last_round + 1):
        each = run.ledger.round(number)
        if each.update_norm > 0:
            for cluster in each.clusters:
                for client in cluster.clients:
                    relative[client] = max(relative[client], cluster.spread / each.update_norm)
                    fixed[client] = max(fixed[client], cluster.spread)
    if not fixed:
        return None
    return NeededDelta(relative=_quantiles(relative.values()), fixed=_quantiles(fixed.values()))


def _quantiles(values: Iterable[float]) -> tuple[float, ...]:
    """A value of a client each, so that exactly at it one more can leave."""
    return tuple(np.quantile(list(values), _TWENTIETHS, method="inverted_cdf").tolist())


def hidden(run: Federation) -> Hidden | None:
    """Compute the odds of all clients who are still there, over the standing rounds; None where nothing hides them.

    Args:
        run: The open run.

    """
    ratios: defaultdict[int, list[Bounds]] = defaultdict(list)
    with run.ledger.snapshot() as snapshot:
        for each in snapshot.evidence(snapshot.numbers_to_judge(run.ledger.clients())):
            if isinstance(each, ClusterEvidence):
                for client in each.leavers:
                    ratios[client].append(Bounds(0.0, each.ratio))
    found = [log10_odds(total_ratio(bounds)) for bounds in ratios.values()]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    return Hidden(median_composed=median(known), worst_composed=max(known))
