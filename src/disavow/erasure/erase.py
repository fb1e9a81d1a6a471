"""An erasure, from the request to the report.

    ① withdraw -> ② judge -> ③a prove                                  (deniable)
                          -> ③b roll back -> ④ mechanism -> prove      (otherwise) -> ⑤ delete, report

Every arrow is a transaction in the ledger's journal. Killed at any instant and called again, `answer_requests`
goes on with the step that was interrupted: no request is lost, none is applied twice, no round is half recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from disavow.domain import ErasureRequest, Verdict, VerdictKind, model_name
from disavow.erasure.judge import judged, work_after
from disavow.erasure.mechanisms import Mechanism, Work, refuse_another
from disavow.erasure.prove import prove_leavers, prove_purged, refuse_too_large
from disavow.erasure.reporting import SILENT, OnOpening, OnVerdict, Remark, Reporting
from disavow.errors import RoundRefused
from disavow.ledger import Ledger
from disavow.ledger.journal import Rebuilding
from disavow.proof.leaves import MOST_REQUESTS
from disavow.rounds.options import RoundOptions
from disavow.rounds.training import OnRound, settle, settle_newest

if TYPE_CHECKING:
    from disavow.rounds.local_training import Engine


def answer_requests(
    ledger: Ledger,
    engine: Engine,
    options: RoundOptions,
    mechanism: Mechanism,
    reporting: Reporting = SILENT,
) -> tuple[ErasureRequest, ...]:
    """Answer every request that waits, and complete whatever an earlier call left undone.

    Args:
        ledger: The run.
        engine: What trains the clients; once records were erased, without them.
        options: How rounds are run.
        mechanism: How undone rounds are rebuilt.
        reporting: Who hears of it, and where openings go.

    Returns:
        The requests that were answered.

    """
    refuse_another(ledger, mechanism)
    openings, on_opening = reporting.folder(ledger.directory), reporting.on_opening
    for summary in settle(ledger, engine, options):  # an interruption may have come just after a record
        reporting.on_round(summary)
    _refuse_unfit(ledger, engine, options, mechanism)
    judge_waiting(ledger, options, mechanism, reporting.on_verdict)
    answered = delete(ledger, options, mechanism, openings, on_opening)
    while rebuild_next(ledger, engine, options, mechanism, reporting.on_round, reporting.remark):
        # who asks meanwhile waits for one round at most
        judge_waiting(ledger, options, mechanism, reporting.on_verdict)
        answered += delete(ledger, options, mechanism, openings, on_opening)
    answered += delete(ledger, options, mechanism, openings, on_opening)
    prove_purged(ledger, at=options.clock(), on_head=options.on_head)
    return _as_they_stand(ledger, answered)


def _refuse_unfit(ledger: Ledger, engine: Engine, options: RoundOptions, mechanism: Mechanism) -> None:
    """Refuse an engine that cannot train the run, where what waits is about to undo rounds that it is to train."""
    import torch

    from disavow.rounds.local_training import refuse_unfit
    from disavow.rounds.vectors import Model

    with ledger.snapshot() as snapshot:
        requested = snapshot.waiting(approved=options.approved)
        if not requested.clients:
            return
        verdict = judged(snapshot, requested.leavers, mechanism)
        if verdict.undoes is None:
            return
        if not work_after(snapshot, requested, verdict, options, mechanism).steps:
            return
        leaving = snapshot.names_of(requested.leaving)
        stay = [client for client in snapshot.clients() if client not in leaving]
    model = Model(ledger.layout, torch.from_numpy(ledger.model_before(verdict.undoes)))
    refuse_unfit(engine, model, stay, verdict.undoes)


def answer_without_training(
    ledger: Ledger,
    options: RoundOptions,
    mechanism: Mechanism,
    reporting: Reporting = SILENT,
    *,
    apart: bool = False,
    among: Collection[int] | None = None,
) -> tuple[ErasureRequest, ...]:
    """Answer what needs no training, and so neither data nor an engine.

    Nothing is undone that would have to be trained again; whoever asks for that waits. Requests that wait together
    are judged together, as `answer_requests` does.

    Args:
        ledger: The run.
        options: How rounds are run.
        mechanism: How undone rounds are rebuilt.
        reporting: Who hears of it, and where openings go.
        apart: Judge each request on its own, in the order in which they were placed: where nobody can train, a
            rollback must not keep the others waiting.
        among: The only requests to look at; None for all.

    Returns:
        The requests that were answered.

    """
    refuse_another(ledger, mechanism)
    openings = reporting.folder(ledger.directory)
    judge_waiting(ledger, options, mechanism, reporting.on_verdict, training=False, apart=apart, among=among)
    _finish_unless_trainable(ledger, options, mechanism, reporting.remark)
    answered = delete(ledger, options, mechanism, openings, reporting.on_opening)
    prove_purged(ledger, at=options.clock(), on_head=options.on_head)
    return _as_they_stand(ledger, answered)


def _as_they_stand(ledger: Ledger, answered: Sequence[ErasureRequest]) -> tuple[ErasureRequest, ...]:
    """Read requests again that were answered, in the order in which they were: some may be purged by now."""
    found = {request.number: request for request in ledger.requests([each.number for each in answered])}
    return tuple(found[request.number] for request in answered)


def training_due(ledger: Ledger, options: RoundOptions) -> bool:
    """Say whether, after `answer_without_training`, requests still wait to be answered or rounds to be rebuilt.

    Requests that nobody has approved yet wait for that, not for training.

    Args:
        ledger: The run.
        options: How its rounds are run.

    """
    with ledger.snapshot() as snapshot:
        return bool(snapshot.waiting(approved=options.approved).clients) or snapshot.rebuilding() is not None


def judgement_due(ledger: Ledger, options: RoundOptions, mechanism: Mechanism) -> bool:
    """Say whether requests wait that `judge_waiting` would judge now. Changes nothing.

    Paused ones do not count, nor those that somebody has yet to approve.

    Args:
        ledger: The run.
        options: How its rounds are run.
        mechanism: How undone rounds are rebuilt.

    """
    with ledger.snapshot() as snapshot:
        if snapshot.waiting(approved=options.approved).clients:
            return True
        after = 0
        while options.approval == "rollback":  # each of the others by itself, as `judge_waiting` does
            alone = snapshot.waiting(after=after, most=1, approved=False)
            if not alone.clients:
                return False
            if judged(snapshot, alone.leavers, mechanism).undoes is None:
                return True
            after = alone.last
    return False


def judge_waiting(
    ledger: Ledger,
    options: RoundOptions,
    mechanism: Mechanism,
    on_verdict: OnVerdict,
    *,
    training: bool = True,
    apart: bool = False,
    among: Collection[int] | None = None,
) -> None:
    """Judge all who wait, as many at a time as one leaf of the log holds.

    Where requests have to be approved, those that are. Where only rollbacks have to be, each of the others is
    judged by itself, and is left waiting if it would undo rounds.

    Args:
        ledger: The run.
        options: How its rounds are run.
        mechanism: How undone rounds are rebuilt.
        on_verdict: Called with each verdict.
        training: Without it, whatever would have to be trained is left waiting.
        apart: Judge each request on its own.
        among: The only requests to look at; None for all.

    """
    ledger.complete_record_requests()  # an interruption that this process outlived may have left that undone
    judge_some = partial(_judge_some, ledger, options, mechanism, on_verdict, training=training, among=among)
    after, most = 0, 1 if apart else MOST_REQUESTS
    while last := judge_some(after=after, most=most, approved=options.approved):
        after = last
    after = 0
    while options.approval == "rollback" and (last := judge_some(after=after, most=1, approved=False)):
        after = last


def _judge_some(
    ledger: Ledger,
    options: RoundOptions,
    mechanism: Mechanism,
    on_verdict: OnVerdict,
    *,
    training: bool = True,
    after: int = 0,
    among: Collection[int] | None = None,
    most: int = MOST_REQUESTS,
    approved: bool | None = None,
) -> int:
    """① Withdraw the leavers, ② judge, ③b roll back where it must be: all in one transaction.

    Requests that wait together are judged together: one rollback, to the earliest broken round. Without `training`
    they are left waiting where something would have to be trained; without having been `approved`, where anything
    would have to be undone. The number of the last request that was looked for; 0 where none waits. Evidence is
    read as if withdrawn; the rows follow in the same transaction.

    Whoever stays, without some of its records, goes on under a new key at once.
    """
    with ledger.transaction() as transaction:
        requested = transaction.waiting(after=after, among=among, most=most, approved=approved)
        leavers = requested.leavers
        if not leavers:
            return 0
        verdict = judged(transaction, leavers, mechanism)
        if verdict.undoes is not None:
            if approved is False:
                return requested.last
            if not training and work_after(transaction, requested, verdict, options, mechanism).steps:
                return requested.last
            # what is served from now on must be intact before anything is undone
            transaction.model_before(verdict.undoes)
        at = options.clock()
        # before they are withdrawn: of clients who were forgotten before, nobody finds the slots afterwards
        absent = transaction.all_absent(leavers)
        erasure = transaction.open_erasure(requested, verdict, mechanism=mechanism.name, at=at)
        if verdict.undoes is not None:
            transaction.supersede(verdict.undoes, erasure)
        elif absent:
            verdict = Verdict(VerdictKind.NEVER_PRESENT)
        transaction.log_erasure(erasure)
        refuse_too_large(transaction, erasure, at=at)
        transaction.sign_head()
    renewed = ledger.complete_record_requests()
    if options.participation is not None:
        options.participation.clients.remember(renewed)  # their secrets derive from their keys
    on_verdict(verdict, len(requested.clients))
    return requested.last


def rebuild_next(
    ledger: Ledger,
    engine: Engine,
    options: RoundOptions,
    mechanism: Mechanism,
    on_round: OnRound,
    remark: Remark = lambda ledger: "",
) -> bool:
    """④ Rebuild one superseded round.

    Once none is left, the models of the superseded rounds, which hold the leaver undeniably, are deleted.

    Args:
        ledger: The run.
        engine: What trains the clients.
        options: How rounds are run.
        mechanism: How undone rounds are rebuilt.
        on_round: Called with the round.
        remark: What the report of the rebuild says beyond its cost.

    Returns:
        False once there is none left, or none that can be rebuilt.

    """
    wanted = ledger.rebuilding()
    if wanted is None:
        return False
    work = _ahead(ledger, options, mechanism, wanted)
    obstacle = work.obstacle
    if work.steps:
        try:
            mechanism.rebuild_next(ledger, engine, options)
        except RoundRefused as refusal:
            obstacle = refusal.reason  # it would be refused again and again: the earlier model is served instead
        else:
            for summary in settle_newest(ledger, engine, options):
                on_round(summary)
            return True
    _finish(ledger, options, mechanism, wanted, obstacle, remark)
    return False


def _finish_unless_trainable(ledger: Ledger, options: RoundOptions, mechanism: Mechanism, remark: Remark) -> None:
    """Complete a rebuild of which nothing is left to do, or nothing can be done."""
    wanted = ledger.rebuilding()
    if wanted is not None:
        work = _ahead(ledger, options, mechanism, wanted)
        if not work.steps:
            _finish(ledger, options, mechanism, wanted, work.obstacle, remark)


def _ahead(ledger: Ledger, options: RoundOptions, mechanism: Mechanism, wanted: Rebuilding) -> Work:
    """The next step of a rebuild, if there is one."""
    return mechanism.ahead(ledger, options, first=ledger.last_round + 1, last=wanted.target, most=1)


def _finish(
    ledger: Ledger,
    options: RoundOptions,
    mechanism: Mechanism,
    wanted: Rebuilding,
    obstacle: str | None,
    remark: Remark,
) -> None:
    last = ledger.last_round
    rebuilt = _remark(mechanism, last, obstacle, begun=last >= wanted.first)
    same = ledger.unchanged()
    returned = f"{same} of the rounds end in the very models that were undone" if same else ""
    remarks = "; ".join(filter(None, (rebuilt, returned, remark(ledger))))
    with ledger.transaction() as transaction:
        transaction.finish_rebuilding(epochs=options.epochs, model_bytes=4 * ledger.layout.size, remark=remarks)
    ledger.remove_leftovers()


def _remark(mechanism: Mechanism, stand: int, obstacle: str | None, *, begun: bool) -> str:
    """What the verdict does not say of a rebuild: why it ended early, or that it is not exact."""
    done = "retrained" if mechanism.exact else "rebuilt"
    if obstacle is not None:
        far = f"{done} only up to round {stand}" if begun else f"not {done}"
        return f"{far}: {obstacle}; {model_name(stand)} is served"
    return "" if mechanism.exact else f"rebuilt approximately by {mechanism.name}; {stand} rounds stand"


def delete(
    ledger: Ledger,
    options: RoundOptions,
    mechanism: Mechanism,
    openings: Path,
    on_opening: OnOpening = lambda request, path: None,
) -> tuple[ErasureRequest, ...]:
    """③ Prove, then ⑤ forget the leavers: their keys are destroyed, and with them all that could name them.

    The proof comes after the rebuild and before that, while what it opens can be opened.

    Args:
        ledger: The run.
        options: How its rounds are run.
        mechanism: How undone rounds are rebuilt.
        openings: The folder for openings.
        on_opening: Called with where each was written.

    Returns:
        The requests that were answered.

    """
    with ledger.snapshot() as snapshot:
        if not mechanism.exact and snapshot.rebuilding() is not None:
            return ()  # what is being rebuilt has traces of all who ask meanwhile: their proofs must tell of it
        if not snapshot.deleting():
            return ()
        leavers = snapshot.leavers_to_forget()
    options.on_head(ledger, True)
    prove_leavers(ledger, list(leavers), openings, at=options.clock(), on_opening=on_opening)
    with ledger.transaction() as transaction:
        transaction.give_up_contributions(list(leavers))
    ledger.remove_leftovers()
    ledger.forget(leavers)
    with ledger.transaction() as transaction:
        answered = transaction.finish_erasures(at=options.clock())
    return ledger.requests(answered)
