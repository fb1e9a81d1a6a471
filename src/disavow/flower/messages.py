"""Send messages to nodes: whom they may reach, what each client's carries, and evidence outside of rounds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from disavow.erasure.receipts import receipts, receipts_of_round
from disavow.flower import exclusions
from disavow.flower.identity import lacks_query
from disavow.flower.log import inform, warn
from disavow.flower.opened_requests import OpenedRequest, OpenedRequests
from disavow.flower.protocol import (
    ATTEMPT,
    BATCHES,
    CLIENT,
    EXCLUSIONS,
    NUMBER,
    OPENING,
    PROOF,
    PUBLIC_KEY,
    QUERY,
    REASON,
    RECEIPT,
    RECORD,
    REQUESTS_ANSWERED,
    ROUND,
    RUN,
    SECOND,
    SEED,
    VERIFIED,
)
from disavow.ledger import Ledger
from disavow.ledger.proofs import ProofStore
from disavow.rounds.randomness import derive

if TYPE_CHECKING:
    from disavow.flower.placement import NodeRequests
    from disavow.flower.removal_words import RemovalWords
    from disavow.flower.roster import Roster

ConfigValues = dict[str, str | int | bytes | list[bytes]]

_SHORTEST_PAUSE, _LONGEST_PAUSE, _PART = 0.02, 1.0, 0.02
"""Seconds between two looks: this part of the time waited so far, so that a round is late by no more than that."""

_BATCH = 64
"""Replies that are asked for at a time."""

_SEED_BITS = 63

_SECONDS, _SECONDS_BEFORE_ERASURE = 60.0, 10.0
"""How long nodes are waited for; an erasure does not wait so long for nodes that may have died."""

_MOST_TRIES = 5
"""How often a proof is sent to a node that does not answer: each try may keep the next round waiting."""


def exchange(grid: Grid, messages: Sequence[Message], *, timeout: float) -> dict[int, Message]:
    """Send messages, one a node, and wait for the replies.

    A reply may be an error, or too late: then the SuperLink drops it, because the message lives no longer than the
    wait. Flower's own `send_and_receive` looks every three seconds; this looks often at first, and then less.

    Args:
        grid: Flower's grid.
        messages: What to send.
        timeout: Seconds to wait.

    Returns:
        The replies that came in time, by node.

    """
    replies: dict[int, Message] = {}
    if not messages:
        return replies
    begun = time.monotonic()
    sent = set(grid.push_messages(messages))  # which gives each message its id; those that were refused are not in
    nodes = {m.metadata.message_id: m.metadata.dst_node_id for m in messages if m.metadata.message_id in sent}
    while nodes:
        waiting = list(nodes)
        for start in range(0, len(waiting), _BATCH):
            for reply in grid.pull_messages(waiting[start : start + _BATCH]):
                node = nodes.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    replies[node] = reply
        waited = time.monotonic() - begun
        if not nodes or waited >= timeout:
            break
        time.sleep(min(timeout - waited, max(_SHORTEST_PAUSE, min(_LONGEST_PAUSE, _PART * waited))))
    return replies


class ClientGrid(Grid):
    """Flower's grid as far as some clients: what `configure_train` and `configure_evaluate` choose nodes from.

    Whoever has left, or takes no part in the round, is not in it, and gets no message through it.

    Args:
        grid: Flower's grid.
        members: The nodes that can be reached, by client.

    Attributes:
        clients: The clients, by node.

    """

    def __init__(self, grid: Grid, members: Mapping[str, int]) -> None:
        self._grid = grid
        self.clients = {node: client for client, node in members.items()}

    def set_run(self, run: Any) -> None:
        """See `Grid`."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """See `Grid`."""
        return self._grid.run

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """See `Grid`."""
        return self._grid.create_message(*arguments, **named)

    def get_node_ids(self) -> list[int]:
        """List the nodes of these clients."""
        return list(self.clients)

    def get_nodes(self) -> list[NodeInfo]:
        """List the nodes of these clients, with their keys."""
        return [node for node in self._grid.get_nodes() if node.node_id in self.clients]

    def push_messages(self, messages: Iterable[Message]) -> Any:
        """Send the messages to nodes of these clients, and no other."""
        return self._grid.push_messages([m for m in messages if m.metadata.dst_node_id in self.clients])

    def pull_messages(self, message_ids: Iterable[str]) -> Any:
        """See `Grid`."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Any:
        """Send the messages to nodes of these clients, and wait for the replies."""
        mine = [m for m in messages if m.metadata.dst_node_id in self.clients]
        return self._grid.send_and_receive(mine, timeout=timeout)


