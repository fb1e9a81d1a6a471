"""What an erasure would cost, known before anything changes."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from disavow.config import participants_of
from disavow.domain import ClusterEvidence, Cost, Verdict, VerdictKind
from disavow.erasure.judge import judged, undone_by, work_after
from disavow.erasure.mechanisms import Mechanism, Step, refuse_another
from disavow.erasure.proof_size import ROUND_LEAF, ProofSizes, sealed_bytes
from disavow.ledger import Ledger, Reader
from disavow.ledger.members import UNKNOWN
from disavow.proof import canonical
from disavow.proof.bounds import Bounds, log10_odds, total_ratio
from disavow.proof.envelope import LARGEST
from disavow.rounds.options import RoundOptions


@dataclass(frozen=True)
class Forecast:
    """The verdict these clients would get together, and what it would take.

    `served` is the round whose model is served in the end; `obstacle` says why nothing more can be rebuilt.
    `approximate`: what is rebuilt is not what training again would have come to. `too_large`: up to so many bytes
    the proof of one of them may have; None where that is surely no more than a verifier reads. `odds`: log10 of the
    odds of each client over those of its rounds that would stand, as its proof would say; None where the noise has
    none, and nothing of a client without such rounds.
    """

    verdict: Verdict
    cost: Cost
    served: int
    obstacle: str | None = None
    approximate: bool = False
    too_large: int | None = None
    odds: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The SHA-256 of the verdict and of how much work it takes, to a power of two; not of seconds, an estimate.

        A run that trains on adds a round to the work every few seconds or minutes. Whoever reads a forecast before
        they approve it would never be in time if each of them changed it.
        """
        verdict, cost = self.verdict, self.cost
        document = {
            "verdict": verdict.kind.value,
            "first_broken_round": verdict.round,
            "rollback_to_round": verdict.undoes,
            "criterion": verdict.criterion,
            "rounds": cost.rounds.bit_length(),
            "client_epochs": cost.client_epochs.bit_length(),
            "obstacle": self.obstacle,
            "approximate": self.approximate,
        }
        return hashlib.sha256(b"disavow/forecast/v1\x00" + canonical.encode(document)).hexdigest()


def foresee(
    ledger: Ledger,
    ids: Sequence[str],
    options: RoundOptions,
    mechanism: Mechanism,
    *,
    records_of: Sequence[str] = (),
) -> Forecast:
    """Judge clients as if they left now, together with whoever waits already. Changes nothing.

    Where requests have to be approved, only those that are approved are answered together.

    Args:
        ledger: The run.
        ids: The clients who leave.
        options: How rounds are run.
        mechanism: How undone rounds are rebuilt.
        records_of: Clients who stay, and have records erased.

    """
    refuse_another(ledger, mechanism)
    with ledger.snapshot() as snapshot:
        leaving, staying = snapshot.numbers_to_judge(ids), snapshot.numbers_to_judge(records_of)
        requesters = [*leaving, *staying]
        forgotten = [UNKNOWN] if snapshot.restored_from_backup().slots else []  # they leave first
        waiting = snapshot.waiting(approved=options.approved)
        requested = waiting.joined([*leaving, *forgotten], staying)
        leavers = requested.leavers
        if snapshot.all_absent(leavers) and snapshot.rebuilding() is None:
            verdict = Verdict(VerdictKind.NEVER_PRESENT)
        else:
            verdict = judged(snapshot, leavers, mechanism)
        first, last = undone_by(snapshot, verdict)
        work = work_after(snapshot, requested, verdict, options, mechanism)
        sizes = ProofSizes.read(snapshot)
        odds = _odds(snapshot, requesters, verdict)
        proofs = [sizes.of(each, before=verdict.undoes, leavers=len(leavers)) for each in requesters]
    size = max(proofs, default=0) + len(work.steps) * sealed_bytes(ROUND_LEAF)
    cost = cost_of(ledger, options, work.steps)
    served = first - 1 + len(work.steps)
    return Forecast(
        verdict,
        cost,
        served,
        work.obstacle,
        approximate=first <= last and not mechanism.exact,
        too_large=size if size > LARGEST else None,
        odds=odds,
    )


def _odds(reader: Reader, requesters: Sequence[int], verdict: Verdict) -> dict[str, float | None]:
    """log10 of the composed odds of whoever asks, by id; who else leaves does not change them."""
    ratios: defaultdict[int, list[Bounds]] = defaultdict(list)
    for each in reader.evidence(requesters):
        if isinstance(each, ClusterEvidence) and (verdict.undoes is None or each.round < verdict.undoes):
            for leaver in each.leavers:
                ratios[leaver].append(Bounds(0.0, each.ratio))
    standing = [number for number in requesters if number in ratios]
    return {reader.names_of([number])[0]: log10_odds(total_ratio(ratios[number])) for number in standing}


def cost_of(ledger: Ledger, options: RoundOptions, steps: Sequence[Step]) -> Cost:
    """Estimate what rebuilding takes.

    Args:
        ledger: The run.
        options: How rounds are run.
        steps: What is to be rebuilt.

    """
    epochs = sum(step.participants * step.epochs for step in steps)
    participants = participants_of(ledger.count_survivors(), options.fraction, options.at_least)
    whole_round = participants * options.epochs
    trained = sum(step.participants for step in steps if step.epochs)
    return Cost(
        rounds=len(steps),
        client_epochs=epochs,
        exchanged_bytes=2 * trained * 4 * ledger.layout.size,
        seconds=(ledger.seconds_per_round() or 0.0) * epochs / whole_round if steps else 0.0,
    )
