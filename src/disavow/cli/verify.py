"""`disavow verify`: all an auditor needs, and nothing that trains is imported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from disavow.cli.files import digest_of, read_bytes, receipts_in
from disavow.cli.output import print_json, results
from disavow.errors import ConfigError, Unreadable, VerificationError
from disavow.proof.cosignatures import WitnessKey
from disavow.proof.keys import trusted_keys
from disavow.proof.leaves import latest_time
from disavow.proof.limitations import not_claimed
from disavow.proof.notes import KeyIndex
from disavow.proof.opening import Opening, refuse_other_client
from disavow.proof.receipt import TYPE as RECEIPT
from disavow.proof.receipt import check_receipt, decode_receipt
from disavow.proof.summary import count_records
from disavow.proof.validation import to_base64
from disavow.proof.verify import CHECKS, Report, Result, TrustedKey, VerificationInputs, examine
from disavow.proof.witness_keys import read_witnesses

NAMES_NOBODY = 3

_RECORDS_SHOWN = 20

_MARKS = {True: "ok", False: "FAILED", None: "-"}

_UNCHECKED = {
    "history": "no older checkpoint was given: nothing shows that this log was told before the request",
    "opening": "none was given",
    "receipts": "none were given",
    "model": "not checked: no model was given. The subject is the model of the last standing round",
    "word": "none was given",
    "witnesses": "none were named: nothing shows that others were told the same history",
    "serving": "none was given: nothing says which model the server serves",
}


def verify(
    proof: Path,
    *,
    key: Path,
    opening: Path | None,
    client: str | None,
    receipts: Path | None,
    model: Path | None,
    checkpoint: Path | None,
    word: Path | None,
    witnesses: Sequence[str],
    quorum: int | None,
    serving: Path | None,
    what_if: bool,
    as_json: bool,
) -> None:
    """Check a proof, or a receipt, and say what became of every check."""
    data, trusted = read_bytes(proof), trusted_keys(key)
    if _is_receipt(data):
        _verify_receipt(data, trusted, client, as_json=as_json)
        return
    trusted_witnesses = [key for each in witnesses for key in _witness_keys(each)]
    _refuse_quorum(quorum, trusted_witnesses)
    if client is not None and opening is None:
        raise ConfigError("--client needs the --opening: without it nothing says whom a proof is about")
    report = examine(
        VerificationInputs(
            proof=data,
            trusted=trusted,
            opening=read_bytes(opening) if opening else None,
            receipts=[read_bytes(path) for path in receipts_in(receipts)] if receipts else (),
            model=digest_of(model) if model else None,
            checkpoint=read_bytes(checkpoint) if checkpoint else None,
            what_if=what_if,
            client=client,
            word=read_bytes(word) if word else None,
            serving=read_bytes(serving) if serving else None,
            now=datetime.now(UTC).isoformat(timespec="microseconds"),
            witnesses=trusted_witnesses,
            quorum=quorum,
        )
    )
    code = _exit_code(report)
    if as_json:
        print_json(_as_json(report, code))
    else:
        _print_checks(report)
    if code:
        raise typer.Exit(code)


def _witness_keys(given: str) -> tuple[WitnessKey, ...]:
    """The key of a witness as text, or those in a file."""
    try:
        return (WitnessKey.parse(given, "--witness"),)
    except Unreadable:
        if not Path(given).exists():
            raise
    return read_witnesses(Path(given))


def _refuse_quorum(quorum: int | None, witnesses: Sequence[WitnessKey]) -> None:
    known = len({key.raw for key in witnesses})
    if quorum is not None and quorum > known:
        raise ConfigError(
            f"--quorum is {quorum}; allowed: 1 to {known}, the number of witnesses given with --witness"
        )


def _exit_code(report: Report) -> int:
    if report.failure is not None:
        return report.failure.exit_code
    return 0 if report.named else NAMES_NOBODY


def _print_checks(report: Report) -> None:
    console = results()
    for result in report.results:
        detail = result.detail or _UNCHECKED[result.name]
        console.print(f"{result.number:2d}  {result.name:10s}  {_MARKS[result.passed]:6s}  {detail}")
    if report.failed is not None and not report.holds:
        console.print(
            f"\n{_outcome(report).upper()}: check {report.failed.number} ({report.failed.name}): {report.failure}"
        )
        return
    kind = "what-if" if report.statement is not None and report.statement.what_if else "proof"
    about = f" about {_whom(report.opening)}" if report.opening else ", which names nobody"
    if not report.valid:
        console.print(f"\nANOTHER MODEL: a good {kind}{about}, but of {report.failure}.")
    elif report.opening is None:
        console.print(f"\nVALID {kind}, but it names nobody: give the leaver's --opening to say whom it is about.")
    else:
        console.print(f"\nVALID {kind}{about}.")
    as_of = _as_of(report)
    head = f"{as_of['leaves']} (root {str(as_of['root'])[:16]})"
    console.print(
        f"As of head {head}, whose last leaf with a time of day is of {as_of['at']}; it says nothing of what came "
        "later."
    )
    for warning in report.warnings:
        console.print(f"WARNING: {warning}.")
    for sentence in not_claimed(report):
        console.print(sentence)


def _whom(opening: Opening) -> str:
    """Whom an opening names, and which records where the client stays."""
    if opening.records is None:
        return repr(opening.client)
    keys = opening.records.keys
    shown = ", ".join(map(repr, keys[:_RECORDS_SHOWN]))
    more = f" and {len(keys) - _RECORDS_SHOWN:,} more" if len(keys) > _RECORDS_SHOWN else ""
    return f"{count_records(len(keys))} of {opening.client!r}, which stays: {shown}{more}"


def _as_of(report: Report) -> dict[str, object]:
    """The head that the proof speaks of: how many leaves, their root in base64, the time of the last."""
    if report.head is None or report.history is None:
        return {"leaves": None, "root": None, "at": None}
    at = latest_time(report.history.leaves)
    return {"leaves": report.head.size, "root": to_base64(report.head.root), "at": at}


def _outcome(report: Report) -> str:
    if not report.holds:
        return "unreadable" if isinstance(report.failure, Unreadable) else "invalid"
    if not report.valid:
        return "another model"
    return "valid" if report.named else "names nobody"


def _as_json(report: Report, code: int) -> dict[str, Any]:
    return {
        "outcome": _outcome(report),
        "valid": report.valid,
        "as_of": _as_of(report),
        "names": report.opening.client if report.opening else None,
        "records": list(report.opening.records.keys) if report.opening and report.opening.records else None,
        "exit_code": code,
        "rebuilt_rounds": report.history.rebuilt if report.history else None,
        "checks": [
            {"number": r.number, "name": r.name, "passed": r.passed, "detail": r.detail or _UNCHECKED[r.name]}
            for r in [*report.results, *_not_reached(report)]
        ],
        "warnings": report.warnings,
        "not_claimed": not_claimed(report),
    }


def _not_reached(report: Report) -> list[Result]:
    """The checks behind the one that failed."""
    return [
        Result(number, name, passed=None, detail="not reached")
        for number, name in enumerate(CHECKS, start=1)
        if number > len(report.results)
    ]


# -- receipts ------------------------------------------------------------------------------------------------------


def _is_receipt(data: bytes) -> bool:
    return b'"type":"%s"' % RECEIPT.encode() in data  # in a proof all such text is inside base64


def _verify_receipt(data: bytes, trusted: list[TrustedKey], client: str | None, *, as_json: bool) -> None:
    try:
        receipt = decode_receipt(data)
        head = check_receipt(receipt, KeyIndex.of(trusted))
        refuse_other_client(receipt.client, client, "the receipt")
    except VerificationError as failure:
        if as_json:
            print_json({"valid": False, "reason": str(failure), "exit_code": failure.exit_code})
            raise typer.Exit(failure.exit_code) from None
        raise
    if as_json:
        print_json({"valid": True, "client": receipt.client, "round": receipt.header.number, "exit_code": 0})
        return
    results().print(
        f"VALID receipt: {receipt.client!r} was in round {receipt.header.number}, slot {receipt.slot}, "
        f"under a head of {head.size} leaves."
    )
