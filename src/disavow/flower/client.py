"""The client's side, for apps that want it; none has to.

* `train_reproducibly` trains as the reference engine does, from the seed in the train message, so that a retraining
  gives the same bits. `seed_everything` is the one line for apps that keep their own training loop.
* `ClientApp` in the place of Flower's keeps what the server hands out, compares it with the updates that this
  client returned, and verifies the proof when it has left. It is Flower's with `evidence_mod` and `answer`::

      app = flwr.clientapp.ClientApp(mods=[evidence_mod])
      app.query("disavow")(answer)

* `without_excluded` leaves out of a data set what must not be trained on any more: records that were erased.
* `ask_erasure`, called by whoever runs the node, asks that its client be forgotten, or some of its records; the
  same app sends it to the server, and keeps its answer.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flwr import clientapp
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from disavow.errors import ConfigError
from disavow.flower.evidence import Evidence
from disavow.flower.evidence_store import keeps_evidence
from disavow.flower.exclusions import left_out, never_held, requested_removals, without_excluded
from disavow.flower.log import warn
from disavow.flower.node_keys import NODE_KEY, NodeSigner
from disavow.flower.node_requests import ask_erasure
from disavow.flower.protocol import (
    ASK,
    BATCHES,
    CLIENT_ID,
    EPOCHS,
    EVIDENCE,
    PROOF,
    REASON,
    RECORD,
    REQUESTS,
    SEED,
    UNKNOWN,
    VERIFIED,
    WORDS,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from disavow.config import TrainingSettings

_PARTITION = "partition-id"

__all__ = [
    "ClientApp",
    "answer",
    "ask_erasure",
    "evidence_mod",
    "seed_everything",
    "train_reproducibly",
    "without_excluded",
]


class ClientApp(clientapp.ClientApp):
    """A ClientApp of Flower's that keeps evidence, answers the server's questions and sends this node's requests.

    Evidence is kept unless the node config says `keep-evidence=false`; where, docs/flower.md says.

    Args:
        client_fn: As of Flower's.
        mods: As of Flower's; `evidence_mod` comes before them, so that it sees an update as it leaves the node.

    """

    def __init__(self, client_fn: Any = None, mods: list[Any] | None = None) -> None:
        own = [mod for mod in mods or [] if mod is not evidence_mod]
        super().__init__(client_fn, [evidence_mod, *own])
        self.query("disavow")(answer)


def seed_everything(config: ConfigRecord) -> int:
    """Seed torch, numpy and Python from the train message, where it holds a seed.

    Enough for a retraining to give the same bits, as long as nothing else draws: no worker processes, no
    nondeterministic kernels, the same number of threads.

    Args:
        config: The config of the train message.

    Returns:
        The seed, or 0 for none.

    """
    seed = config.get(SEED)
    if not isinstance(seed, int):
        return 0
    import numpy as np
    import torch

    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - whatever the app draws from it must come out the same
    random.seed(seed)
    return seed


def train_reproducibly(
    network: nn.Module, images: Tensor, labels: Tensor, config: ConfigRecord, settings: TrainingSettings
) -> None:
    """Train a network in place, bit for bit as the sequential engine would train this client in this round.

    The batches come from the stream whose key is in the train message; one thread, as there.

    Args:
        network: What to train.
        images: The client's inputs.
        labels: Their classes.
        config: The config of the train message.
        settings: Epochs, batch size and optimizer.

    Raises:
        ConfigError: The message does not come from `KIPFedAvg`.

    """
    # loaded here: a client that trains in its own way starts sooner without
    from disavow.engines.batches import batches_from
    from disavow.engines.sgd import layout_for, train_network
    from disavow.rounds.randomness import Stream
    from disavow.rounds.threads import one_thread

    key = config.get(BATCHES)
    if not isinstance(key, bytes):
        raise ConfigError(f"the train message holds no {BATCHES!r}: is the server's strategy KIPFedAvg?")
    layout = layout_for(network)
    worker = copy.deepcopy(network)
    worker.to(memory_format=layout)  # type: ignore[call-overload]
    wanted = config.get(EPOCHS)
    epochs = wanted if isinstance(wanted, int) else settings.epochs
    drawn = batches_from(Stream(key), len(labels), epochs=epochs, batch_size=settings.batch_size)
    with one_thread():
        train_network(worker, images.contiguous(memory_format=layout), labels, drawn, settings)
    network.load_state_dict(worker.state_dict())


def evidence_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Keep the receipt that a message brings, checked; note the update that goes back; confirm it to the server.

    With the reply go the requests that this node makes itself, and where the app has left out records that were
    erased, the client's word on that.

    It comes first in the list of mods, so that it sees the update as it leaves the node. Evidence that does not
    hold is no reason not to train: it is kept as a complaint, for a person to look at. Nor is a folder that cannot
    be used: the log says so, and the server hears nothing. With `keep-evidence=false` in the node config it passes
    everything on.

    Args:
        message: What came from the server.
        context: That of the node.
        call_next: The next mod, or the client app.

    Returns:
        The reply, with the confirmation, requests and word.

    """
    kind = message.metadata.message_type.partition(".")[0]
    if kind == MessageType.QUERY or not keeps_evidence(context):
        return call_next(message, context)
    evidence = Evidence(context)

    def take() -> None:
        for record in list(message.content.config_records.values()):
            evidence.take(record)

    kept = _kept(take)
    reply = call_next(message, context)
    if not reply.has_content():
        return reply
    reply_record = _requests(evidence, message) if kept else ConfigRecord()
    if kind == MessageType.TRAIN:
        noted = _kept(lambda: evidence.note_update(message.content, reply.content))
        if kept and noted:
            reply_record[EVIDENCE] = True
        if left_out(message.content):
            reply_record.update(_removed(evidence, message, context))
    if reply_record:
        reply.content[RECORD] = reply_record
    return reply


