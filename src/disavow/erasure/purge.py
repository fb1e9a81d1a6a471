"""A purge: one exact retraining that removes every leaver so far from the model.

    judge who waits -> first standing round with a withdrawn slot -> undo from there -> retrain -> second proofs

A deniable leaver's updates may be in the model, and so may those of a leaver whose rollback began after its first
rounds. A purge is an erasure that answers nobody: it undoes rounds in one transaction of the journal, and whoever
opens the run afterwards completes it, like any other rebuild. What cannot be retrained is not undone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from disavow.domain import Cost, ErasureRequest
from disavow.erasure.dry_run import cost_of
from disavow.erasure.judge import judged
from disavow.erasure.mechanisms import Mechanism, Work, refuse_another
from disavow.erasure.reporting import SILENT, Reporting
from disavow.errors import ConfigError, PurgeRefused
from disavow.ledger import Ledger, Reader
from disavow.proof import canonical
from disavow.rounds.options import RoundOptions

if TYPE_CHECKING:
    from disavow.rounds.local_training import Engine


@dataclass(frozen=True)
class PurgeForecast:
    """What a purge would do now.

    Args:
        requests: The numbers of the requests whose clients it would remove, those that wait to be judged included.
        first: The first standing round with a withdrawn slot; None where there is nothing to purge.
        back_to: The first round that it would undo: that one, or an earlier one whose model is kept.
        last: The last round to retrain.
        cost: What that takes.
        obstacle: Why it cannot be done: then nothing would be undone, and the model that is served stays.

    """

    requests: tuple[int, ...] = ()
    first: int | None = None
    back_to: int | None = None
    last: int = 0
    cost: Cost = Cost()
    obstacle: str | None = None

    def __bool__(self) -> bool:
        return self.first is not None

    @property
    def digest(self) -> str:
        """The SHA-256 of who is removed, where it begins and how much work that takes, to a power of two.

        As with the forecast of an erasure, the next round of a run that trains on must not make it another one.
        """
        document = {
            "requests": list(self.requests),
            "first_round": self.first,
            "undone_from": self.back_to,
            "rounds": self.cost.rounds.bit_length(),
            "client_epochs": self.cost.client_epochs.bit_length(),
            "obstacle": self.obstacle,
        }
        return hashlib.sha256(b"disavow/purge-forecast/v1\x00" + canonical.encode(document)).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The same for machines.

        Returns:
            Values that `json.dumps` takes.
        """
        return {
            "requests": list(self.requests),
            "first_round": self.first,
            "undone_from": self.back_to,
            "last_round": self.last,
            "cost": asdict(self.cost),
            "obstacle": self.obstacle,
        }


def refuse_approximate(mechanism: Mechanism) -> None:
    """Refuse to purge by other means than retraining.

    Args:
        mechanism: How undone rounds are rebuilt.

    Raises:
        ConfigError: It does not retrain exactly.

    """
    if not mechanism.exact:
        raise ConfigError(
            f'mechanism.name is "{mechanism.name}", which does not retrain exactly: what it rebuilds has traces of '
            "the leavers; a purge takes a mechanism that does"
        )


def foresee_purge(ledger: Ledger, options: RoundOptions, mechanism: Mechanism) -> PurgeForecast:
    """Tell what a purge would do now, after whoever waits is judged. Changes nothing.

    Args:
        ledger: The run.
        options: How rounds are run.
        mechanism: How undone rounds are retrained.

    Raises:
        ConfigError: The mechanism does not retrain exactly.

    """
    refuse_another(ledger, mechanism)
    refuse_approximate(mechanism)
    with ledger.snapshot() as snapshot:
        unpurged, requested = snapshot.unpurged(), snapshot.waiting(approved=options.approved)
        firsts = dict(unpurged.rounds)
        for number, client in requested.clients.items():
            stand = [each.number for each in snapshot.rounds_of_client(client) if each.standing]
            if stand:
                firsts[number] = min(stand)
        if not firsts:
            return PurgeForecast(last=snapshot.last_round)
        verdict = judged(snapshot, requested.leavers, mechanism) if requested.clients else None
        back_to = _back_to(snapshot, min(firsts.values()), mechanism)
        if verdict is not None and verdict.undoes is not None:
            back_to = min(back_to, verdict.undoes)
        leaving = snapshot.names_of(requested.leaving)  # whoever only has records erased takes part
        work, last = _work(snapshot, back_to, options, mechanism, leaving)
    cost = cost_of(ledger, options, work.steps)
    return PurgeForecast(tuple(sorted(firsts)), min(firsts.values()), back_to, last, cost, work.obstacle)


