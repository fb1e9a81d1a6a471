"""`disavow prove`, `receipt`, `checkpoint` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from disavow.cli.output import print_json, results
from disavow.cli.passphrase import ask_passphrase
from disavow.cli.written import refuse_other, write_file
from disavow.domain import ErasureRequest, escaped
from disavow.erasure.proof_files import check_openings, default_openings
from disavow.errors import ConfigError, LedgerError, VerificationError
from disavow.federation import Federation
from disavow.ledger.files import remove_temporaries
from disavow.proof.serving import SignedServing
from disavow.results import ExportedModel


def prove(
    directory: Path,
    client: str | None,
    number: int | None,
    output: Path,
    openings: Path | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Write the proof of an answered erasure, by client or request; or a what-if about a client who is still in."""
    if (client is None) == (number is None):
        raise ConfigError("prove wants a CLIENT, or --request and its number")
    with Federation.open(directory, ask=ask_passphrase, openings=openings) as federation:
        request = federation.request_of(client) if client is not None else _request(federation, number or 0)
        if request is not None and request.judged:
            document, words = _erasure(federation, request, output, force=force)
        elif client is not None:
            document, words = _what_if(federation, client, output, force=force)
        else:
            raise LedgerError(f"request {number} is not answered yet: there is nothing to prove")
    if as_json:
        print_json({"run": str(directory), **document})
    else:
        results().print(words)


def _erasure(
    federation: Federation, request: ErasureRequest, output: Path, *, force: bool
) -> tuple[dict[str, Any], str]:
    """Write the proof of an answered request, for the present head if it can be signed."""
    proof = federation.proof(request)
    write_file(output, proof.data, force=force)
    document = {
        "kind": "erasure",
        "request": request.number,
        "proof": str(output),
        "opening": None,
        "renewed": proof.renewed,
        "as_of": proof.as_of,
    }
    older = f"; the log is at {proof.newest}, and there is no key here to sign a newer proof"
    words = (
        f"proof of request {request.number} written to {output}, {'renewed, ' if proof.renewed else ''}as of head "
        f"{proof.as_of}{'' if proof.as_of >= proof.newest else older}\n"
        f"Its opening was written when it was answered (by default to {default_openings(federation.directory)}), "
        "still fits, and is kept nowhere else."
    )
    return document, words


def _what_if(federation: Federation, client: str, output: Path, *, force: bool) -> tuple[dict[str, Any], str]:
    """Write what the answer would be if a client asked now, and its opening."""
    directory = federation.directory
    folder = check_openings(federation.openings or default_openings(directory), directory)
    sealed, proof = federation.what_if(client)
    write_file(output, sealed, force=force)
    opening = federation.write_what_if_opening(client, proof)
    document = {"kind": "what-if", "request": None, "proof": str(output), "opening": str(opening)}
    words = f"what-if about {escaped(client)} written to {output}, its opening to {opening}; nothing was erased"
    if folder.resolve() != default_openings(directory):
        words += f"\nThe opening names the client: delete it when it leaves, or erase it with --openings {folder}."
    return document, words


def _request(federation: Federation, number: int) -> ErasureRequest:
    found = [request for request in federation.requests() if request.number == number]
    if not found:
        raise ConfigError(
            f"--request is {number}; allowed: the number of a request (`disavow requests {federation.directory}`)"
        )
    return found[0]


def receipt(directory: Path, client: str, folder: Path, number: int | None, *, force: bool, as_json: bool) -> None:
    """Write a client's receipts."""
    check_openings(folder, directory)
    with Federation.open(directory, ask=ask_passphrase) as federation:
        made = federation.receipts(client, number)
    written = {folder / f"receipt-{round_number}.json": data for round_number, data in made.items()}
    for path, data in written.items():
        refuse_other(path, data, force=force)
    remove_temporaries(folder, r"receipt-[0-9]+\.json")
    for path, data in written.items():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(path, data, force=force, mode=0o600)
    if as_json:
        print_json({"run": str(directory), "client": client, "receipts": [str(path) for path in written]})
    else:
        results().print(f"{len(written)} receipts of {escaped(client)} written to {folder}")


def checkpoint(directory: Path, output: Path | None, *, force: bool) -> None:
    """Give out the newest signed head."""
    with Federation.open(directory) as federation:
        head = federation.signed_head()
    if output is None:
        print(head, end="")
    else:
        write_file(output, head.encode(), force=force)


def export(
    directory: Path,
    output: Path,
    *,
    average: int,
    anyway: bool,
    serving: bool,
    since: int | None,
    force: bool,
    as_json: bool,
    to: str | None = None,
) -> None:
    """Write the model that is served, or the mean of it and of those before it; and the serving statement."""
    beside = output.with_name(f"{output.name}.serving.json")
    with Federation.open(directory, ask=ask_passphrase) as federation:
        if to is not None and output.exists():  # what cannot be written is not recorded as given out
            refuse_other(output, federation.export(average=average, anyway=anyway).data, force=force)
        model = federation.export(average=average, anyway=anyway, to=to)
        statement, missing = _serving_statement(federation, model, since) if serving else (None, None)
    write_file(output, model.data, force=force)
    if statement is not None:
        write_file(beside, statement, force=force or _is_statement(beside))
    if as_json:
        document = {
            "model": model.digest,
            "file": str(output),
            "mean_of": model.mean_of,
            **model.unsettled.to_json(),
        }
        stated = None if statement is None else str(beside)
        print_json({"run": str(directory), **document, "release": model.release, "serving": stated})
        return
    results().print(f"model {model.digest} written to {output}")
    if statement is not None:
        results().print(f"serving statement written to {beside}")
    elif missing is not None:
        results().print(f"no serving statement: {missing}")
    if model.release is not None:
        results().print(f"release {model.release}: `disavow releases {directory}` says when it is superseded")
    if (reason := model.unsettled.reason) is not None:
        results().print(f"It is not the model that this run will serve: {reason}")
    if model.mean_of:
        results().print(
            f"It is the mean of the models after rounds {model.newest - average + 1} to {model.newest}. Proofs "
            "name the last of them, not their mean: `disavow verify --model` wants that one."
        )


def _serving_statement(
    federation: Federation, model: ExportedModel, since: int | None
) -> tuple[bytes | None, str | None]:
    """The statement about an exported model; or why there is none, where nobody asked for one in particular."""
    if model.mean_of is not None:
        return None, "a mean of models is the model of no head"
    if federation.ledger.log_key() is None and since is None:
        return None, "the log of this run is not signed; `disavow keygen` makes a key"
    try:
        return federation.serving_statement(since=since, model=model.digest, anyway=True), None
    except ConfigError as error:
        if since is not None:
            raise
        return None, str(error)


def _is_statement(path: Path) -> bool:
    """Whether a file is a serving statement: a newer one takes its place."""
    try:
        SignedServing.decode(path.read_bytes())
    except (OSError, VerificationError):
        return False
    return True
