"""Verification: a numbered list of checks, each of which fails by name. No ledger, no torch, no network."""

from __future__ import annotations

from collections.abc import Callable

from disavow.errors import VerificationError
from disavow.proof.examination import Examination
from disavow.proof.report import CHECKS, Asked, Report, Result
from disavow.proof.trust import TrustedKey

__all__ = ["CHECKS", "Asked", "Report", "Result", "TrustedKey", "examine", "verify"]


def verify(asked: Asked) -> Report:
    """The report of a proof that holds; `VerificationError`, naming the check, if it does not."""
    report = examine(asked)
    if report.failure is not None and report.failed is not None:
        kind = type(report.failure)
        raise kind(f"check {report.failed.number} ({report.failed.name}) failed: {report.failure}")
    return report


def examine(asked: Asked) -> Report:
    """Check a proof, up to the first check that fails."""
    report = Report()
    examination = Examination(asked, report)
    for number, name in enumerate(CHECKS, start=1):
        check: Callable[[], str | None] = getattr(examination, name)
        try:
            detail = check()
        except VerificationError as failure:
            report.results.append(Result(number, name, passed=False, detail=str(failure)))
            report.failure = failure
            break
        report.results.append(Result(number, name, passed=None if detail is None else True, detail=detail or ""))
    return report
