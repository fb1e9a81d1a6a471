"""What a proof shows of one round: the leaver's cluster, open, and every withdrawn slot, closed where not in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from disavow.errors import IntegrityError
from disavow.ledger import Reader
from disavow.ledger.withdrawn import Withdrawn
from disavow.proof.bounds import Bounds, bounds_of
from disavow.proof.leaves import RoundLeaf
from disavow.proof.merkle import path_to
from disavow.proof.reading import write_figure
from disavow.proof.statement import ShownCluster, WithdrawnSlot


def open_cluster(
    reader: Reader,
    place: int,
    round_id: int,
    slot: int,
    *,
    withdrawn: Sequence[Withdrawn],
    leaf_of: Mapping[int, int],
) -> tuple[ShownCluster, Bounds]:
    """Open the leaver's cluster in one round, with what leads to the roots.

    Args:
        reader: The ledger.
        place: The place of the round's leaf in the log.
        round_id: The round's row.
        slot: The leaver's slot.
        withdrawn: All slots that were withdrawn from the round, in the order of the log.
        leaf_of: The place of each erasure's withdrawal in the log.

    Returns:
        The cluster as a proof shows it, and what it says about who was drawn.

    """
    logged, stored = reader.logged_round(place), reader.cluster_at(round_id, slot)
    if not isinstance(logged.leaf, RoundLeaf):
        raise IntegrityError(f"leaf {place} of the log is of a rebuilt round, which has no clusters")
    bounds = bounds_of(
        weight=stored.weight,
        spread=stored.spread,
        tau=logged.leaf.tau,
        representatives=reader.policy.representatives,
    )
    odds = bounds.log10_odds
    cluster = ShownCluster(
        leaf=place,
        position=stored.position,
        first=stored.first_slot,
        size=stored.size,
        weight=stored.weight,
        spread=stored.spread,
        path=tuple(path_to(logged.cluster_hashes, stored.position)),
        slot=slot,
        slots=tuple(stored.commitments),
        withdrawn=tuple(
            _withdrawn_slot(each, leaf_of[each.erasure], is_open=each.position == stored.position)
            for each in withdrawn
        ),
        displacement=write_figure(bounds.displacement),
        log10_odds=None if odds is None else write_figure(odds),
    )
    return cluster, bounds


def _withdrawn_slot(each: Withdrawn, leaf: int, *, is_open: bool) -> WithdrawnSlot:
    """A withdrawn slot, open if it is of the leaver's cluster."""
    return WithdrawnSlot(
        leaf=leaf,
        position=each.position,
        slot=each.slot if is_open else None,
        salt=each.salt if is_open else None,
        inner=None if is_open else each.inner,
    )
