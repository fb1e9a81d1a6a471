"""Which clients are here: nodes that are connected, matched with the clients of the ledger.

Whoever connects for the first time becomes a client; whoever has been erased is recognised by the tombstone and
never takes part again; two nodes that claim one id take no part at all while both are connected.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from disavow.domain import ErasureRequest, RequestState
from disavow.engines.flower.exchange import exchange
from disavow.engines.flower.identity import Identity, Person, by_claim, by_key
from disavow.engines.flower.names import ASK, CLIENT_ID, QUERY, RECORD
from disavow.engines.flower.reporting import inform, warn
from disavow.ledger import Ledger
from disavow.ledger.requests import find

_ASKING_SECONDS = 60.0
_MOST_ASKED = 3
"""How often a node is asked who it is, before its silence is the answer."""

_PAUSE = 1.0


class Roster:
    """The clients that can be reached, and their nodes. Looks again whenever it is asked to."""

    def __init__(self, grid: Grid, ledger: Ledger, *, key: bytes, identity: Identity) -> None:
        self._grid, self._ledger, self._key, self._identity = grid, ledger, key, identity
        self._people: dict[int, Person | None] = {}
        self._members: dict[str, int] = {}
        self._leavers: dict[int, tuple[int, Person]] = {}
        self._told: set[str] = set()
        self._asked: Counter[int] = Counter()
        self._understood: bool | None = None
        self._gathered = False

    @property
    def members(self) -> Mapping[str, int]:
        """The clients here that can take part, and their nodes, as of the last look."""
        return self._members

    @property
    def leavers(self) -> Mapping[int, tuple[int, Person]]:
        """The nodes here whose client has left, by the number of its request that has been answered."""
        return self._leavers

    def gather(self, at_first: int, at_least: int, *, timeout: float) -> Mapping[str, int]:
        """Look until enough clients are here, or until the time is over; those who are.

        `at_least` so many, and k, but no more than are still in: a round that waited for leavers would wait in
        vain. Before the first round of a session not everybody may be known: then both `at_first` and `at_least`,
        less those who have left.
        """
        count = max(self._ledger.policy.k, min(at_least, len(self._ledger.clients())))
        if not self._gathered:
            count = max(count, max(at_first, at_least) - len(self._left()))
        self._wait_for(count, timeout)
        self._gathered = True
        return self._members

    def _left(self) -> list[ErasureRequest]:
        """The requests of those who have left, or are being taken out."""
        return [request for request in self._ledger.requests() if request.state is not RequestState.WAITING]

    def _wait_for(self, count: int, timeout: float) -> None:
        ends, told = time.monotonic() + timeout, False
        while len(self.look()) < count and time.monotonic() < ends:
            if not told:
                inform(f"waiting for nodes: {len(self._members)} clients are here, {count} are needed")
                told = True
            time.sleep(_PAUSE)

    def look(self) -> Mapping[str, int]:
        """Match the nodes that are connected now with the clients of the run; those who can take part."""
        nodes = {node.node_id: node for node in self._grid.get_nodes()}
        self._meet([node for number, node in nodes.items() if number not in self._people])
        here = {number: person for number in nodes if (person := self._people.get(number)) is not None}
        alone = self._without_rivals(here)
        self._members, self._leavers = {}, {}
        newcomers, known = [], set(self._ledger.clients())
        for number, person in alone.items():
            request = None if person.client in known else self._request_of(person.client)
            if request is None:
                self._members[person.client] = number
                newcomers += [person.client] if person.client not in known else []
            elif request >= 0:
                self._leavers[request] = (number, person)
        if newcomers:
            self._ledger.register(newcomers, key=self._key)
        return self._members

    def _request_of(self, client: str) -> int | None:
        """The number of the request by which a client left; -1 while it is not answered, None for who is in."""
        with self._ledger.snapshot() as connection:
            request = find(connection, client, key=self._key)
        if request is None or request.state is RequestState.WAITING:
            return None
        return request.number if request.state is RequestState.ANSWERED else -1

    def _without_rivals(self, here: Mapping[int, Person]) -> dict[int, Person]:
        claims = defaultdict(list)
        for number, person in here.items():
            claims[person.client].append(number)
        for client, numbers in claims.items():
            if len(numbers) > 1:
                self._warn_once(f"nodes {numbers} all claim to be {client!r}: none of them takes part")
        return {numbers[0]: here[numbers[0]] for numbers in claims.values() if len(numbers) == 1}

    def _meet(self, nodes: Iterable[NodeInfo]) -> None:
        """Find out who is behind nodes that are seen for the first time."""
        strangers = []
        for node in nodes:
            person = by_key(node, self._identity)
            if person is not None:
                self._people[node.node_id] = person
            elif self._identity == "key":
                self._people[node.node_id] = None
                self._warn_once(f"node {node.node_id} has no key that it could be known by: it takes no part")
            else:
                strangers.append(node.node_id)
        self._ask(strangers)

    def _ask(self, strangers: list[int]) -> None:
        """Ask nodes without a key who they are.

        In a simulation one app runs on all of them: if the first does not understand, no other is asked.
        """
        if self._identity == "auto" and self._understood is None and strangers:
            reply = self._answers(strangers[:1]).get(strangers[0])
            self._understood = None if reply is None else not reply.has_error()
            if self._understood is False:
                inform("the app does not say who its nodes are (docs/flower.md): they go by Flower's numbers")
        answers = {} if self._understood is False else self._answers(strangers)
        for number in strangers:
            reply = answers.get(number)
            self._asked[number] += 1
            if reply is None and self._understood is not False and self._asked[number] < _MOST_ASKED:
                continue  # it may only be slow: ask again at the next look
            person = by_claim(reply, self._identity, number)
            self._people[number] = person
            if person is None:
                self._warn_once(f"node {number} does not say who it is (node config `client-id`): it takes no part")

    def _answers(self, strangers: list[int]) -> Mapping[int, Message]:
        ask = RecordDict({RECORD: ConfigRecord({ASK: CLIENT_ID})})
        messages = [Message(ask, number, QUERY, ttl=_ASKING_SECONDS) for number in strangers]
        return exchange(self._grid, messages, timeout=_ASKING_SECONDS)

    def _warn_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            warn(text)
