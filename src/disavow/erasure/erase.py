"""An erasure, from the request to the report.

    ① withdraw -> ② judge -> ③a prove                                  (deniable)
                          -> ③b roll back -> ④ mechanism -> prove      (otherwise) -> ⑤ delete, report

Every arrow is a transaction in the ledger's journal. Killed at any instant and called again, `erase` goes on with
the step that was interrupted: no request is lost, none is applied twice, no round is half recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from disavow.domain import ErasureRequest, Verdict, VerdictKind, model_name
from disavow.erasure.judge import judge
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.prove import check_openings, default_openings, prove_leavers
from disavow.errors import RoundRefused
from disavow.federation.local_training import Engine
from disavow.federation.round import Conduct
from disavow.federation.training import OnRound, evaluate_missing
from disavow.ledger import Ledger, journal, log
from disavow.ledger.evidence import evidence

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
    answered = settle(ledger, conduct, mechanism, on_verdict=on_verdict, openings=openings)
    while rebuild_next(ledger, engine, conduct, mechanism, on_round, remark):
        answer(ledger, conduct, mechanism, on_verdict)  # who asks meanwhile waits for one round at most
        answered += delete(ledger, conduct, openings)
    return answered + delete(ledger, conduct, openings)


def settle(
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
    return delete(ledger, conduct, openings)


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
        verdict = judge(touched, x=policy.x, criterion=policy.criterion)
        erasure = journal.open_erasure(connection, requested, verdict, mechanism=mechanism.name, at=conduct.clock())
        if verdict.round is not None:
            journal.supersede(connection, verdict.round, erasure)
        elif journal.never_present(connection, leavers) == set(leavers):
            verdict = Verdict(VerdictKind.NEVER_PRESENT)
        log.log_erasure(connection, erasure)
        ledger.sign_head(connection)
    on_verdict(verdict, len(leavers))
    return True


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
    obstacle = mechanism.obstacle(ledger, conduct) if number <= wanted.target else None
    if number <= wanted.target and obstacle is None:
        try:
            mechanism.rebuild_next(ledger, engine, conduct)
        except RoundRefused as refusal:
            obstacle = str(refusal)  # it would be refused again and again: the earlier model is served instead
        else:
            for summary in evaluate_missing(ledger, engine):
                on_round(summary)
            return True
    evaluate_missing(ledger, engine)  # an interruption may have come between a round and its evaluation
    far = f"retrained only up to round {number - 1}" if number > wanted.first else "not retrained"
    short = f"{far}: {obstacle}; {model_name(number - 1)} is served" if obstacle else ""
    remarks = "; ".join(filter(None, (short, remark(ledger))))
    with ledger.transaction() as connection:
        journal.finish_rebuilding(
            connection, epochs=conduct.epochs, model_bytes=4 * ledger.layout.size, remark=remarks
        )
    ledger.remove_leftovers()
    return False


def delete(ledger: Ledger, conduct: Conduct, openings: Path) -> tuple[ErasureRequest, ...]:
    """③ Prove, then ⑤ delete what names the leavers, from the tables and from the files; what was answered.

    The proof comes after the rebuild and before the deletion, while what it opens is there.
    """
    with ledger.snapshot() as connection:
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
