"""Who is in a run, and what the run knows of each client, sealed under the client's key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from disavow.domain import Anchor, Anchors, Place
from disavow.errors import IntegrityError
from disavow.ledger import pseudonyms, rows
from disavow.ledger.keyring import ClientKey, Keyring
from disavow.ledger.members import batches
from disavow.ledger.schema import anchors, members, requests, run

_WORD = re.compile(r"[^\W_]+")
_BETWEEN = re.compile(r"[\s/:|,;=()\[\]{}<>\"']+")
_MOST_WORDS = 24
_LONG = 4

_SEALED_BYTES = 256
"""What is known of a client is padded to this: its length must not tell clients apart."""


@dataclass(frozen=True)
class Known:
    """What a run knows of a client: its fixed cluster, its size class once counted there, a digest of its data."""

    anchor: int | None = None
    share: int | None = None
    data: str | None = None


def register(connection: sa.Connection, keyring: Keyring, ids: Iterable[str], data: Mapping[str, str]) -> None:
    """Make clients known to the keyring and to the run. Registering one twice is registering it once.

    Args:
        connection: The ledger, for writing.
        keyring: The run's keyring; what is written to it is durable before the ledger commits.
        ids: The clients.
        data: What each of them holds, as SHA-256, where that is known; what the run has noted before stays.

    Raises:
        LedgerError: An id that is none.
        LeaverReturns: One of them was forgotten.

    """
    wanted = list(ids)
    keyring.register(wanted)
    if data:
        found = keyring.find_all([client for client in wanted if client in data])
        known = _known(connection, keyring, found.values())
        before = {client: known.get(client, Known()) for client in found}
        new = {
            client: replace(details, data=data[client])
            for client, details in before.items()
            if details.data is None
        }
        _keep(connection, keyring, {found[client]: details for client, details in new.items()})
    note_generation(connection, keyring)


def note_generation(connection: sa.Connection, keyring: Keyring) -> None:
    """Note in the run how new its keyring is, so that an older copy of the keyring is noticed."""
    connection.execute(run.update().values(keyring=keyring.generation))


def data_digests(connection: sa.Connection, keyring: Keyring) -> dict[str, str]:
    """Read what each client holds, as SHA-256, where the run knows it."""
    known = _known(connection, keyring, keyring.present().values())
    return {client: details.data for client, details in known.items() if details.data is not None}


def bind_data(connection: sa.Connection, keyring: Keyring, data: Mapping[str, str]) -> None:
    """Keep what clients hold, as SHA-256, where the run does not know it; what it knows stays."""
    found = keyring.find_all(list(data))
    known = _known(connection, keyring, found.values())
    before = {client: known.get(client, Known()) for client in found}
    new = {
        client: replace(details, data=data[client]) for client, details in before.items() if details.data is None
    }
    _keep(connection, keyring, {found[client]: details for client, details in new.items()})


def still_in(connection: sa.Connection, keyring: Keyring) -> tuple[str, ...]:
    """The ids of all clients who have not been withdrawn, sorted."""
    gone = withdrawn(connection)
    return tuple(client.id for client in keyring.present().values() if client.number not in gone)


def strangers(connection: sa.Connection, keyring: Keyring, ids: Sequence[str]) -> tuple[str, ...]:
    """Those of these who are not clients of the run, or have been withdrawn from it."""
    known, gone = keyring.find_all(ids), withdrawn(connection)
    return tuple(client for client in ids if client not in known or known[client].number in gone)


def withdrawn(connection: sa.Connection) -> set[int]:
    """The numbers of clients who are withdrawn, but not forgotten yet."""
    query = sa.select(requests.c.client).where(requests.c.client.is_not(None), requests.c.erasure.is_not(None))
    return set(connection.execute(query).scalars())


def leaving(connection: sa.Connection) -> set[int]:
    """The same without those who stay, and only have records erased."""
    query = sa.select(requests.c.client).where(
        requests.c.client.is_not(None), requests.c.erasure.is_not(None), requests.c.successor.is_(None)
    )
    return set(connection.execute(query).scalars())


def names_somebody(keyring: Keyring, text: str) -> bool:
    """Say whether a short text, such as the name of a metric, contains the id of somebody who is or was in the run.

    Ids count as whole names: `accuracy/client-03` names `client-03`, `recall_at_10` nobody called `1`. One of less
    than four characters is found only between slashes, colons, spaces or brackets, or as all of the text.

    Args:
        keyring: The run's keyring.
        text: The text.

    """
    words = [match.span() for match in _WORD.finditer(text)]
    # of more words nobody can say, and no metric needs such a name
    return len(words) > _MOST_WORDS or names_client(keyring, text)


def names_client(keyring: Keyring, text: str) -> bool:
    """Say whether a text of any length contains the id of somebody who is or was in the run; see `names_somebody`.

    An id of more words than a metric may have is found only where it is all of the text.

    Args:
        keyring: The run's keyring.
        text: The text.

    """
    words = [match.span() for match in _WORD.finditer(text)]
    spans = {text[start:end] for i, (start, _) in enumerate(words) for _, end in words[i : i + _MOST_WORDS]}
    return bool(keyring.known_among([text, *_BETWEEN.split(text), *(span for span in spans if len(span) >= _LONG)]))


# -- the anchors of fixed clusters ---------------------------------------------------------------------------


def load_anchors(connection: sa.Connection, keyring: Keyring) -> Anchors | None:
    """The anchors of a run, with the places of all who have not been withdrawn; None where none are settled."""
    found = connection.execute(sa.select(anchors).order_by(anchors.c.number)).all()
    if not found:
        return None
    gone = withdrawn(connection)
    present = [client for client in keyring.present().values() if client.number not in gone]
    assignments = {
        client: Place(details.anchor, details.share)
        for client, details in _known(connection, keyring, present).items()
        if details.anchor is not None
    }
    return Anchors(tuple(Anchor(row.until, row.capacity, int(row.share)) for row in found), assignments)


def store_anchors(connection: sa.Connection, keyring: Keyring, settled: Anchors) -> None:
    """Keep these anchors instead of those before them. Places of clients who are not in the run are left out."""
    for number, anchor in enumerate(settled.clusters):
        row: rows.Row = {
            "number": number,
            "until": anchor.until,
            "capacity": anchor.capacity,
            "share": str(anchor.share),
        }
        row["checksum"] = rows.anchor_checksum(row)
        if connection.execute(anchors.update().where(anchors.c.number == number).values(row)).rowcount == 0:
            connection.execute(anchors.insert().values(row))
    clients = keyring.find_all(list(settled.assignments))
    known = _known(connection, keyring, clients.values())
    changed = {}
    for client, place in settled.assignments.items():
        if client in clients:
            before = known.get(client, Known())
            details = replace(before, anchor=place.cluster, share=place.share)
            if details != before:
                changed[clients[client]] = details
    _keep(connection, keyring, changed)


def known_in_fixed_clusters(connection: sa.Connection, keyring: Keyring) -> list[Known]:
    """What is known of all clients in the keyring who have a place in a fixed cluster, withdrawn ones too."""
    known = _known(connection, keyring, keyring.present().values())
    return [details for details in known.values() if details.anchor is not None]


def forget(connection: sa.Connection, keyring: Keyring, numbers: Sequence[int]) -> None:
    """Delete what the run knows of clients who are about to be forgotten."""
    for client in keyring.by_number(numbers).values():
        connection.execute(members.delete().where(members.c.token == _token(keyring, client)))


def _token(keyring: Keyring, client: ClientKey) -> bytes:
    return pseudonyms.derive(client.first, "member", keyring.run_id.encode())


def _known(connection: sa.Connection, keyring: Keyring, clients: Iterable[ClientKey]) -> dict[str, Known]:
    """What the run knows of clients, in their order; nothing of those who are not in its table."""
    wanted = {_token(keyring, client): client for client in clients}
    found: dict[str, bytes] = {}
    for some in batches(wanted):
        for row in connection.execute(sa.select(members).where(members.c.token.in_(some))):
            found[wanted[row.token].id] = row.sealed
    return {
        client.id: _opened(keyring, client, found[client.id]) for client in wanted.values() if client.id in found
    }


def _keep(connection: sa.Connection, keyring: Keyring, known: Mapping[ClientKey, Known]) -> None:
    for client, details in known.items():
        text = json.dumps([details.anchor, None if details.share is None else str(details.share), details.data])
        sealed = pseudonyms.seal(client.first, _place(keyring), text.encode().ljust(_SEALED_BYTES))
        token = _token(keyring, client)
        changed = connection.execute(members.update().where(members.c.token == token).values(sealed=sealed))
        if changed.rowcount == 0:
            connection.execute(members.insert().values(token=token, sealed=sealed))


def _opened(keyring: Keyring, client: ClientKey, sealed: bytes) -> Known:
    found = pseudonyms.open_sealed(client.first, _place(keyring), sealed)
    if found is None:
        raise IntegrityError("what the run knows of a client is not what was recorded")
    anchor, share, data = json.loads(found)
    return Known(anchor, None if share is None else int(share), data)


def _place(keyring: Keyring) -> bytes:
    return b"known/" + keyring.run_id.encode()
