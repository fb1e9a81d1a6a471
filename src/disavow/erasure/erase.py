"""An erasure, from the request to the report.

    ① withdraw -> ② judge -> ③a prove                                  (deniable)
                          -> ③b roll back -> ④ mechanism -> prove      (otherwise) -> ⑤ delete, report

Every arrow is a transaction in the ledger's journal. Killed at any instant and called again, `erase` goes on with
the step that was interrupted: no request is lost, none is applied twice, no round is half recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from disavow.domain import ErasureRequest, Verdict, VerdictKind, model_name
from disavow.erasure.judge import judge
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.prove import check_openings, default_openings, prove_leavers
from disavow.errors import RoundRefused
from disavow.federation.local_training import Engine
from disavow.federation.round import Conduct
from disavow.federation.training import OnRound, settle
from disavow.ledger import Ledger, journal, log
from disavow.ledger.evidence import evidence
from disavow.ledger.retention import nearest

OnVerdict = Callable[[Verdict, int], None]
"""Told a verdict and how many requests it answers, as soon as it is in the ledger."""

Remark = Callable[[Ledger], str]
"""What the report of a rebuild says beyond its cost, looked up just before it is complete; "" for nothing."""


def erase(
    ledger: Ledger,
    engine: Engine,
    conduct: Conduct,
    mechanism: Mechanism,
    *,
    on_verdict: OnVerdict = lambda verdict, requests: None,
    on_round: OnRound = lambda summary: None,
    openings: Path | None = None,
    remark: Remark = lambda ledger: "",
) -> tuple[ErasureRequest, ...]:
    """Answer every request that waits, and complete whatever an earlier call left undone.

    `openings` is the folder for the leavers' openings; without it, one beside the run.
    """
    openings = check_openings(openings or default_openings(ledger.directory), ledger.directory)
    for summary in settle(ledger, engine, conduct):  # an interruption may have come just after a record
        on_round(summary)
    answered = answer_without_training(ledger, conduct, mechanism, on_verdict=on_verdict, openings=openings)
    while rebuild_next(ledger, engine, conduct, mechanism, on_round, remark):
        answer(ledger, conduct, mechanism, on_verdict)  # who asks meanwhile waits for one round at most
        answered += delete(ledger, conduct, mechanism, openings)
    return answered + delete(ledger, conduct, mechanism, openings)


def answer_without_training(
    ledger: Ledger,
    conduct: Conduct,
    mechanism: Mechanism,
    *,
    on_verdict: OnVerdict = lambda verdict, requests: None,
    openings: Path | None = None,
) -> tuple[ErasureRequest, ...]:
    """Answer all that needs no training; a rollback is made, but its rounds wait for `erase` to rebuild them."""
    openings = check_openings(openings or default_openings(ledger.directory), ledger.directory)
    answer(ledger, conduct, mechanism, on_verdict)
    return delete(ledger, conduct, mechanism, openings)


def answer(ledger: Ledger, conduct: Conduct, mechanism: Mechanism, on_verdict: OnVerdict) -> None:
    """Answer all who wait, as many at a time as the log can tell of in one leaf."""
    while _answer_some(ledger, conduct, mechanism, on_verdict):
        pass


def _answer_some(ledger: Ledger, conduct: Conduct, mechanism: Mechanism, on_verdict: OnVerdict) -> bool:
    """① Withdraw the leavers, ② judge, ③b roll back where it must be: all in one transaction.

    Requests that wait together are judged together: one rollback, to the earliest broken round.
    """
    policy = ledger.policy
    with ledger.transaction() as connection:
        requested = journal.waiting(connection)
        if not requested.clients:
            return False
        leavers = list(requested.clients.values())
        touched = evidence(connection, leavers, criterion=policy.criterion)
        verdict = settled(connection, judge(touched, x=policy.x, criterion=policy.criterion), mechanism)
        erasure = journal.open_erasure(connection, requested, verdict, mechanism=mechanism.name, at=conduct.clock())
        if verdict.undoes is not None:
            journal.supersede(connection, verdict.undoes, erasure)
        elif journal.never_present(connection, leavers) == set(leavers):
            verdict = Verdict(VerdictKind.NEVER_PRESENT)
        log.log_erasure(connection, erasure)
        ledger.sign_head(connection)
    on_verdict(verdict, len(leavers))
    return True


def settled(connection: sa.Connection, verdict: Verdict, mechanism: Mechanism) -> Verdict:
    """The verdict with the round that the mechanism goes back to, which may be before the one that broke; and where
    the model broadcast in it has been thinned, with the nearest earlier round whose model is kept.
    """
    if verdict.round is None:
        return verdict
    kept = nearest(connection, mechanism.goes_back_to(verdict.round))
    return replace(verdict, back_to=None if kept == verdict.round else kept)


def rebuild_next(
    ledger: Ledger,
    engine: Engine,
    conduct: Conduct,
    mechanism: Mechanism,
    on_round: OnRound,
    remark: Remark = lambda ledger: "",
) -> bool:
    """④ Rebuild one superseded round; False once there is none left, or none that can be rebuilt.

    Then the models of the superseded rounds, which hold the leaver undeniably, are deleted.
    """
    with ledger.snapshot() as connection:
        wanted = journal.rebuilding(connection)
    if wanted is None:
        return False
    number, _ = ledger.next_round()
    work = mechanism.ahead(ledger, conduct, first=number, last=wanted.target, most=1)
    obstacle = work.obstacle
    if work.steps:
        try:
            mechanism.rebuild_next(ledger, engine, conduct)
        except RoundRefused as refusal:
            obstacle = refusal.reason  # it would be refused again and again: the earlier model is served instead
        else:
            for summary in settle(ledger, engine, conduct):
                on_round(summary)
            return True
    told = _remark(mechanism, number - 1, obstacle, begun=number > wanted.first)
    remarks = "; ".join(filter(None, (told, remark(ledger))))
    with ledger.transaction() as connection:
        journal.finish_rebuilding(
            connection, epochs=conduct.epochs, model_bytes=4 * ledger.layout.size, remark=remarks
        )
    ledger.remove_leftovers()
    return False


def _remark(mechanism: Mechanism, stand: int, obstacle: str | None, *, begun: bool) -> str:
    """What the verdict does not say of a rebuild: why it ended early, or that it is not exact."""
    done = "retrained" if mechanism.exact else "rebuilt"
    if obstacle is not None:
        far = f"{done} only up to round {stand}" if begun else f"not {done}"
        return f"{far}: {obstacle}; {model_name(stand)} is served"
    return "" if mechanism.exact else f"rebuilt approximately by {mechanism.name}; {stand} rounds stand"


def delete(ledger: Ledger, conduct: Conduct, mechanism: Mechanism, openings: Path) -> tuple[ErasureRequest, ...]:
    """③ Prove, then ⑤ delete what names the leavers, from the tables and from the files; what was answered.

    The proof comes after the rebuild and before the deletion, while what it opens is there.
    """
    with ledger.snapshot() as connection:
        if not mechanism.exact and journal.rebuilding(connection) is not None:
            return ()  # what is being rebuilt has traces of all who ask meanwhile: their proofs must tell of it
        leavers = journal.leavers_to_delete(connection)
        interrupted = journal.purging(connection)
    if not leavers and not interrupted:
        return ()
    if leavers:
        prove_leavers(ledger, leavers, openings)
    with ledger.transaction() as connection:
        journal.delete_leavers(connection, leavers)
    ledger.remove_leftovers()
    if not ledger.purge():
        return ()  # somebody is reading; the next call tries again
    with ledger.transaction() as connection:
        answered = journal.finish(connection, at=conduct.clock())
    return ledger.requests(answered)
