"""What an erasure would cost, known before anything changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from disavow.config import participants_of
from disavow.domain import Cost, Verdict, VerdictKind
from disavow.erasure.judge import judge
from disavow.erasure.mechanisms import Mechanism, Step, Work, refuse_another
from disavow.erasure.proof_size import ROUND_LEAF, ProofSizes, sealed_bytes
from disavow.errors import UnknownClient
from disavow.ledger import Ledger
from disavow.ledger.evidence import evidence
from disavow.ledger.journal import never_present, rebuilding, waiting
from disavow.ledger.requests import refuse_broken_text
from disavow.ledger.retention import nearest
from disavow.ledger.schema import clients, requests
from disavow.proof.envelope import LARGEST
from disavow.rounds.round import Conduct


@dataclass(frozen=True)
class Forecast:
    """The verdict these clients would get together, and what it would take.

    `served` is the round whose model is served in the end; `obstacle` says why nothing more can be rebuilt.
    `approximate`: what is rebuilt is not what training again would have come to. `too_large`: up to so many bytes
    the proof of one of them may have; None where that is surely no more than a verifier reads.
    """

    verdict: Verdict
    cost: Cost
    served: int
    obstacle: str | None = None
    approximate: bool = False
    too_large: int | None = None


def foresee(ledger: Ledger, ids: Sequence[str], conduct: Conduct, mechanism: Mechanism) -> Forecast:
    """Judge these clients as if they left now, together with whoever waits already. Changes nothing."""
    refuse_another(ledger, mechanism)
    with ledger.snapshot() as connection:
        asked = _numbers(connection, ids)
        leavers = list({*asked, *waiting(connection).clients.values()})
        if never_present(connection, leavers) == set(leavers) and rebuilding(connection) is None:
            verdict = Verdict(VerdictKind.NEVER_PRESENT)
        else:
            verdict = judged(connection, ledger, leavers, mechanism)
        first, last = _undone(connection, ledger, verdict)
        work = work_after(connection, ledger, leavers, verdict, conduct, mechanism)
        sizes = ProofSizes.read(connection, ledger.policy)
        proofs = [sizes.of(connection, each, before=verdict.undoes, leavers=len(leavers)) for each in asked]
    size = max(proofs, default=0) + len(work.steps) * sealed_bytes(ROUND_LEAF)
    cost = _cost(ledger, conduct, work.steps)
    served = first - 1 + len(work.steps)
    return Forecast(
        verdict,
        cost,
        served,
        work.obstacle,
        approximate=first <= last and not mechanism.exact,
        too_large=size if size > LARGEST else None,
    )


def judged(connection: sa.Connection, ledger: Ledger, leavers: Sequence[int], mechanism: Mechanism) -> Verdict:
    """The verdict on these clients, with the round that the mechanism goes back to, which may be before the one
    that broke; and where the model broadcast in it has been thinned, with the nearest earlier one that is kept.
    """
    verdict = judge(evidence(connection, leavers, ledger.policy), ledger.policy)
    if verdict.round is None:
        return verdict
    kept = nearest(connection, mechanism.goes_back_to(verdict.round))
    return replace(verdict, back_to=None if kept == verdict.round else kept)


def work_after(
    connection: sa.Connection,
    ledger: Ledger,
    leavers: Sequence[int],
    verdict: Verdict,
    conduct: Conduct,
    mechanism: Mechanism,
) -> Work:
    """What there is to rebuild once these clients have left with this verdict, earlier rollbacks included."""
    first, last = _undone(connection, ledger, verdict)
    return mechanism.ahead(ledger, conduct, first=first, last=last, leavers=names_of(connection, leavers))


def _undone(connection: sa.Connection, ledger: Ledger, verdict: Verdict) -> tuple[int, int]:
    """The first and the last round to rebuild after this verdict; none where the first is after the last."""
    standing, unfinished = ledger.last_round, rebuilding(connection)
    return verdict.undoes or standing + 1, max(standing, unfinished.target if unfinished else 0)


def _cost(ledger: Ledger, conduct: Conduct, steps: Sequence[Step]) -> Cost:
    epochs = sum(step.participants * step.epochs for step in steps)
    participants = participants_of(len(ledger.clients()), conduct.fraction, conduct.at_least)
    whole_round = participants * conduct.epochs
    trained = sum(step.participants for step in steps if step.epochs)
    return Cost(
        rounds=len(steps),
        client_epochs=epochs,
        exchanged_bytes=2 * trained * 4 * ledger.layout.size,
        seconds=(ledger.seconds_per_round() or 0.0) * epochs / whole_round if steps else 0.0,
    )


def names_of(connection: sa.Connection, numbers: Sequence[int]) -> list[str]:
    """The ids of clients that are in the tables."""
    return list(connection.execute(sa.select(clients.c.id).where(clients.c.number.in_(numbers))).scalars())


def _numbers(connection: sa.Connection, ids: Sequence[str]) -> list[int]:
    numbers = []
    for client in dict.fromkeys(ids):
        refuse_broken_text(client)
        found = connection.execute(sa.select(clients.c.number).where(clients.c.id == client)).scalar()
        if found is None:
            raise UnknownClient(f"{client!r} is not a client of this run, or has left it; nothing was changed")
        numbers.append(found)
    gone = sa.select(requests.c.client).where(requests.c.client.in_(numbers), requests.c.erasure.is_not(None))
    withdrawn = set(connection.execute(gone).scalars())
    return [number for number in numbers if number not in withdrawn]
