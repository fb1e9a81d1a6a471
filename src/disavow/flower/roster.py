"""Match the nodes that are connected with the clients of the run.

Whoever connects for the first time becomes a client; whoever has been erased is recognised by its tombstone and
never takes part again; two nodes that claim one id take no part at all while both are connected.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from disavow.flower.identity import (
    Identity,
    NodeIdentity,
    admissible,
    identity_by_claim,
    identity_by_key,
    identity_by_number,
    is_number,
    lacks_query,
    refuse_other_numbers,
)
from disavow.flower.log import inform, warn
from disavow.flower.messages import exchange
from disavow.flower.node_keys import fingerprint
from disavow.flower.protocol import ASK, CLIENT_ID, QUERY, RECORD
from disavow.ledger import Ledger

_QUERY_SECONDS = 60.0
_MOST_QUERIES = 3
"""How often a node that fails to say who it is is asked again at the next refresh; after that, once a round."""

_PAUSE = 1.0


class Roster:
    """The clients that can be reached, and their nodes, as of the last `refresh`.

    Args:
        grid: Flower's grid.
        ledger: The run, open for writing.
        identity: Where ids come from.

    Attributes:
        members: The nodes of clients that can take part, by client.
        leavers: The nodes of clients that have left and were forgotten, by client.

    """

    def __init__(self, grid: Grid, ledger: Ledger, *, identity: Identity) -> None:
        self._grid, self._ledger, self._identity = grid, ledger, identity
        self.members: dict[str, int] = {}
        self.leavers: dict[str, tuple[int, NodeIdentity]] = {}
        self._identities: dict[int, NodeIdentity | None] = {}
        self._warned: set[str] = set()
        self._queries: Counter[int] = Counter()
        self._queried_this_round: set[int] = set()
        self._by_number: bool | None = None if identity == "auto" else False
        self._waited = self._numbers_checked = False

    def wait_for_clients(self, at_first: int, at_least: int, *, timeout: float) -> Mapping[str, int]:
        """Refresh until enough clients are here, or until the time is over.

        `at_least` so many, and k, but no more than are still in: a round that waited for leavers would wait in
        vain. Before the first round of a start not everybody may be known: then both `at_first` and `at_least`,
        less those who have left.

        Args:
            at_first: How many nodes a start waits for.
            at_least: How many nodes a round waits for.
            timeout: Seconds to wait.

        Returns:
            The nodes of the clients that are here, by client.

        """
        self._queried_this_round.clear()
        count = max(self._ledger.policy.k, min(at_least, len(self._ledger.clients())))
        if not self._waited:
            left = sum(request.judged for request in self._ledger.requests())
            count = max(count, max(at_first, at_least) - left)
        ends, informed = time.monotonic() + timeout, False
        while len(self.refresh()) < count and time.monotonic() < ends:
            if not informed:
                here = f"{len(self.members)} clients are here, {count} are needed"
                inform(f"waiting for nodes: {here}{self._simulation_hint(count)}")
                informed = True
            time.sleep(_PAUSE)
        self._waited = True
        return self.members

    def _simulation_hint(self, count: int) -> str:
        """How a simulation, in which no node has a key, comes to have so many nodes; by itself it has two."""
        if any(fingerprint(node.public_key) for node in self._grid.get_nodes()):
            return ""
        return f'; flwr run --federation-config "num-supernodes={count}" simulates as many'

    def refresh(self) -> Mapping[str, int]:
        """Match the nodes that are connected now with the clients of the run; those who can take part."""
        nodes = {node.node_id: node for node in self._grid.get_nodes()}
        self._identify([node for number, node in nodes.items() if number not in self._identities])
        here = {number: known for number in nodes if (known := self._identities.get(number)) is not None}
        if here and not self._numbers_checked:
            refuse_other_numbers(self._ledger, nodes, [each.client for each in here.values()], self._warn_once)
            self._numbers_checked = True
        self.members, self.leavers = {}, {}
        newcomers: dict[str, int] = {}
        clients = set(self._ledger.clients())
        for number, known in self._without_rivals(here).items():
            if known.client in clients:
                self.members[known.client] = number
            elif self._ledger.has_left(known.client):
                self.leavers[known.client] = (number, known)
            elif not self._is_leaving(known.client):
                newcomers[known.client] = number
        admitted = admissible(self._ledger, list(newcomers), self._warn_once)
        if admitted:
            self._ledger.register(admitted)
            self.members |= {client: newcomers[client] for client in admitted}
        return self.members

    def _is_leaving(self, client: str) -> bool:
        """Whether a client is withdrawn, and not forgotten yet."""
        request = self._ledger.find_request(client)
        return request is not None and request.judged

    def _without_rivals(self, here: Mapping[int, NodeIdentity]) -> dict[int, NodeIdentity]:
        claims = defaultdict(list)
        for number, known in here.items():
            claims[known.client].append(number)
        for client, numbers in claims.items():
            if len(numbers) > 1:
                self._warn_once(f"nodes {numbers} all claim to be {client!r}: none of them takes part")
        return {numbers[0]: here[numbers[0]] for numbers in claims.values() if len(numbers) == 1}

    def _identify(self, nodes: Iterable[NodeInfo]) -> None:
        """Find out who is behind nodes that are not known yet."""
        without_key = []
        for node in nodes:
            known = identity_by_key(node, self._identity)
            if known is not None:
                self._identities[node.node_id] = known
            elif self._identity == "key":
                self._identities[node.node_id] = None
                self._warn_once(f"node {node.node_id} has no key that it could be known by: it takes no part")
            else:
                without_key.append(node.node_id)
        self._query(without_key)

    def _query(self, nodes: list[int]) -> None:
        """Ask nodes without a key who they are; whoever fails to answer takes no part, and is asked again later.

        In a simulation one app runs on all of them: if the first has no answer to give, no other is asked.
        """
        due = [n for n in nodes if self._queries[n] < _MOST_QUERIES or n not in self._queried_this_round]
        replies: dict[int, Message] = {}
        question = RecordDict({RECORD: ConfigRecord({ASK: CLIENT_ID})})
        for some in (due[:1], due[1:]):
            if self._by_number is not True:
                messages = [Message(question, number, QUERY, ttl=_QUERY_SECONDS) for number in some]
                replies |= exchange(self._grid, messages, timeout=_QUERY_SECONDS)
                self._decide_numbers(replies.values())
        for number in due:
            self._queries[number] += 1
            self._queried_this_round.add(number)
            self._note_identity(number, replies.get(number))

    def _decide_numbers(self, replies: Iterable[Message]) -> None:
        """Decide whether nodes go by their numbers: never where one has said who it is, now or at another start."""
        if self._identity != "auto" or self._by_number is not None:
            return
        if any(reply.has_content() for reply in replies):
            self._by_number = False
        elif any(lacks_query(reply) for reply in replies):
            self._by_number = all(is_number(client) for client in self._ledger.clients())

    def _note_identity(self, number: int, reply: Message | None) -> None:
        """Note who a node is; nothing where it may yet say so."""
        if self._by_number:
            self._identities[number] = identity_by_number(number)
            return
        known = identity_by_claim(reply, self._identity)
        if lacks_query(reply) or (reply is not None and reply.has_content()):
            self._identities[number] = known  # neither an app nor a node config changes while it runs
        if known is None:
            self._warn_once(f"node {number} does not say who it is ({_why_unknown(reply)}): it takes no part")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


def _why_unknown(reply: Message | None) -> str:
    if reply is None:
        return "no answer"
    if lacks_query(reply):
        return 'its app lacks the line `app.query("disavow")(answer)`'
    return str(reply.error.reason).strip() if reply.has_error() else "no `client-id` in its node config"
