"""The anchors of a run with fixed clusters: settled before its first round, joined by newcomers before each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from disavow.domain import Anchors, size_class
from disavow.ledger import Ledger, Reader
from disavow.rounds.clustering.fixed import hash_of, settled
from disavow.rounds.randomness import Secrets


def is_anchored(reader: Reader) -> bool:
    """Whether a run has fixed clusters."""
    return reader.policy.anchored


def anchors_for(reader: Reader, clients: Collection[str], *, seed: int, secrets: Secrets) -> Anchors:
    """The run's anchors with a place for each of these clients; settled over them where there are none yet.

    Changes nothing in the ledger. There must be at least k clients to settle them over.
    """
    anchors = reader.anchors()
    if anchors is None:
        return settled(clients, reader.policy.k, seed, secrets.stream(0, 1, "borders"))
    newcomers = {client: hash_of(client, seed) for client in clients if client not in anchors.places}
    return anchors.joined(newcomers) if newcomers else anchors


def keep_places(ledger: Ledger, clients: Collection[str], *, seed: int, secrets: Secrets) -> Anchors:
    """The same, kept with the run."""
    anchors = anchors_for(ledger, clients, seed=seed, secrets=secrets)
    if anchors != ledger.anchors():
        ledger.keep_anchors(anchors)
    return anchors


def with_shares(ledger: Ledger, samples: Mapping[str, int], *, seed: int, secrets: Secrets) -> Anchors:
    """The run's anchors with the size classes of those whose first update this is, which no later one changes.

    Changes nothing in the ledger: they are kept with the round, or not at all.
    """
    clients = ledger.clients() if ledger.anchors() is None else tuple(samples)
    anchors = anchors_for(ledger, clients, seed=seed, secrets=secrets)
    return anchors.counted({client: size_class(count) for client, count in samples.items()})


def expected_shares(anchors: Anchors) -> list[float]:
    """The share of each cluster, where whoever has not returned an update yet is taken to count for the mean."""
    known = [place.share for place in anchors.places.values() if place.share is not None]
    mean = sum(known) / len(known) if known else 1.0
    waiting = Counter(place.cluster for place in anchors.places.values() if place.share is None)
    return [anchor.share + mean * waiting[number] for number, anchor in enumerate(anchors.clusters)]