def _requests(evidence: Evidence, message: Message) -> ConfigRecord:
    """The requests that this node makes itself and that the server has not answered, for a reply."""
    requests: list[bytes] = []

    def read() -> None:
        for config in message.content.config_records.values():
            requests.extend(evidence.requests(config))

    _kept(read)
    return ConfigRecord({REQUESTS: requests} if requests else {})


def _removed(evidence: Evidence, message: Message, context: Context) -> dict[str, list[bytes]]:
    """What a reply says of records that the app has left out: the client's word, and which of them are unknown."""
    fields = {}
    if unknown := never_held(message.content):
        fields[UNKNOWN] = unknown
    removals, key = requested_removals(message.content), context.node_config.get(NODE_KEY)
    if removals and key is not None:
        words: list[bytes] = []
        try:
            signer = NodeSigner.load(str(key))
            _kept(lambda: words.extend(evidence.words(message.content, removals, signer)))
        except ConfigError as error:
            warn(f"no word can be signed: {error}")
        if words:
            fields[WORDS] = words
    return fields


def _kept(keep: Callable[[], None]) -> bool:
    """Keep evidence; whether that could be done."""
    try:
        keep()
    except OSError as error:
        warn(f"evidence cannot be kept: {error}")
        return False
    return True


def answer(message: Message, context: Context) -> Message:
    """Answer a query of the server: who this node is; or verify the proof that it hands over.

    Args:
        message: What the server asks.
        context: That of the node, whose config names it.

    Returns:
        The reply.

    """
    config = message.content.get(RECORD)
    reply = ConfigRecord()
    if isinstance(config, ConfigRecord):
        if config.get(ASK) == CLIENT_ID:
            named = _name_of(context)
            if named is not None:
                reply[CLIENT_ID] = named
        else:
            for key, value in _judged(config, context).items():
                reply[key] = value
            for key, value in _requests(Evidence(context), message).items():
                reply[key] = value
    return Message(RecordDict({RECORD: reply}), reply_to=message)


def _judged(config: ConfigRecord, context: Context) -> dict[str, bool | str]:
    try:
        return Evidence(context).receive(config)
    except OSError as error:
        warn(f"evidence cannot be kept: {error}")
        # the reason goes to the server, which need not know the paths of this machine
        return {VERIFIED: False, REASON: "this node cannot use its evidence-dir"} if PROOF in config else {}


def _name_of(context: Context) -> str | None:
    """What the node config says who this is; a simulation knows only partitions."""
    named, partition = context.node_config.get(CLIENT_ID), context.node_config.get(_PARTITION)
    if named is not None:
        return str(named)
    return None if partition is None else f"partition-{partition}"
