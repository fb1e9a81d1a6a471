"""The messages between server and nodes: their types, records and config keys.

In a train message's config, beside what the app sends::

    disavow-client       the id under which the run knows the client
    disavow-run          the run
    disavow-round        the round to train in; in other messages, the one that comes next
    disavow-attempt      the attempt at that round: one more after each rollback to it or before it
    disavow-seed         a whole number for `torch.manual_seed` and the like, another one for each client and round
    disavow-batches      the key of the stream that `client.train_reproducibly` draws its batches from
    disavow-epochs       how many epochs to train instead of the usual ones, where a rebuild asks for that
    disavow-public-key   the key that signs the run's log, where there is one
    disavow-receipt      the receipt for the latest round in which the client took part, where the log is signed
    disavow-requests     what became of the requests that the node has made itself, where it has made any

Beside the config, to the node of a client of whom records were erased, the record `disavow-exclusions`::

    key        what the hashes are keyed with: this client's own key
    hashes     the hashes of the records that must not be trained on
    removals   the log's commitments to the records that the server asks for the client's signed word on

In a reply, beside what the app returns, the record `disavow`::

    evidence   that the app keeps evidence
    requests   requests that the node makes itself (`node_requests`)
    words      the client's signed words that it has removed records
    unknown    hashes of excluded records that the node does not have

Both seeds are hashes of the run's seed, the round and the client. The run's seed is below 2^32, so a node can find
it by trying, and then predict the batches of every other client; with `draws = "seeded"` the secret draws and the
participation too, though no privacy claim holds for such a run anyway. A large random seed only makes that slower.
The secret draws of any other run come from the operating system, its participation from the operator's key, and no
seed says anything about them.
"""

from __future__ import annotations

CLIENT, RUN = "disavow-client", "disavow-run"
ROUND, ATTEMPT = "disavow-round", "disavow-attempt"
SEED, BATCHES, EPOCHS = "disavow-seed", "disavow-batches", "disavow-epochs"
PUBLIC_KEY, RECEIPT = "disavow-public-key", "disavow-receipt"
REQUESTS_ANSWERED = "disavow-requests"

EXCLUSIONS = "disavow-exclusions"
"""The name of the record with what a client must not train on; and what it holds."""

EXCLUSION_KEY, HASHES, REMOVALS, HELD = "key", "hashes", "removals", "held"

QUERY = "query.disavow"
"""The type of messages that are not about training: the question who a node is, and evidence for it."""

RECORD = "disavow"
"""The name of the record in such messages, and of ours in a reply."""

NODE = "the node itself"
"""Who says what a node says, in the history of a request. It is sealed, and yet names no key: no text may."""

CLIENT_ID = "client-id"
"""The key of the node config that says who a node is; and what the server asks for."""

KEY_PREFIX, NUMBER_PREFIX = "SHA256:", "node-"
"""How ids begin that the server assigns, by a node's key or number: no node config can claim or deny one."""

ASK, EVIDENCE = "ask", "evidence"
REQUESTS, WORDS, UNKNOWN = "requests", "words", "unknown"
NUMBER, SECOND = "request", "second"
PROOF, OPENING = "proof", "opening"
VERIFIED, REASON = "verified", "reason"
