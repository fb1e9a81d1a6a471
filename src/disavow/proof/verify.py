"""Verification: a numbered list of checks, each of which fails by name. No ledger, no torch, no network."""

from __future__ import annotations

from disavow.errors import OtherModel, VerificationError
from disavow.proof.checks import CHECKS as _CHECKS
from disavow.proof.checks import Verification
from disavow.proof.notes import TrustedKey
from disavow.proof.report import Report, Result, VerificationInputs

__all__ = ["CHECKS", "Report", "Result", "TrustedKey", "VerificationInputs", "examine", "verify"]

CHECKS = tuple(check.__name__.removeprefix("check_") for check in _CHECKS)
"""The names of the checks, which are numbered from 1."""


def verify(inputs: VerificationInputs) -> Report:
    """Verify a proof.

    Args:
        inputs: The proof, and what to check it against.

    Returns:
        The report of a proof that holds.

    Raises:
        VerificationError: The proof does not hold; the error names the check.

    """
    report = examine(inputs)
    if report.failure is not None and report.failed is not None:
        kind = type(report.failure)
        raise kind(f"check {report.failed.number} ({report.failed.name}) failed: {report.failure}")
    return report


def examine(inputs: VerificationInputs) -> Report:
    """Check a proof, up to the first check that fails; with another model it goes on, as the proof may not hold.

    Args:
        inputs: The proof, and what to check it against.

    Returns:
        What became of every check; `Report.failure` is what failed.

    """
    report = Report()
    verification = Verification(inputs, report)
    for number, (name, check) in enumerate(zip(CHECKS, _CHECKS, strict=True), start=1):
        try:
            detail = check(verification)
        except VerificationError as failure:
            report.results.append(Result(number, name, passed=False, detail=str(failure)))
            report.failure = failure
            if isinstance(failure, OtherModel):
                continue
            break
        report.results.append(Result(number, name, passed=None if detail is None else True, detail=detail or ""))
    return report