def purge(
    ledger: Ledger,
    engine: Engine,
    options: RoundOptions,
    mechanism: Mechanism,
    reporting: Reporting = SILENT,
) -> tuple[ErasureRequest, ...]:
    """Retrain without all leavers so far, in one rebuild; and complete whatever an earlier call left undone.

    Args:
        ledger: The run.
        engine: What trains the clients.
        options: How rounds are run.
        mechanism: How undone rounds are retrained.
        reporting: Who hears of it, and where openings go.

    Returns:
        The requests that were answered on the way; the purged ones have `ErasureRequest.purged_at`.

    Raises:
        ConfigError: The mechanism does not retrain exactly.
        PurgeRefused: Not all rounds could be retrained; nothing was undone.

    """
    from disavow.erasure.erase import answer_requests, judge_waiting
    from disavow.rounds.training import settle

    refuse_another(ledger, mechanism)
    refuse_approximate(mechanism)
    for summary in settle(ledger, engine, options):
        reporting.on_round(summary)
    _refuse_unfit(ledger, engine, mechanism)
    # they are purged with the others, by the same rebuild
    judge_waiting(ledger, options, mechanism, reporting.on_verdict)
    obstacle = undo_unpurged(ledger, options, mechanism)
    answered = answer_requests(ledger, engine, options, mechanism, reporting)
    if obstacle is not None:
        raise PurgeRefused(f"nothing was purged, and the model that is served stays: {obstacle}")
    return answered


def undo_unpurged(ledger: Ledger, options: RoundOptions, mechanism: Mechanism) -> str | None:
    """Undo the rounds from the first with a withdrawn slot on, in one transaction; all of it, or nothing.

    Args:
        ledger: The run.
        options: How rounds are run.
        mechanism: How undone rounds are retrained.

    Returns:
        Why nothing was undone; None where there was nothing to undo, or it was.

    """
    with ledger.transaction() as transaction:
        first = transaction.unpurged().first
        if first is None:
            return None
        back_to = _back_to(transaction, first, mechanism)
        work, _ = _work(transaction, back_to, options, mechanism)
        if work.obstacle is not None:
            return work.obstacle
        transaction.model_before(back_to)  # what is served from now on must be intact before anything is undone
        transaction.open_purge(first, back_to, mechanism=mechanism.name, at=options.clock())
        transaction.sign_head()
    return None


def _back_to(reader: Reader, first: int, mechanism: Mechanism) -> int:
    """The first round to undo where `first` has a withdrawn slot: the nearest whose model is kept."""
    return reader.nearest_kept_round(mechanism.goes_back_to(first))


def _work(
    reader: Reader, back_to: int, options: RoundOptions, mechanism: Mechanism, leavers: Sequence[str] = ()
) -> tuple[Work, int]:
    """What there is to retrain from a round on, up to the last that stood; and the number of that one."""
    unfinished = reader.rebuilding()
    last = max(reader.last_round, unfinished.target if unfinished else 0)
    return mechanism.ahead(reader, options, first=back_to, last=last, leavers=leavers), last


def _refuse_unfit(ledger: Ledger, engine: Engine, mechanism: Mechanism) -> None:
    """Refuse an engine that cannot train the run before anything is undone that it is to train."""
    import torch

    from disavow.rounds.local_training import refuse_unfit
    from disavow.rounds.vectors import Model

    with ledger.snapshot() as snapshot:
        first = snapshot.unpurged().first or 1
        leaving = snapshot.names_of(snapshot.waiting().leaving)
        stay = [client for client in snapshot.clients() if client not in leaving]
        back_to = _back_to(snapshot, first, mechanism)
    model = Model(ledger.layout, torch.from_numpy(ledger.model_before(back_to)))
    refuse_unfit(engine, model, stay, back_to)
