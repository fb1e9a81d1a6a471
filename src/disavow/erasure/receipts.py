"""Receipts: what the server hands to a client for a round, so that the client can hold it to that later."""

from __future__ import annotations

from collections.abc import Iterator

from disavow.errors import ConfigError, UnknownClient
from disavow.ledger import Ledger, Reader
from disavow.ledger.log import LoggedRound, LoggedSlot
from disavow.proof import canonical
from disavow.proof.leaves import cluster_leaf, joined
from disavow.proof.merkle import leaf_hash, path_to
from disavow.proof.notes import Signer
from disavow.proof.reading import to_base64
from disavow.proof.receipt import TYPE

Shown = dict[str, object]
"""A part of a receipt, as it is written."""


def receipts(
    ledger: Ledger, client: str, signer: Signer | None, number: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """A client's receipts for its standing rounds, or for one of them: the round's number, and the file."""
    with ledger.snapshot() as snapshot:
        known = snapshot.numbers_of([client]).get(client)
        if known is None:
            raise UnknownClient(
                f"{client!r} is not a client of this run, so there is nothing to give a receipt for"
            )
        head = snapshot.signed_head()
        if head is None:
            if signer is None:
                raise ConfigError("this run has no signing key, so nothing binds it; `disavow keygen` makes one")
            head = snapshot.log_head().signed(signer)
        hashes = snapshot.log_hashes()
        for filled in snapshot.logged_slots(known):
            if number not in (None, filled.number):
                continue
            logged = snapshot.logged_round(filled.place)
            way, _ = _way(snapshot, logged, filled)
            inclusion = _inclusion(hashes, filled.place)
            yield filled.number, _receipt(ledger, client, filled, logged, way, inclusion, head)


def receipts_of_round(ledger: Ledger, number: int) -> dict[str, bytes]:
    """The receipts of all who took part in a standing round and are still in; none where nothing is signed."""
    made: dict[str, bytes] = {}
    with ledger.snapshot() as snapshot:
        head = snapshot.signed_head()
        if head is None:
            return made
        found = snapshot.logged_slots_of_round(number)
        if not found:
            return made
        place = next(iter(found.values())).place
        logged, inclusion = snapshot.logged_round(place), _inclusion(snapshot.log_hashes(), place)
        way: Shown = {}
        end = 0  # of the cluster at hand: slots come in order, so that each cluster is read once
        for client, filled in found.items():
            if filled.slot >= end:
                way, end = _way(snapshot, logged, filled)
            made[client] = _receipt(ledger, client, filled, logged, way, inclusion, head)
    return made


def _receipt(
    ledger: Ledger,
    client: str,
    filled: LoggedSlot,
    logged: LoggedRound,
    way: Shown,
    inclusion: list[str],
    head: str,
) -> bytes:
    return canonical.encode(
        {
            "type": TYPE,
            "run": ledger.run_id,
            "client": client,
            "leaf": filled.place,
            "header": logged.leaf,
            **way,
            "slot": filled.slot,
            "salt": to_base64(filled.salt),
            "update": to_base64(filled.update_digest),
            "inclusion": inclusion,
            "checkpoint": head,
        }
    )


def _inclusion(hashes: list[bytes], position: int) -> list[str]:
    return [to_base64(step) for step in path_to(hashes, position)]


def _way(reader: Reader, logged: LoggedRound, filled: LoggedSlot) -> tuple[Shown, int]:
    """How a slot leads to the root of its round, and up to which slot others lead there in the same way.

    It leads there through its cluster; by itself where there are none.
    """
    if not logged.cluster_hashes:
        hashes = [leaf_hash(commitment) for commitment in reader.commitments(filled.round_id)]
        return {"path": [to_base64(step) for step in path_to(hashes, filled.slot)]}, filled.slot + 1
    cluster = reader.cluster_at(filled.round_id, filled.slot)
    leaf = cluster_leaf(
        position=cluster.position,
        first=cluster.first_slot,
        size=cluster.size,
        weight=cluster.weight,
        spread=cluster.spread,
        slots=joined(cluster.commitments),
    )
    shown = {
        **leaf,
        "slots": [to_base64(commitment) for commitment in cluster.commitments],
        "path": [to_base64(step) for step in path_to(logged.cluster_hashes, cluster.position)],
    }
    return {"cluster": shown}, cluster.first_slot + cluster.size
