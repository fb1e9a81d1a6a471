"""`disavow verify` and `disavow show-proof`: all an auditor needs, and nothing that trains is imported."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from disavow.cli.output import print_json, results
from disavow.errors import Unreadable, VerificationError
from disavow.proof import envelope
from disavow.proof.bounds import HOPELESS
from disavow.proof.history import History
from disavow.proof.keys import trusted_keys
from disavow.proof.receipt import TYPE as RECEIPT
from disavow.proof.receipt import check_receipt, read_receipt
from disavow.proof.report import rebuilt_in_words
from disavow.proof.statement import Statement, read_statement
from disavow.proof.verify import CHECKS, Asked, Report, Result, TrustedKey, examine

NAMES_NOBODY = 3

NOT_CLAIMED = (
    "It does not say that the client never took part: most clients are drawn at some time.",
    "That survivors are real, spreads, shares and noise true, draws honest, and rounds that are not opened free of "
    "the client is the server's word, except where receipts say otherwise.",
)
SEEDED = "Draws were seeded: whoever knows the seed knows who was drawn, and nothing is deniable to them."
OUTSIDE = (
    "A neighbour outside the cluster could not have been drawn; it shows that the model is one that others explain."
)

_MARKS = {True: "ok", False: "FAILED", None: "-"}
_CHUNK = 1 << 20

_UNCHECKED = {
    "history": "no older checkpoint was given: nothing shows that this log was told before the request",
    "spread": "the criterion counts neighbours, not width",
    "opening": "none was given",
    "receipts": "none were given",
}


def verify(
    proof: Path,
    *,
    key: Path,
    opening: Path | None,
    receipts: Path | None,
    model: Path | None,
    checkpoint: Path | None,
    what_if: bool,
    as_json: bool,
) -> None:
    """Check a proof, or a receipt, and say what became of every check."""
    data, trusted = _read(proof), trusted_keys(key)
    if _is_receipt(data):
        _verify_receipt(data, trusted, as_json=as_json)
        return
    report = examine(
        Asked(
            proof=data,
            trusted=trusted,
            opening=_read(opening) if opening else None,
            receipts=[_read(path) for path in _files_of(receipts)] if receipts else (),
            model=_digest(model) if model else None,
            checkpoint=_read(checkpoint).decode("utf-8", "replace") if checkpoint else None,
            what_if=what_if,
        )
    )
    code = _exit_code(report)
    if as_json:
        print_json(_as_json(report, code))
    else:
        _print_checks(report)
    if code:
        raise typer.Exit(code)


def _exit_code(report: Report) -> int:
    if report.failure is not None:
        return report.failure.exit_code
    return 0 if report.named else NAMES_NOBODY


def _print_checks(report: Report) -> None:
    console = results()
    for result in report.results:
        detail = result.detail or _UNCHECKED[result.name]
        console.print(f"{result.number:2d}  {result.name:10s}  {_MARKS[result.passed]:6s}  {detail}")
    if report.failed is not None:
        console.print(f"\nINVALID: check {report.failed.number} ({report.failed.name}): {report.failure}")
        return
    kind = "what-if" if report.statement is not None and report.statement.what_if else "proof"
    if report.opening is None:
        console.print(f"\nVALID {kind}, but it names nobody: give the leaver's --opening to say whom it is about.")
    else:
        console.print(f"\nVALID {kind} about {report.opening.client!r}.")
    _print_not_claimed(console, report.history)


def _print_not_claimed(console: Console, history: History | None) -> None:
    for sentence in _not_claimed(history):
        console.print(sentence)


def _not_claimed(history: History | None) -> list[str]:
    sentences = list(NOT_CLAIMED)
    if history is not None and history.rebuilt:
        sentences.append(f"{rebuilt_in_words(history.rebuilt)}.")
    if history is not None and history.policy["criterion"] == "neighbourhood":
        sentences.append(OUTSIDE)
    if history is not None and history.policy["draws"] == "seeded":
        sentences.append(SEEDED)
    return sentences


def _as_json(report: Report, code: int) -> dict[str, Any]:
    return {
        "valid": report.valid,
        "names": report.opening.client if report.opening else None,
        "exit_code": code,
        "rebuilt_rounds": report.history.rebuilt if report.history else None,
        "checks": [
            {"number": r.number, "name": r.name, "passed": r.passed, "detail": r.detail or _UNCHECKED[r.name]}
            for r in [*report.results, *_not_reached(report)]
        ],
        "not_claimed": _not_claimed(report.history),
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


def _verify_receipt(data: bytes, trusted: list[TrustedKey], *, as_json: bool) -> None:
    try:
        receipt = check_receipt(read_receipt(data), [each.key for each in trusted])
    except VerificationError as failure:
        if as_json:
            print_json({"valid": False, "reason": str(failure), "exit_code": failure.exit_code})
            raise typer.Exit(failure.exit_code) from None
        raise
    if as_json:
        print_json({"valid": True, "client": receipt.client, "round": receipt.header["number"], "exit_code": 0})
        return
    results().print(
        f"VALID receipt: {receipt.client!r} was in round {receipt.header['number']}, slot {receipt.slot}, "
        f"under a head of {receipt.head.size} leaves."
    )


# -- a proof in words ----------------------------------------------------------------------------------------------


def show(proof: Path, *, key: Path | None, as_json: bool) -> None:
    """Render a proof for a person."""
    data = _read(proof)
    statement = read_statement(envelope.read_envelope(data).payload)
    trusted = trusted_keys(key) if key else _own_key(statement)
    report = examine(Asked(proof=data, trusted=trusted, what_if=statement.what_if))
    if report.history is None or report.failure is not None:
        raise VerificationError(f"the proof does not hold: {report.failure}")
    told = _told(statement, report, trusted=key is not None)
    if as_json:
        print_json(told)
        return
    _print_proof(results(), told, report)


def _own_key(statement: Statement) -> list[TrustedKey]:
    keys = [leaf["key"] for leaf in statement.predicate["leaves"] if leaf["type"] in ("run", "key")]
    if not keys or keys[-1] is None:
        raise VerificationError("the log names no key, because it was signed late: give the server's --key")
    return [TrustedKey(keys[-1])]


def _told(statement: Statement, report: Report, *, trusted: bool) -> dict[str, Any]:
    said, history = statement.predicate, report.history
    assert history is not None  # noqa: S101
    leaf = history.leaves[said["withdrawal"]] if said["withdrawal"] is not None else None
    first = said["verdict"]["from"]
    since = [place for place in history.standing if first is not None and place > said["withdrawal"]]
    rebuilt = any(history.is_rebuilt(place) for place in since)
    return {
        "kind": "what-if" if statement.what_if else "erasure",
        "key_trusted": trusted,
        "run": history.run_id,
        "asked_at": leaf["requests"][said["request"]]["asked_at"] if leaf else None,
        "answered_at": leaf["at"] if leaf else None,
        "verdict": said["verdict"]["kind"],
        "rolled_back_to": first,
        "retrained_from": first if since and not rebuilt else None,
        "approximate": rebuilt,
        "rebuilt_rounds": history.rebuilt,
        "model": statement.model,
        "policy": {name: history.policy[name] for name in ("k", "x", "criterion", "noise")},
        "signed_late": history.signed_late,
        "standing_rounds": len(history.standing),
        "rounds": [
            {
                "round": history.leaves[cluster["leaf"]]["number"],
                "slots": cluster["size"],
                "withdrawn": sum(entry["position"] == cluster["position"] for entry in cluster["withdrawn"]),
                "survivors": survivors,
                "displacement": cluster["displacement"],
                "log10_odds": cluster["log10_odds"],
            }
            for cluster, survivors in zip(said["clusters"], report.survivors, strict=True)
        ],
        "displacement": said["bounds"]["displacement"],
        "ratio": said["bounds"]["ratio"],
        "not_claimed": _not_claimed(history),
    }


def _print_proof(console: Console, told: dict[str, Any], report: Report) -> None:
    if not told["key_trusted"]:
        console.print(
            "Signed by the key that the log itself names; `disavow verify --key` checks it against yours.\n"
        )
    if told["kind"] == "what-if":
        console.print("What if: nothing was erased. A client that is still in could be answered like this today.\n")
    else:
        console.print(f"asked      {told['asked_at']}\nanswered   {told['answered_at']}")
    policy, rebuilt = told["policy"], rebuilt_in_words(told["rebuilt_rounds"])
    console.print(
        f"verdict    {told['verdict']}{_afterwards(told)}\n"
        f"model      {told['model']}\n"
        f"promised   k = {policy['k']}, x = {policy['x']}, criterion {policy['criterion']}, noise {policy['noise']}"
        f"{'; signed late: no key bound the server when the run began' if told['signed_late'] else ''}\n"
        f"rounds     {told['standing_rounds']} stand; the client was in {len(told['rounds'])} of them"
        f"{f'; {rebuilt}' if told['rebuilt_rounds'] else ''}"
    )
    if told["rounds"]:
        console.print("\nround  slots  withdrawn  survivors  displacement  log10 of the odds", style="bold")
        for row in told["rounds"]:
            console.print(
                f"{row['round']:5d}  {row['slots']:5d}  {row['withdrawn']:9d}  {row['survivors']:9d}  "
                f"{row['displacement']:>12s}  {_odds(row['log10_odds'])}"
            )
        console.print(
            "\nOther representatives in all these rounds would have moved the model by at most "
            f"{told['displacement']}; √Σs² = {told['ratio'] or 'not bounded: there is no Gaussian noise'}.\n"
        )
    _print_not_claimed(console, report.history)


def _afterwards(told: dict[str, Any]) -> str:
    """What a rollback was followed by."""
    if told["retrained_from"]:
        return f", retrained from round {told['retrained_from']}"
    if told["approximate"]:
        return f" to round {told['rolled_back_to']}, rebuilt approximately from there (not exact retraining)"
    return f" to round {told['rolled_back_to']}, nothing was retrained since" if told["rolled_back_to"] else ""


def _odds(figure: str | None) -> str:
    if figure is None:
        return "no Gaussian noise"
    return "no protection by noise" if float(figure) > HOPELESS else figure


# -- files ---------------------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(envelope.LARGEST + 1)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > envelope.LARGEST:
        raise Unreadable(f"{path} is larger than {envelope.LARGEST:,} bytes")
    return data


def _files_of(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise Unreadable(f"{folder} is not a folder of receipts")
    found = sorted(folder.glob("*.json"))
    if not found:
        raise Unreadable(f"{folder} holds no receipts (*.json)")
    return found


def _digest(path: Path) -> str:
    hashed = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                hashed.update(chunk)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from None
    return hashed.hexdigest()
