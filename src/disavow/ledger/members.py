"""Who filled which slot: what the run's rows say to whoever has the keyring."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from disavow.errors import IntegrityError
from disavow.ledger import pseudonyms
from disavow.ledger.keyring import ClientKey, Keyring
from disavow.ledger.pseudonyms import RoundName, TokenContext
from disavow.ledger.schema import memberships, rounds, withdrawals

UNKNOWN = 0
"""Stands for the number of whoever was forgotten and has slots that were never withdrawn: the run was restored from
a backup. No client has it.
"""

_BATCH = 500
_REMEMBERED = 100_000
"""Clients whose tokens are remembered."""

_MADE_AT_ONCE = 100_000
"""Tokens that are made before they are looked up: some megabytes."""

_NOT_LOOKED: tuple[int, tuple[bytes, ...]] = (0, ())


@dataclass(frozen=True)
class Filled:
    """A slot, and what the client who filled it brought."""

    slot: int
    client: ClientKey
    salt: bytes
    samples: int
    update_digest: bytes
    where: RoundName
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class RequestSalts:
    """What opens the log's commitments to a request: to the rounds of its client, to who asked, to its records."""

    rounds: bytes
    client: bytes
    records: bytes


@dataclass(frozen=True)
class RoundKeys:
    """What a round is recorded by: its name, and the keys of its participants in the present epoch."""

    where: RoundName
    epoch: int
    keys: Mapping[str, bytes] = field(repr=False)


_NEWER = (
    sa.select(rounds.c.id, rounds.c.number, rounds.c.attempt, rounds.c.epoch, rounds.c.nonce, rounds.c.digest)
    .where(rounds.c.id > sa.bindparam("last"))
    .order_by(rounds.c.id)
)
_STANDING_AFTER = sa.select(sa.func.min(rounds.c.number)).where(
    rounds.c.standing, rounds.c.id > sa.bindparam("last")
)
_DIGEST = sa.select(rounds.c.digest).where(rounds.c.id == sa.bindparam("last"))
_AMONG = sa.select(memberships.c.token).where(memberships.c.token.in_(sa.bindparam("tokens", expanding=True)))
_OF_ROUND = sa.select(memberships.c.slot, memberships.c.token, memberships.c.sealed).where(
    memberships.c.round_id == sa.bindparam("round_id")
)


@dataclass(frozen=True)
class _RoundTokens:
    """A recorded round, prepared for tokens."""

    id: int
    digest: bytes
    epoch: int
    context: TokenContext


