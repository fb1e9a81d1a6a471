"""What an erasure asks for: clients, or records of clients that stay; and which of them cannot be asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from disavow.domain import escaped
from disavow.errors import CannotRetrain, ConfigError, RecordsUnchecked, TaskError, UnknownClient, UnknownRecord
from disavow.ledger import Reader
from disavow.ledger.requests import erased_before

if TYPE_CHECKING:
    from disavow.tasks.loading import LoadedTask

Clients = Sequence[str] | str | Mapping[str, Sequence[str]]
"""Ids of clients; or the keys of records, by client."""

_LIKE = 0.6
"""How alike two ids or keys must be for one to be suggested in the place of the other; as `difflib` counts."""

_UNCHECKED = "`--unchecked` (unchecked=True) asks for them without looking"


@dataclass(frozen=True)
class ErasureScope:
    """What an erasure is to remove.

    Args:
        clients: Who is to be forgotten.
        records: Which records of clients that stay, by client.
        everywhere: Records to look for at every client, and to erase wherever they are.

    """

    clients: tuple[str, ...] = ()
    records: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    everywhere: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """All clients that are named."""
        return (*self.clients, *self.records)

    @property
    def names_records(self) -> bool:
        """Whether records are asked for, and not whole clients."""
        return bool(self.records or self.everywhere)


def scope_of(
    clients: Clients | None, records: Sequence[str] | str | None, everywhere: Sequence[str] | str | None
) -> ErasureScope:
    """Read what `erase` and `forecast` were called with.

    Args:
        clients: Who is to be forgotten, or has the records; or the records by client.
        records: The records of these clients; None: all of each client.
        everywhere: Records to erase wherever they are.

    Raises:
        ConfigError: These do not go together, or nothing is named.

    """
    if everywhere is not None:
        if clients is not None or records is not None:
            raise ConfigError(
                "everywhere finds the clients by itself; allowed: clients and their records, or everywhere; "
                "nothing was changed"
            )
        return ErasureScope(everywhere=_once(everywhere, "everywhere"))
    if isinstance(clients, Mapping):
        if records is not None:
            raise ConfigError("records are given twice: by client, and for all of them; allowed: one or the other")
        if not clients:
            raise ConfigError("no client is named; allowed: one at least")
        named = {client: _once(keys, f"the records of {escaped(client)}") for client, keys in clients.items()}
        return ErasureScope(records=named)
    ids = (clients,) if isinstance(clients, str) else tuple(dict.fromkeys(clients or ()))
    if not ids and (clients is None or records is not None):
        raise ConfigError(
            "no client is named; allowed: one at least, or records with `--everywhere` (everywhere=); nothing was "
            "changed"
        )
    if records is None:
        return ErasureScope(clients=ids)
    keys = _once(records, "records")
    return ErasureScope(records=dict.fromkeys(ids, keys))


def _once(keys: Sequence[str] | str, what: str) -> tuple[str, ...]:
    found = (keys,) if isinstance(keys, str) else tuple(dict.fromkeys(keys))
    if not found:
        raise ConfigError(f"{what} is empty; allowed: the key of one record at least; nothing was changed")
    if "" in found:
        raise ConfigError(f"{what} has an empty key; allowed: keys of one character at least; nothing was changed")
    return found


@contextmanager
def looking() -> Iterator[None]:
    """Say of a task that cannot be loaded that nobody can look for records in it.

    Raises:
        RecordsUnchecked: It cannot be loaded, or does not name its records as it should.

    """
    try:
        yield
    except (CannotRetrain, ConfigError, TaskError) as error:
        raise RecordsUnchecked(
            f"whether a client holds the records cannot be looked up here: {error}; nothing was changed "
            f"({_UNCHECKED})"
        ) from error


def checked(reader: Reader, scope: ErasureScope, load: Callable[[], LoadedTask]) -> ErasureScope:
    """Look for the records in the task, and refuse those that cannot be erased.

    Args:
        reader: The run; it has every client that is named.
        scope: What the erasure is to remove.
        load: Loads the run's task, without the records that were erased before.

    Returns:
        The same, with the clients that hold what is to be erased everywhere.

    Raises:
        UnknownRecord: A client does not hold one of them.
        RecordErased: One of them was erased before.
        RecordsUnchecked: The task has no keys for records, cannot be loaded, or has no other ones of a client.

    """
    refuse_erased(reader, scope)
    with looking():
        task = load()
        if scope.everywhere:
            scope = ErasureScope(records=_holders(reader, task, scope.everywhere))
        held = {client: task.record_keys(client) for client in scope.records}
    for client, keys in scope.records.items():
        _refuse_unknown(reader, client, keys, held[client])
    return scope


def refuse_erased(reader: Reader, scope: ErasureScope) -> None:
    """Refuse records that were erased before.

    Args:
        reader: The run; it has every client that is named.
        scope: What the erasure is to remove.

    Raises:
        RecordErased: One of them was erased before.

    """
    for client, keys in scope.records.items():
        if reader.find_record_request(client, keys) is not None:
            continue  # asked before, and not answered yet: that answer counts
        excluded = reader.exclusions([client])[client]
        for key in keys:
            if excluded.excludes(key):
                raise erased_before(client, key)


def why_not(reader: Reader, number: int, client: str, held: Sequence[str] | None) -> str | None:
    """Say why a request for records that waits cannot be answered, naming none of them; None where it can.

    Args:
        reader: The run.
        number: The request.
        client: Whose records they are.
        held: The records that the client holds; None where the task does not name them.

    """
    if held is None:
        return "the task does not name records"
    if not set(reader.requested_records(number)) <= set(held):
        return "unknown record"
    if set(held) <= reader.records_waiting(client):
        return "these are all records that there are: the whole client is to be erased instead"
    return None


def unknown_client(client: str, known: Sequence[str]) -> UnknownClient:
    """The refusal of an id that nobody in the run has, with ids that may have been meant.

    Several, because numbered ids are equally alike, and whoever pastes the wrong one erases somebody else.
    """
    like = get_close_matches(client, known, n=3, cutoff=_LIKE)
    hint = f"; did you mean {' or '.join(map(escaped, like))}?" if like else ""
    return UnknownClient(f"{client!r} is not a client of this run, or has left it; nothing was changed{hint}")


def _holders(reader: Reader, task: LoadedTask, keys: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Who holds which of these records."""
    wanted, found, named = set(keys), {}, False
    for client in reader.clients():
        held = task.record_keys(client)
        named = named or held is not None
        mine = wanted.intersection(held or ())
        if mine:
            found[client] = tuple(key for key in keys if key in mine)
    if not named:
        raise _unnamed("the clients")
    lacking = wanted.difference(*found.values())
    if lacking:
        _refuse_erased_everywhere(reader, min(lacking))
        raise UnknownRecord(f"no client holds record {escaped(min(lacking))}; nothing was changed")
    return found


