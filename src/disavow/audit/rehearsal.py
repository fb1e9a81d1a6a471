"""The rehearsal: a client, or records of it, are erased in a scratch copy of the run; the run stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import torch

from disavow import runs
from disavow.audit.subject import Subject
from disavow.domain import ErasureRequest
from disavow.erasure.erase import answer_requests
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.purge import purge
from disavow.erasure.reporting import Reporting
from disavow.errors import ConfigError
from disavow.ledger import Ledger
from disavow.ledger.copying import scratch_copy
from disavow.rounds.local_training import Engine
from disavow.rounds.participation import SecretOrder, participation_of
from disavow.rounds.vectors import Model

_KEY_BYTES = 32


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What the client's erasure came to, the models served before it and after it, and the copy that it left.

    `rounds` stood before it: a run that is being trained may have gone on since the subject was looked up.
    `answered` is what is served between the answer and a purge, where one is rehearsed too; None where none is.
    `participation` says who takes part in which round, where that is secret.
    """

    rounds: int
    answer: ErasureRequest
    before: Model
    served: Model
    ledger: Ledger
    engine: Engine
    participation: SecretOrder | None
    answered: Model | None = None


@contextmanager
def rehearse(
    subject: Subject, folder: Path, *, keys: Path, mechanism: Mechanism, purged: bool = False
) -> Iterator[Rehearsal]:
    """Erase the client, or the records, in a copy, as `disavow erase` would in the run; then delete the copy.

    The copy's log and proof are signed with a key that exists nowhere else: a rehearsal answers for nobody.

    Args:
        subject: The client and its run.
        folder: Where the copy is made.
        keys: The folder of the operator's keys.
        mechanism: How rounds are rebuilt.
        purged: Purge the copy after that, as `disavow purge` would.

    Returns:
        The copy after the erasure, and what became of it.

    Raises:
        ConfigError: Somebody has asked to be forgotten since the audit began; or the mechanism does not retrain
            exactly, and it is to be purged.
        PurgeRefused: It cannot be purged.

    """
    scratch = folder / "rehearsal"
    with (
        scratch_copy(subject.directory, scratch, keys=keys) as ledger,
        closing(subject.engine_after()) as engine,
    ):
        _refuse_departures(ledger, subject)
        rounds, before = ledger.last_round, _served(ledger)
        # the copy is looked at round by round: nothing more is thinned in it
        participation = participation_of(subject.settings, ledger)
        if participation is not None:
            participation.clients.remember(subject.clients)  # the worlds need the leaver's, too
        options = replace(runs.round_options(subject.settings, participation=participation), retention=None)
        place_request(subject, ledger, options.clock())
        [answer] = answer_requests(ledger, engine, options, mechanism, Reporting(openings=scratch / "openings"))
        answered = _served(ledger) if purged else None
        if purged:
            purge(ledger, engine, options, mechanism, Reporting(openings=scratch / "openings"))
        yield Rehearsal(rounds, answer, before, _served(ledger), ledger, engine, participation, answered)


def place_request(subject: Subject, ledger: Ledger, at: datetime) -> None:
    """Ask for what is audited to be erased: the client, or some records of it.

    Args:
        subject: The client and its run.
        ledger: The copy of the run, or another federation.
        at: When it is asked for.

    """
    if subject.erased:
        ledger.place_record_requests({subject.client: subject.erased}, at=at)
    else:
        ledger.place_requests([subject.client], at=at)


def _refuse_departures(ledger: Ledger, subject: Subject) -> None:
    """Refuse a copy in which others are in than the subject knows, or about to leave."""
    waiting = any(request.pending for request in ledger.requests())
    if waiting or ledger.clients() != subject.clients:
        raise ConfigError(
            f"a client of {subject.directory} has asked to be forgotten since the audit began; audit again once "
            "it is answered"
        )


def _served(ledger: Ledger) -> Model:
    """The model that the run serves: the one that its next round would start from."""
    return Model(ledger.layout, torch.from_numpy(ledger.model_before(ledger.last_round + 1)))
