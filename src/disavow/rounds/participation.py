"""Who takes part in a round: those of the lowest rank, a hash of their ids; or, of anchored clusters, whole ones.

A proof says in which rounds a leaver took part, and not who it was. So who takes part in which round must not be
something that others can work out: each is ranked by a secret that derives from its own key, lies in no run, and is
destroyed with the key. Only with `draws = "seeded"`, for which nothing is claimed, are they derived from the seed.

The anchors of a run with fixed clusters are settled before its first round, and joined by newcomers before each.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Self

from disavow.config import Settings, participants_of
from disavow.domain import Anchors, size_class
from disavow.ledger import Ledger, Reader
from disavow.ledger.client_secrets import ClientSecrets
from disavow.rounds.clustering.fixed import settled
from disavow.rounds.randomness import Secrets, derive

Rank = Callable[[int, str], bytes]
"""Of a client in a round, by the round's number and the client's id."""

Position = Callable[[str], bytes]
"""Of a client in the order that fixed clusters divide."""


class SecretOrder:
    """Orders clients by secrets of their own, and anchored clusters by one of the run.

    Without the keyring nobody can say who takes part in which round, or is in which fixed cluster; and with it, of
    nobody who has left.

    Args:
        clients: The secrets of clients.
        run: The secret of the run.

    """

    def __init__(self, clients: ClientSecrets, run: bytes) -> None:
        self.clients, self._run = clients, run

    @classmethod
    def of(cls, reader: Reader) -> Self:
        """Derive that of a run from its keyring.

        Args:
            reader: The run.

        Raises:
            KeyringMissing: The keyring is not there.

        """
        return cls(reader.client_secrets("participation"), reader.run_secret("participation"))

    def rank(self, number: int, client: str) -> bytes:
        """Rank a client in a round."""
        return hmac.digest(self.clients.of(client), b"rank" + number.to_bytes(8, "big"), "sha256")

    def rank_of_cluster(self, number: int, cluster: str) -> bytes:
        """Rank an anchored cluster in a round."""
        return hmac.digest(self._run, number.to_bytes(8, "big") + cluster.encode(), "sha256")

    def position(self, client: str) -> bytes:
        """Say where a client stands in the order that fixed clusters divide."""
        return hmac.digest(self.clients.of(client), b"position", "sha256")


def rank_by_seed(seed: int) -> Rank:
    """Rank by a hash of seed, round and id: whoever knows the seed knows who takes part in which round."""
    return lambda number, client: derive("participation", seed, number, client)


def participants(
    clients: Sequence[str], *, fraction: float, rank: Rank, round_number: int, at_least: int = 1
) -> tuple[str, ...]:
    """Choose who takes part: the clients with the lowest rank in this round.

    A hash, not a draw: when a client leaves, at most one other participant changes.

    >>> participants(["a", "b", "c", "d"], fraction=0.5, rank=rank_by_seed(1), round_number=1)
    ('b', 'c')

    Args:
        clients: Who could.
        fraction: The share that does.
        rank: By which they are chosen.
        round_number: Which round it is.
        at_least: How many do, however small the fraction.

    """
    count = participants_of(len(clients), fraction, at_least)
    if count >= len(clients):
        return tuple(sorted(clients))
    ranked = sorted(clients, key=lambda client: (rank(round_number, client), client))
    return tuple(sorted(ranked[:count]))


def clusters_taking_part(
    capacities: Sequence[int], *, fraction: float, rank: Rank, round_number: int, at_least: int = 1
) -> tuple[int, ...]:
    """Choose the anchored clusters that take part, whole: those of the lowest rank.

    A client is not ranked by itself, and who is left in a cluster does not matter: were a leaver's turn given to
    another client, a removal would change more than the leaver's own contribution. So many clusters that at least
    `at_least` of their places take part.

    >>> clusters_taking_part([4, 4, 5, 4], fraction=0.5, rank=rank_by_seed(1), round_number=1)
    (1, 2)

    Args:
        capacities: How many places each has.
        fraction: The share that takes part.
        rank: By which they are chosen.
        round_number: Which round it is.
        at_least: How many places must take part.

    """
    count = participants_of(len(capacities), fraction)
    ranked = sorted(range(len(capacities)), key=lambda number: (rank(round_number, f"cluster {number}"), number))
    while count < len(capacities) and sum(capacities[number] for number in ranked[:count]) < at_least:
        count += 1
    return tuple(sorted(ranked[:count]))


def needs_secret_order(settings: Settings) -> bool:
    """Return whether fewer than all clients take part in a round, or clusters are fixed, chosen in secret."""
    return settings.draws == "fresh" and (settings.training.fraction < 1.0 or settings.clustering.method == "fixed")


def participation_of(settings: Settings, reader: Reader) -> SecretOrder | None:
    """Derive the secrets that decide who takes part in which round, and is in which fixed cluster.

    Args:
        settings: Those of the run.
        reader: The run.

    Returns:
        The order; None where there is nothing to decide, or draws are seeded.

    Raises:
        KeyringMissing: The keyring is not there.

    """
    if not needs_secret_order(settings):
        return None
    return SecretOrder.of(reader)


def is_anchored(reader: Reader) -> bool:
    """Return whether a run has anchored clusters."""
    return reader.policy.anchored


def anchors_for(reader: Reader, clients: Collection[str], *, position: Position, secrets: Secrets) -> Anchors:
    """Return the run's anchors with a place for each of these clients, settled over them where there are none yet.

    Changes nothing in the ledger. There must be at least k clients to settle them over.

    Args:
        reader: The run.
        clients: Ids, at least k where there are no anchors.
        position: Where each stands in the order that they divide.
        secrets: Where borders are drawn from.

    """
    anchors = reader.anchors()
    if anchors is None:
        return settled(clients, reader.policy.k, position, secrets.stream(0, 1, "borders"))
    newcomers = {client: position(client) for client in clients if client not in anchors.assignments}
    return anchors.joined(newcomers) if newcomers else anchors


def keep_assignments(ledger: Ledger, clients: Collection[str], *, position: Position, secrets: Secrets) -> Anchors:
    """Store the run's anchors with a place for each of these clients.

    Args:
        ledger: The run.
        clients: Ids.
        position: Where each stands in the order that they divide.
        secrets: Where borders are drawn from.

    """
    anchors = anchors_for(ledger, clients, position=position, secrets=secrets)
    if anchors != ledger.anchors():
        ledger.keep_anchors(anchors)
    return anchors


def with_shares(ledger: Ledger, samples: Mapping[str, int], *, position: Position, secrets: Secrets) -> Anchors:
    """Return the run's anchors with the size classes of those whose first update this is, which no later one
    changes.

    Changes nothing in the ledger: they are kept with the round, or not at all.

    Args:
        ledger: The run.
        samples: How many each participant holds.
        position: Where each client stands in the order that they divide.
        secrets: Where borders are drawn from.

    """
    clients = ledger.clients() if ledger.anchors() is None else tuple(samples)
    anchors = anchors_for(ledger, clients, position=position, secrets=secrets)
    return anchors.counted({client: size_class(count) for client, count in samples.items()})


def expected_shares(anchors: Anchors) -> list[float]:
    """Estimate the share of each cluster: whoever has not returned an update yet counts for the mean."""
    known = [place.share for place in anchors.assignments.values() if place.share is not None]
    mean = sum(known) / len(known) if known else 1.0
    waiting = Counter(place.cluster for place in anchors.assignments.values() if place.share is None)
    return [anchor.share + mean * waiting[number] for number, anchor in enumerate(anchors.clusters)]
