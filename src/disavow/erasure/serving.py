"""Serving statements: what a server says of the model it serves, signed, so that a proof can be held against it."""

from __future__ import annotations

from datetime import datetime

from disavow.errors import ConfigError, ModelNotReady
from disavow.ledger import Ledger
from disavow.ledger.log import time_of
from disavow.proof.leaves import show_leaves
from disavow.proof.notes import Signer
from disavow.proof.serving import Serving, SignedServing


def state_serving(
    ledger: Ledger, signer: Signer, *, at: datetime, since: int | None = None, model: str | None = None
) -> bytes:
    """Sign which model a run serves: that of its last standing round, as of its newest head.

    Args:
        ledger: The run.
        signer: The key that signs the run's log.
        at: The present time.
        since: The head of a proof that is to be compared with it: the leaves from there on go with the statement.
        model: The digest of the model that it must be about.

    Returns:
        The file.

    Raises:
        ConfigError: The log never had as many leaves as `since` says.
        ModelNotReady: The run has another model by now than `model`.

    """
    with ledger.snapshot() as snapshot:
        head = snapshot.log_head()
        served = snapshot.served_model_digest()
        if model is not None and model != served:
            raise ModelNotReady(
                f"the run has gone on meanwhile: its model is {served[:16]}, and not {model[:16]}; export it again"
            )
        start = head.size if since is None else since
        if not 1 <= start <= head.size:
            raise ConfigError(f"since is {start}, and the log has {head.size} leaves; allowed: 1 to {head.size}")
        leaves = snapshot.closed_leaves(())[start:] if start < head.size else []
    said = Serving(
        model=served,
        at=time_of(at),
        checkpoint=head.signed(signer),
        since=start,
        leaves=show_leaves(leaves),
    )
    return SignedServing.sign(said, signer).encode()