class Members:
    """The members of one run's rounds.

    Args:
        keyring: Who the clients are.
        run_id: The run.

    """

    def __init__(self, keyring: Keyring, run_id: str) -> None:
        self.keyring, self.run_id = keyring, run_id
        self._rounds: list[_RoundTokens] = []
        self._found: dict[int, tuple[int, tuple[bytes, ...]]] = {}

    def tokens(self, connection: sa.Connection, number: int) -> tuple[bytes, ...]:
        """Find the pseudonyms that a client has in the rounds it took part in: one look-up for each recorded round.

        Rounds are never deleted, so what was found before is not looked for again.

        Args:
            connection: The ledger.
            number: The client, by its number; `UNKNOWN` for all who were forgotten and never withdrawn.

        Returns:
            Its tokens, in the order of the rounds; none where the client has been forgotten.

        """
        return self.tokens_of(connection, [number])[number]

    def tokens_of(
        self, connection: sa.Connection, numbers: Sequence[int], *, first: int | None = None
    ) -> dict[int, tuple[bytes, ...]]:
        """Find the pseudonyms of several clients as `tokens` does; however many they are, the statements are few.

        Args:
            connection: The ledger.
            numbers: The clients, by their numbers.
            first: Look only at so many of the rounds that were recorded, the first ones. Tokens of others are given
                too, where they were found before.

        Returns:
            The tokens of each.

        """
        known = self.keyring.by_number([number for number in numbers if number != UNKNOWN])
        recorded, found = self._recorded(connection), self._found
        if len(found) + len(numbers) > _REMEMBERED:
            found.clear()
        given = {number: found.pop(number, _NOT_LOOKED) for number in numbers}
        at_once = max(1, _MADE_AT_ONCE // max(1, len(recorded[:first])))
        behind = [number for number in known if given[number][0] < len(recorded[:first])]
        for start in range(0, len(behind), at_once):
            made = {
                number: [
                    pseudonyms.token_in(each.context, known[number].at(each.epoch))
                    for each in recorded[given[number][0] : first]
                ]
                for number in behind[start : start + at_once]
            }
            every = [token for tokens in made.values() for token in tokens]
            there = {row.token for row in selected(connection, _AMONG, every)}
            for number, tokens in made.items():
                looked_at, before = given[number]
                mine = *before, *(token for token in tokens if token in there)
                given[number] = looked_at + len(tokens), mine
        found.update({number: given[number] for number in known})
        if UNKNOWN in given:
            given[UNKNOWN] = 0, tuple(token for _, token in self.unknown_slots(connection))
        return {
            number: tokens if number in known or number == UNKNOWN else () for number, (_, tokens) in given.items()
        }

    def standing_from(self, connection: sa.Connection, first: int) -> int | None:
        """Find the lowest standing round that was recorded after so many others; None where none was."""
        recorded = self._recorded(connection)[:first]
        last = recorded[-1].id if recorded else 0
        return connection.execute(_STANDING_AFTER, {"last": last}).scalar()

    def _recorded(self, connection: sa.Connection) -> list[_RoundTokens]:
        """All rounds that were ever recorded, in their order. Those that were read before are not read again."""
        if self._rounds:
            last = self._rounds[-1]
            if connection.execute(_DIGEST, {"last": last.id}).scalar() != last.digest:
                # it was read in a transaction that was given up, or another connection still sees an older state
                self._rounds, self._found = [], {}
        before = self._rounds
        newer = [
            _RoundTokens(row.id, row.digest, row.epoch, pseudonyms.token_context(self.name_of(row)))
            for row in connection.execute(_NEWER, {"last": before[-1].id if before else 0})
        ]
        if newer:
            self._rounds = before + newer
        return self._rounds

    def of_round(self, connection: sa.Connection, header: sa.Row[Any]) -> dict[int, Filled]:
        """Read who filled the slots of a round, in the order of slots; forgotten clients are left out.

        Linear in the clients of the run.

        Args:
            connection: The ledger.
            header: The round's row.

        Raises:
            IntegrityError: What a client brought is not what was recorded.

        """
        context = pseudonyms.token_context(self.name_of(header))
        known = {
            pseudonyms.token_in(context, client.at(header.epoch)): client
            for client in self.keyring.present().values()
        }
        rows = connection.execute(_OF_ROUND, {"round_id": header.id}).all()
        found = {}
        for row in sorted(rows, key=lambda row: row.slot):
            client = known.get(row.token)
            if client is not None:
                found[row.slot] = self.opened(client, header, row)
        return found

    def opened(self, client: ClientKey, header: Any, row: Any) -> Filled:
        """Open what a client brought to a round.

        Args:
            client: The client.
            header: The round's row, or any row with its number, attempt, epoch and nonce.
            row: The membership's slot and what is sealed in it.

        Raises:
            IntegrityError: It is not what was recorded.

        """
        where, key = self.name_of(header), client.at(header.epoch)
        brought = pseudonyms.open_member(key, where, row.slot, row.sealed)
        if brought is None:
            raise IntegrityError(
                f"the membership of slot {row.slot} in round {header.number} is not the one that was recorded"
            )
        samples, digest = brought
        return Filled(row.slot, client, pseudonyms.salt(key, where), samples, digest, where, key)

    def unknown_slots(self, connection: sa.Connection) -> list[tuple[int, bytes]]:
        """Find slots of clients who have no key and were never withdrawn: the row of the round, and the token.

        Every client is tried in every round: for runs that were restored from a backup, and for checks.

        Args:
            connection: The ledger.

        """
        gone = {(row.round_id, row.slot) for row in connection.execute(sa.select(withdrawals))}
        present = list(self.keyring.present().values())
        found = []
        for header in connection.execute(_NEWER, {"last": 0}).all():
            context = pseudonyms.token_context(self.name_of(header))
            known = {pseudonyms.token_in(context, client.at(header.epoch)) for client in present}
            found += [
                (header.id, row.token)
                for row in connection.execute(_OF_ROUND, {"round_id": header.id})
                if row.token not in known and (header.id, row.slot) not in gone
            ]
        return found

    def request_salts(self, number: int, nonce: bytes) -> RequestSalts:
        """Derive what opens the log's commitments to a request.

        Args:
            number: The client, by its number.
            nonce: What was drawn for the request.

        Raises:
            LedgerError: The client has been forgotten.

        """
        client = self.keyring.by_number([number])[number]
        context = self.run_id.encode() + nonce
        names = ("request-rounds", "request-client", "request-records")
        return RequestSalts(*(pseudonyms.derive(client.first, name, context) for name in names))

    def keys_for(self, number: int, attempt: int, clients: Sequence[str]) -> RoundKeys:
        """Draw the name of a round that is about to be recorded, and look up the keys of its participants.

        Args:
            number: The round's number.
            attempt: Which attempt at it.
            clients: Who takes part.

        """
        epoch = self.keyring.epoch
        where = RoundName(self.run_id, number, attempt, secrets.token_bytes(pseudonyms.NONCE_BYTES))
        found = self.keyring.find_all(clients)
        return RoundKeys(where, epoch, {client: key.at(epoch) for client, key in found.items()})

    def name_of(self, header: Any) -> RoundName:
        """Name a round by its row."""
        return RoundName(self.run_id, header.number, header.attempt, header.nonce)

    def ids_of(self, numbers: Sequence[int]) -> dict[int, str]:
        """Give the ids of those of these clients who are in the keyring; none where there is no keyring."""
        if not self.keyring.exists:
            return {}
        return {number: client.id for number, client in self.keyring.by_number(numbers).items()}


def batches(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Cut values into lists that one statement takes."""
    ordered = list(values)
    return (ordered[start : start + _BATCH] for start in range(0, len(ordered), _BATCH))


def selected(
    connection: sa.Connection, query: sa.Select[Any], tokens: Sequence[bytes], **values: Any
) -> Iterator[Any]:
    """Run a query that takes `tokens` for some of them after the other."""
    for some in batches(tokens):
        yield from connection.execute(query, {"tokens": some, **values})


def has_tokens() -> sa.ColumnElement[bool]:
    """Say in a query that a membership is one of `tokens`."""
    return memberships.c.token.in_(sa.bindparam("tokens", expanding=True))