class MessageConfigs:
    """What the config of each client's message holds beside what the app sends: see `protocol`.

    The receipts of a round are made once.

    Args:
        ledger: The run.
        requests: The requests that nodes make themselves.
        words: The clients' words that they removed records.
        seed: The seed of the run.

    """

    def __init__(self, ledger: Ledger, requests: NodeRequests, words: RemovalWords, *, seed: int) -> None:
        self._ledger, self._requests, self._words, self._seed = ledger, requests, words, seed
        self._newest = ""
        self._next = ledger.next_round()
        self._receipts: Mapping[str, bytes] = {}

    def complete(
        self, messages: Iterable[Message], clients: Mapping[int, str], round_number: int, *, key: str, ttl: float
    ) -> list[Message]:
        """Complete the messages of a round: each client's own config, the records that it must leave out, and how
        long it lives.

        Args:
            messages: What the app wants to send.
            clients: The clients that may be reached, by node; messages to others are left out.
            round_number: The round that the messages are about.
            key: The name of the config record.
            ttl: Seconds after which nobody begins with such a message.

        """
        self.prepare()
        excluded = self._ledger.exclusions(list(clients.values()))
        completed = []
        for message in messages:
            node, content = message.metadata.dst_node_id, message.content
            if node not in clients:
                warn(f"a message to node {node} is not sent: its client takes no part in round {round_number}")
                continue
            client, kind = clients[node], message.metadata.message_type
            records = {**content, key: ConfigRecord({**content.get(key, {}), **self._config(client, round_number)})}
            if excluded[client].hashes:
                wanted = self._words.wanted(client)
                records[EXCLUSIONS] = exclusions.to_record(excluded[client], sorted(wanted))
            completed.append(Message(RecordDict(records), node, kind, ttl=ttl))
        return completed

    def _config(self, client: str, round_number: int) -> ConfigValues:
        seed = int.from_bytes(derive("training", self._seed, round_number, client, "client")[:8], "big")
        batches = derive("training", self._seed, round_number, client, "batches")
        return {SEED: seed >> (64 - _SEED_BITS), BATCHES: batches, **self.evidence(client)}

    def prepare(self) -> None:
        """Make the receipts of the newest standing round, unless they are made."""
        self._next = self._ledger.next_round()
        number, _ = self._next
        newest = self._ledger.digest_before(number)
        if newest != self._newest:
            self._receipts = receipts_of_round(self._ledger, number - 1)
            self._newest = newest

    def evidence(self, client: str) -> ConfigValues:
        """Collect who the client is, which round comes next, what became of requests of its node, the server's key,
        and the client's receipt for the latest standing round in which it took part.
        """
        config: ConfigValues = {CLIENT: client, RUN: self._ledger.run_id}
        config[ROUND], config[ATTEMPT] = self._next
        if answers := self._requests.answers(client):
            config[REQUESTS_ANSWERED] = answers
        signer = self._ledger.signer
        if signer is None:
            return config
        config[PUBLIC_KEY] = str(signer.public)
        receipt = self._receipts.get(client) or self._earlier_receipt(client)
        return config if receipt is None else {**config, RECEIPT: receipt}

    def _earlier_receipt(self, client: str) -> bytes | None:
        """The receipt of who did not take part in the newest round."""
        before = self._ledger.rounds_with(client)
        return next(receipts(self._ledger, client, self._ledger.signer, before[-1]))[1] if before else None


@dataclass(frozen=True)
class ProofKey:
    """Which proof of a request: the one that was made with its answer, or the second one, after it was purged."""

    number: int
    purged: bool


