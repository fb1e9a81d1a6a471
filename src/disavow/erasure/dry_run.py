"""What an erasure would cost, known before anything changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from disavow.config import participants_of
from disavow.domain import Cost, Verdict, VerdictKind
from disavow.erasure.judge import judge
from disavow.erasure.mechanisms import Mechanism, Step, Work, refuse_another
from disavow.erasure.proof_size import ROUND_LEAF, ProofSizes, sealed_bytes
from disavow.ledger import Ledger, Reader
from disavow.proof.envelope import LARGEST
from disavow.rounds.options import RoundOptions


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


def foresee(ledger: Ledger, ids: Sequence[str], options: RoundOptions, mechanism: Mechanism) -> Forecast:
    """Judge clients as if they left now, together with whoever waits already. Changes nothing.

    Args:
        ledger: The run.
        ids: The clients.
        options: How rounds are run.
        mechanism: How undone rounds are rebuilt.

    """
    refuse_another(ledger, mechanism)
    with ledger.snapshot() as snapshot:
        asked = snapshot.numbers_to_judge(ids)
        leavers = list({*asked, *snapshot.waiting().clients.values()})
        if snapshot.never_present(leavers) == set(leavers) and snapshot.rebuilding() is None:
            verdict = Verdict(VerdictKind.NEVER_PRESENT)
        else:
            verdict = judged(snapshot, leavers, mechanism)
        first, last = _undone(snapshot, verdict)
        work = work_after(snapshot, leavers, verdict, options, mechanism)
        sizes = ProofSizes.read(snapshot)
        proofs = [sizes.of(each, before=verdict.undoes, leavers=len(leavers)) for each in asked]
    size = max(proofs, default=0) + len(work.steps) * sealed_bytes(ROUND_LEAF)
    cost = _cost(ledger, options, work.steps)
    served = first - 1 + len(work.steps)
    return Forecast(
        verdict,
        cost,
        served,
        work.obstacle,
        approximate=first <= last and not mechanism.exact,
        too_large=size if size > LARGEST else None,
    )


def judged(reader: Reader, leavers: Sequence[int], mechanism: Mechanism) -> Verdict:
    """Judge clients, and find the round that the mechanism goes back to.

    It may be before the one that broke; where the model broadcast in it has been thinned, it is the nearest earlier
    one whose model is kept.

    Args:
        reader: The ledger.
        leavers: The clients, by their numbers.
        mechanism: How undone rounds are rebuilt.

    """
    verdict = judge(reader.evidence(leavers), reader.policy)
    if verdict.round is None:
        return verdict
    kept = reader.nearest_checkpoint(mechanism.goes_back_to(verdict.round))
    return replace(verdict, back_to=None if kept == verdict.round else kept)


def work_after(
    reader: Reader, leavers: Sequence[int], verdict: Verdict, options: RoundOptions, mechanism: Mechanism
) -> Work:
    """Find what there is to rebuild once clients have left, earlier rollbacks included.

    Args:
        reader: The ledger.
        leavers: The clients, by their numbers.
        verdict: The verdict on them.
        options: How rounds are run.
        mechanism: How undone rounds are rebuilt.

    """
    first, last = _undone(reader, verdict)
    return mechanism.ahead(reader, options, first=first, last=last, leavers=reader.names_of(leavers))


def _undone(reader: Reader, verdict: Verdict) -> tuple[int, int]:
    """The first and the last round to rebuild after this verdict; none where the first is after the last."""
    standing, unfinished = reader.last_round, reader.rebuilding()
    return verdict.undoes or standing + 1, max(standing, unfinished.target if unfinished else 0)


def _cost(ledger: Ledger, options: RoundOptions, steps: Sequence[Step]) -> Cost:
    epochs = sum(step.participants * step.epochs for step in steps)
    participants = participants_of(len(ledger.clients()), options.fraction, options.at_least)
    whole_round = participants * options.epochs
    trained = sum(step.participants for step in steps if step.epochs)
    return Cost(
        rounds=len(steps),
        client_epochs=epochs,
        exchanged_bytes=2 * trained * 4 * ledger.layout.size,
        seconds=(ledger.seconds_per_round() or 0.0) * epochs / whole_round if steps else 0.0,
    )
