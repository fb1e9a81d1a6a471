"""Find out who is behind a Flower node: a stable id, because a node's own number does not survive a restart.

On a SuperLink every node is known by a public key, and the SuperLink checks with each call that the node holds its
private half. With `--enable-supernode-auth` that key is the one the operator has registered, so its fingerprint is
an identity; without, a node makes a new key whenever it starts, and only its node config can say who it is.

A client that is known by its node's number loses it when the federation is started again. Behind a number that is
new to the run could be anybody, a leaver too. So no run goes on with other numbers than its own, and where somebody
has been erased, none admits a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from flwr.app import ConfigRecord, Message
from flwr.proto.node_pb2 import NodeInfo

from disavow.errors import ConfigError
from disavow.flower.node_keys import fingerprint
from disavow.flower.protocol import CLIENT_ID, KEY_PREFIX, NUMBER_PREFIX, QUERY, RECORD
from disavow.ledger import Ledger

Identity = Literal["auto", "key", "client-id"]
"""Where ids come from. `key`: the node's key. `client-id`: its node config. `auto`: the key; in a simulation, whose
nodes have none, the node config, and for an app that cannot say it the node's number."""

Warn = Callable[[str], None]

_LONGEST = 256
_NO_FUNCTION = f"No query function registered with name '{QUERY.partition('.')[2]}'"
"""In the words of flwr.clientapp.ClientApp, which are all that arrives of its error."""

_ANSWER_LINE = 'the line `app.query("disavow")(answer)` in the ClientApp, which says who a node is'


@dataclass(frozen=True)
class NodeIdentity:
    """A client as a node presents itself. `vouched`: somebody else than the node itself says that it is so."""

    client: str
    vouched: bool


def identity_by_key(node: NodeInfo, identity: Identity) -> NodeIdentity | None:
    """Identify a node by its key; None where keys do not count, or where it has none."""
    if identity == "client-id":
        return None
    known = fingerprint(node.public_key)
    return None if known is None else NodeIdentity(known, vouched=True)


def identity_by_claim(reply: Message | None, identity: Identity) -> NodeIdentity | None:
    """Identify a node without a key by its own answer; None if that says nothing that could be believed.

    In a simulation (`auto`) the nodes are the server's own, so that their word is good.
    """
    if reply is None or not reply.has_content():
        return None
    record = reply.content.get(RECORD)
    claimed = record.get(CLIENT_ID) if isinstance(record, ConfigRecord) else None
    if not isinstance(claimed, str) or not 0 < len(claimed) <= _LONGEST or not claimed.isprintable():
        return None
    if claimed.startswith((KEY_PREFIX, NUMBER_PREFIX)):
        return None  # ids of other kinds cannot be claimed
    return NodeIdentity(claimed, vouched=identity == "auto")


def identity_by_number(node_id: int) -> NodeIdentity:
    """Identify a node by its number: in a simulation, where its app does not know disavow."""
    return NodeIdentity(f"{NUMBER_PREFIX}{node_id}", vouched=True)


def is_number(client: str) -> bool:
    """Tell whether an id is a node's number, which no client has twice."""
    return client.startswith(NUMBER_PREFIX)


def lacks_query(reply: Message | None) -> bool:
    """Tell whether a reply is Flower's error for a query that the node's app has no function for.

    Any other error says nothing about the app: a process may have died.
    """
    return reply is not None and reply.has_error() and _NO_FUNCTION in reply.error.reason


def refuse_other_numbers(ledger: Ledger, nodes: Collection[int], clients: Collection[str], warn: Warn) -> None:
    """Refuse to go on with a run whose clients are known by numbers of which no node has any now.

    Clients with better ids may take over a run from which nobody has been erased; once they have, it is theirs.

    Args:
        ledger: The run.
        nodes: The nodes that are connected.
        clients: The clients as which they are known now.
        warn: Warns whoever reads the log.

    Raises:
        ConfigError: Nobody can say who is behind the new numbers.

    """
    known = ledger.clients()
    lost = [client for client in known if is_number(client)]
    if not lost or len(lost) < len(known):
        return
    if not {identity_by_number(node).client for node in nodes}.isdisjoint(lost):
        return
    problem = (
        f"{ledger.directory} knows its {len(lost)} clients by the numbers of their nodes ({lost[0]}, ...), and "
        "none of these nodes is here: Flower gives other numbers when a federation is started again"
    )
    if ledger.requests():
        raise ConfigError(
            f"{problem}; somebody has asked to be forgotten, and could be behind any of them; allowed: "
            f"another directory for `ledger`, with {_ANSWER_LINE}, or with authenticated nodes"
        )
    if any(is_number(client) for client in clients):
        raise ConfigError(
            f"{problem}; allowed: {_ANSWER_LINE}; or authenticated nodes; or another directory for `ledger`"
        )
    warn(
        f"{problem}; the run goes on with clients whose ids last, and a request must name a client by both of its "
        "ids"
    )


def admissible(ledger: Ledger, newcomers: Sequence[str], warn: Warn) -> list[str]:
    """Choose the newcomers who may become clients: a new number only while nobody has been erased."""
    numbers = [client for client in newcomers if is_number(client)]
    if not numbers:
        return list(newcomers)
    if ledger.requests():
        warn(
            f"{', '.join(numbers)}: new to a run from which somebody has been erased, who could be behind a new "
            f"number; not admitted. Needed: another directory for `ledger`, and {_ANSWER_LINE}"
        )
        return [client for client in newcomers if client not in numbers]
    if ledger.clients():
        warn(f"{', '.join(numbers)}: admitted by number, though nobody can say whether they were here before")
    else:
        warn(
            "the app does not say who its nodes are: they go by Flower's numbers, which do not survive a restart "
            f"of the federation; this run cannot go on then. Needed: {_ANSWER_LINE} (docs/flower.md)"
        )
    return list(newcomers)