def _refuse_erased_everywhere(reader: Reader, key: str) -> None:
    clients = reader.clients()
    for client, excluded in reader.exclusions(clients).items():
        if excluded.excludes(key):
            raise erased_before(client, key)


def _refuse_unknown(reader: Reader, client: str, keys: Sequence[str], held: Sequence[str] | None) -> None:
    if held is None:
        raise _unnamed(escaped(client))
    if reader.find_record_request(client, keys) is not None:
        return
    present = set(held)
    for key in keys:
        if key not in present:
            like = get_close_matches(key, sorted(present), n=3, cutoff=_LIKE)
            hint = f"; did you mean {' or '.join(map(escaped, like))}?" if like else ""
            raise UnknownRecord(
                f"{escaped(client)} holds no record {escaped(key)}; nothing was changed{hint} (where its data is "
                "gone already, `disavow erase --unchecked` asks for it all the same)"
            )
    if present <= {*keys, *reader.records_waiting(client)}:
        raise RecordsUnchecked(
            f"these are all records that {escaped(client)} holds; nothing was changed: erase the client instead"
        )


def _unnamed(whose: str) -> RecordsUnchecked:
    return RecordsUnchecked(
        f"the task does not name the records of {whose}, so that none can be erased by itself; nothing was changed "
        "(record_keys in docs/tasks.md)"
    )