class Delivery:
    """Sends the evidence that no train message brings: proofs to leavers, the last receipts to who stays.

    Each proof is handed over once in the life of the server app, a second one like the first; a node that is away
    gets it when it is back.

    Args:
        grid: Flower's grid.
        ledger: The run.
        roster: Who is connected.
        configs: Makes receipts.
        requests: The requests that nodes make themselves.
        opened: The requests whose openings are here.

    """

    def __init__(
        self,
        grid: Grid,
        ledger: Ledger,
        roster: Roster,
        configs: MessageConfigs,
        requests: NodeRequests,
        opened: OpenedRequests,
    ) -> None:
        self._grid, self._ledger, self._roster = grid, ledger, roster
        self._configs, self._node_requests, self.opened = configs, requests, opened
        self._settled: set[ProofKey] = set()
        self._tries: Counter[tuple[ProofKey, int]] = Counter()

    def send_proofs(self) -> None:
        """Hand proofs and openings to the leavers who are here, and to clients of whom records were erased; those
        that did not get through, again.

        An opening says whom a proof is about: it goes to a node only where somebody else than the node itself says
        who it is. A node gets its proofs in the order of its requests: the later ones begin where the earlier end.
        """
        due = [
            (key, opened, reached)
            for opened in self.opened.all()
            for key in (ProofKey(opened.number, False), ProofKey(opened.number, True))
            if (reached := self._due(key, opened)) is not None
        ]
        while due:
            now = {node: (key, opened) for key, opened, node in reversed(due)}
            due = [(key, opened, node) for key, opened, node in due if now[node][0] != key]
            configs = {node: config for node, each in now.items() if (config := self._proof_of(*each)) is not None}
            replies = self._send(configs, _SECONDS)
            for node in configs:
                key, _ = now[node]
                self._tries[key, node] += 1
                self._report(key, node, replies.get(node))

    def _due(self, key: ProofKey, opened: OpenedRequest) -> int | None:
        """The node that is to get a proof now; None for none."""
        if key in self._settled:
            return None
        reached = self._roster.reach(opened.client)
        if reached is None:
            return None
        node, known = reached
        has_left = opened.client in self._roster.leavers
        if not known.vouched or not (has_left or opened.for_records) or self._tries[key, node] >= _MOST_TRIES:
            return None
        return node

    def _proof_of(self, key: ProofKey, opened: OpenedRequest) -> ConfigValues | None:
        """A proof of a request and its opening; None while there is none, or it is not signed."""
        proof = ProofStore(self._ledger.directory).read(key.number, purged=key.purged)
        if proof is None or not opened.path.exists():
            return None
        config: ConfigValues = {
            CLIENT: opened.client,
            RUN: self._ledger.run_id,
            NUMBER: opened.number,
            SECOND: key.purged,
            PROOF: proof,
            OPENING: opened.path.read_bytes(),
        }
        if answers := self._node_requests.answers_of(opened.number):
            config[REQUESTS_ANSWERED] = answers
        if self._ledger.signer is not None:
            config[PUBLIC_KEY] = str(self._ledger.signer.public)
        return config

    def send_receipts(self, clients: Iterable[str], *, before_erasure: bool = False) -> None:
        """Hand out the receipts of the newest round, which no later train message will bring; none if unsigned.

        Args:
            clients: Whose app takes evidence.
            before_erasure: Whether requests are about to be answered: whoever leaves gets no message any more, and
                of a round that is undone nobody gets a receipt. Then nodes are waited for less long.

        """
        if self._ledger.signer is None:
            return
        self._configs.prepare()
        members = self._roster.members
        configs = {
            members[client]: self._configs.evidence(client) for client in sorted(clients) if client in members
        }
        replies = self._send(configs, _SECONDS_BEFORE_ERASURE if before_erasure else _SECONDS)
        self._node_requests.collect(replies, {members[client]: client for client in clients if client in members})

    def _send(self, configs: Mapping[int, ConfigValues], timeout: float) -> dict[int, Message]:
        messages = [
            Message(RecordDict({RECORD: ConfigRecord(dict(config))}), node, QUERY, ttl=_SECONDS)
            for node, config in configs.items()
        ]
        return exchange(self._grid, messages, timeout=timeout)

    def _report(self, key: ProofKey, node: int, reply: Message | None) -> None:
        """Log what became of a proof; it is settled once an app has answered, or can never answer."""
        which = "second proof" if key.purged else "proof"
        if reply is None or reply.has_error():
            why = "no answer" if reply is None else reply.error.reason.strip()
            tries = self._tries[key, node]
            if lacks_query(reply):
                self._settled.add(key)
                after = "its app takes none"
            elif tries < _MOST_TRIES:
                after = f"try {tries} of {_MOST_TRIES}, the next follows between two later rounds"
            else:
                after = f"try {tries} of {_MOST_TRIES}, the last until the server app is started again"
            problem = f"could not be handed over ({why}; {after}); it lies in the run"
            warn(f"the {which} of request {key.number} {problem}")
            return
        self._settled.add(key)
        record = reply.content.get(RECORD)
        verified = isinstance(record, ConfigRecord) and record.get(VERIFIED) is True
        reason = record.get(REASON) if isinstance(record, ConfigRecord) else None
        if verified:
            inform(f"the client of request {key.number} has verified its {which}{f'; {reason}' if reason else ''}")
        else:
            why = reason or "it does not say why"
            warn(f"the client of request {key.number} does not accept its {which}: {why}")
