"""Who is behind a Flower node: a stable id, because a node's own number does not survive a restart.

On a SuperLink every node is known by a public key, and the SuperLink checks with each call that the node holds its
private half. With `--enable-supernode-auth` that key is the one the operator has registered, so its fingerprint is
an identity; without, a node makes a new key whenever it starts, and only its node config can say who it is.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from flwr.app import ConfigRecord, Message
from flwr.proto.node_pb2 import NodeInfo

from disavow.flower.protocol import CLIENT_ID, QUERY, RECORD

Identity = Literal["auto", "key", "client-id"]
"""Where ids come from. `key`: the node's key. `client-id`: its node config. `auto`: the key; in a simulation, whose
nodes have none, the node config, and for an app that cannot say it the node's number (see `admission`)."""

_FINGERPRINT = "SHA256:"
_NUMBERED = "node-"
_LONGEST = 256
_NO_FUNCTION = f"No query function registered with name '{QUERY.partition('.')[2]}'"
"""In the words of flwr.clientapp.ClientApp, which are all that arrives of its error."""


@dataclass(frozen=True)
class Person:
    """A client as a node presents itself. `vouched`: somebody else than the node itself says that it is so."""

    client: str
    vouched: bool


def fingerprint(public_key: bytes) -> str | None:
    """The fingerprint of a node's key as `ssh-keygen -l` prints it; None where it is no key of a SuperNode."""
    try:
        key = serialization.load_pem_public_key(public_key)
    except (ValueError, UnsupportedAlgorithm):
        return None
    if not isinstance(key, EllipticCurvePublicKey):
        return None
    digest = serialization.ssh_key_fingerprint(key, hashes.SHA256())
    return _FINGERPRINT + b64encode(digest).decode().rstrip("=")


def by_key(node: NodeInfo, identity: Identity) -> Person | None:
    """Who a node is by its key; None where that is not to be asked, or where it has none."""
    if identity == "client-id":
        return None
    known = fingerprint(node.public_key)
    return None if known is None else Person(known, vouched=True)


def knows_no_question(reply: Message | None) -> bool:
    """Whether a reply is Flower's error for a query that the node's app has no function for.

    Any other error says nothing about the app: a process may have died.
    """
    return reply is not None and reply.has_error() and _NO_FUNCTION in reply.error.reason


def by_claim(reply: Message | None, identity: Identity) -> Person | None:
    """Who a node without a key says it is; None if it says nothing that could be believed.

    In a simulation (`auto`) the nodes are the server's own, so that their word is good.
    """
    claimed = _claimed(reply)
    return None if claimed is None else Person(claimed, vouched=identity == "auto")


def by_number(node_id: int) -> Person:
    """A client that was never told about disavow, in a simulation: it goes by its node's number."""
    return Person(f"{_NUMBERED}{node_id}", vouched=True)


def is_number(client: str) -> bool:
    """Whether an id is a node's number, which no client has twice."""
    return client.startswith(_NUMBERED)


def _claimed(reply: Message | None) -> str | None:
    if reply is None or not reply.has_content():
        return None
    record = reply.content.get(RECORD)
    claimed = record.get(CLIENT_ID) if isinstance(record, ConfigRecord) else None
    if not isinstance(claimed, str) or not 0 < len(claimed) <= _LONGEST or not claimed.isprintable():
        return None
    # ids of other kinds cannot be claimed
    return None if claimed.startswith((_FINGERPRINT, _NUMBERED)) else claimed
