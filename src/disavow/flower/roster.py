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
from disavow.flower.admission import admitted, refuse_other_numbers
from disavow.flower.exchange import exchange
from disavow.flower.identity import (
    Identity,
    Person,
    by_claim,
    by_key,
    by_number,
    fingerprint,
    is_number,
    knows_no_question,
)
from disavow.flower.log import inform, warn
from disavow.flower.protocol import ASK, CLIENT_ID, QUERY, RECORD
from disavow.ledger import Ledger

_ASKING_SECONDS = 60.0
_MOST_ASKED = 3
"""How often a node that fails to say who it is is asked again at the next look; after that, once a round."""

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
        self._asked_now: set[int] = set()
        self._numbered: bool | None = None if identity == "auto" else False
        self._gathered = self._recognised = False

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
        self._asked_now.clear()
        count = max(self._ledger.policy.k, min(at_least, len(self._ledger.clients())))
        if not self._gathered:
            count = max(count, max(at_first, at_least) - len(self._left()))
        self._wait_for(count, timeout)
        self._gathered = True
        return self._members

    def _left(self) -> list[ErasureRequest]:
        """The requests of those who have left, or are being taken out."""
        return [request for request in self._ledger.requests() if request.judged]

    def _wait_for(self, count: int, timeout: float) -> None:
        ends, told = time.monotonic() + timeout, False
        while len(self.look()) < count and time.monotonic() < ends:
            if not told:
                here = f"{len(self._members)} clients are here, {count} are needed"
                inform(f"waiting for nodes: {here}{self._hint(count)}")
                told = True
            time.sleep(_PAUSE)

    def _hint(self, count: int) -> str:
        """How a simulation, in which no node has a key, comes to have so many nodes; by itself it has two."""
        if any(fingerprint(node.public_key) for node in self._grid.get_nodes()):
            return ""
        return f'; flwr run --federation-config "num-supernodes={count}" simulates as many'

    def look(self) -> Mapping[str, int]:
        """Match the nodes that are connected now with the clients of the run; those who can take part."""
        nodes = {node.node_id: node for node in self._grid.get_nodes()}
        self._meet([node for number, node in nodes.items() if number not in self._people])
        here = {number: person for number in nodes if (person := self._people.get(number)) is not None}
        if here and not self._recognised:
            refuse_other_numbers(self._ledger, nodes, [p.client for p in here.values()], self._warn_once)
            self._recognised = True
        alone = self._without_rivals(here)
        self._members, self._leavers = {}, {}
        newcomers: dict[str, int] = {}
        known = set(self._ledger.clients())
        for number, person in alone.items():
            request = None if person.client in known else self._request_of(person.client)
            if request is None:
                (self._members if person.client in known else newcomers)[person.client] = number
            elif request >= 0:
                self._leavers[request] = (number, person)
        self._admit(newcomers)
        return self._members

    def _admit(self, newcomers: Mapping[str, int]) -> None:
        """Make clients of those who may become one."""
        clients = admitted(self._ledger, list(newcomers), self._warn_once)
        if clients:
            self._ledger.register(clients, key=self._key)
            self._members |= {client: newcomers[client] for client in clients}

    def _request_of(self, client: str) -> int | None:
        """The number of the request by which a client left; -1 while it is not answered, None for who is in."""
        request = self._ledger.find_request(client, key=self._key)
        if request is None and self._ledger.has_left(client, key=self._key):
            return -1  # this run was restored from a backup that is older than its first meeting with this client
        if request is None or not request.judged:
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
        """Ask nodes without a key who they are; whoever fails to answer takes no part, and is asked again later.

        In a simulation one app runs on all of them: if the first has no answer to give, no other is asked.
        """
        due = [n for n in strangers if self._asked[n] < _MOST_ASKED or n not in self._asked_now]
        replies: dict[int, Message] = {}
        for some in (due[:1], due[1:]):
            if self._numbered is not True:
                replies |= self._answers(some)
                self._decide(replies.values())
        for number in due:
            self._asked[number] += 1
            self._asked_now.add(number)
            self._learn(number, replies.get(number))

    def _decide(self, replies: Iterable[Message]) -> None:
        """Whether nodes go by their numbers: never where one has said who it is, now or in an earlier session."""
        if self._identity != "auto" or self._numbered is not None:
            return
        if any(reply.has_content() for reply in replies):
            self._numbered = False
        elif any(knows_no_question(reply) for reply in replies):
            self._numbered = all(is_number(client) for client in self._ledger.clients())

    def _learn(self, number: int, reply: Message | None) -> None:
        """Take down who a node is; nothing where it may yet say so."""
        if self._numbered:
            self._people[number] = by_number(number)
            return
        person = by_claim(reply, self._identity)
        if knows_no_question(reply) or (reply is not None and reply.has_content()):
            self._people[number] = person  # neither an app nor a node config changes while it runs
        if person is None:
            why = _why_nameless(reply)
            self._warn_once(f"node {number} does not say who it is ({why}): it takes no part")

    def _answers(self, strangers: list[int]) -> Mapping[int, Message]:
        ask = RecordDict({RECORD: ConfigRecord({ASK: CLIENT_ID})})
        messages = [Message(ask, number, QUERY, ttl=_ASKING_SECONDS) for number in strangers]
        return exchange(self._grid, messages, timeout=_ASKING_SECONDS)

    def _warn_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            warn(text)


def _why_nameless(reply: Message | None) -> str:
    if reply is None:
        return "no answer"
    if knows_no_question(reply):
        return 'its app lacks the line `app.query("disavow")(answer)`'
    return str(reply.error.reason).strip() if reply.has_error() else "no `client-id` in its node config"
