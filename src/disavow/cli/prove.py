"""`disavow prove` and `disavow receipt`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from disavow.cli.output import print_json, results
from disavow.cli.passphrase import ask_passphrase
from disavow.cli.unsettled import unsettled
from disavow.domain import ErasureRequest, escaped
from disavow.erasure.prove import (
    check_openings,
    default_openings,
    prove_what_if,
    renew,
    sign_late,
    what_if_path,
)
from disavow.erasure.receipts import receipts
from disavow.errors import ConfigError, LedgerError, ModelNotReady, UnknownClient
from disavow.ledger import Ledger
from disavow.ledger.files import remove_temporaries, write_durably
from disavow.ledger.keys import default_folder, tombstone_key
from disavow.ledger.models import digest_of, to_safetensors
from disavow.ledger.proofs import ProofStore
from disavow.proof.envelope import read_envelope
from disavow.proof.keys import load_signer
from disavow.proof.notes import Signer
from disavow.proof.statement import read_statement


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
    request = _request_of(directory, client) if client is not None else _request(directory, number or 0)
    if request is not None and request.judged:
        told, words = _erasure(directory, request, output, force=force)
    elif client is not None:
        told, words = _what_if(directory, client, output, openings, force=force)
    else:
        raise LedgerError(f"request {number} is not answered yet: there is nothing to prove")
    if as_json:
        print_json({"run": str(directory), **told})
    else:
        results().print(words)


def _erasure(directory: Path, request: ErasureRequest, output: Path, *, force: bool) -> tuple[dict[str, Any], str]:
    """Write the proof of an answered request, for the present head if it can be signed."""
    kept, newest = _kept_proof(directory, request), _newest(directory)
    proof = None if _head_of(kept) == newest else _renewed(directory, kept)
    _write(output, proof or kept, force=force)
    head = _head_of(proof or kept)
    told = {
        "kind": "erasure",
        "request": request.number,
        "proof": str(output),
        "opening": None,
        "renewed": proof is not None,
        "as_of": head,
    }
    words = (
        f"proof of request {request.number} written to {output}, {'renewed, ' if proof else ''}as of head {head}"
        f"{'' if head >= newest else f'; the log is at {newest}, and there is no key here to sign a newer proof'}\n"
        f"Its opening was written when it was answered (by default to {default_openings(directory)}), still fits, "
        "and is kept nowhere else."
    )
    return told, words


def _what_if(
    directory: Path, client: str, output: Path, openings: Path | None, *, force: bool
) -> tuple[dict[str, Any], str]:
    """Write what the answer would be if a client asked now, and its opening."""
    folder = check_openings(openings or default_openings(directory), directory)
    signer = _signer()
    with Ledger.open(directory) as ledger:
        _refuse_other_key(ledger, signer)
        proof = prove_what_if(ledger, client)
    _write(output, proof.sealed(signer), force=force)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    opening = what_if_path(folder, ledger.run_id, client)
    remove_temporaries(folder, re.escape(opening.name))
    write_durably(opening, proof.opening.to_bytes(), mode=0o600)
    told = {"kind": "what-if", "request": None, "proof": str(output), "opening": str(opening)}
    words = f"what-if about {escaped(client)} written to {output}, its opening to {opening}; nothing was erased"
    if folder.resolve() != default_openings(directory):
        words += f"\nThe opening names the client: delete it when it leaves, or erase it with --openings {folder}."
    return told, words


def _refuse_other_key(ledger: Ledger, signer: Signer) -> None:
    key = ledger.log_key()
    if key is not None and key != signer.public:
        raise ConfigError(
            f"the log of {ledger.directory} is signed with key {key.id[:16]}, not with {signer.public.id[:16]}; "
            f"`disavow resume {ledger.directory}` takes up a new key"
        )


def _request(directory: Path, number: int) -> ErasureRequest:
    with Ledger.open(directory) as ledger:
        found = [request for request in ledger.requests() if request.number == number]
    if not found:
        raise ConfigError(
            f"--request is {number}; allowed: the number of a request (`disavow requests {directory}`)"
        )
    return found[0]


def _request_of(directory: Path, client: str) -> ErasureRequest | None:
    with Ledger.open(directory) as ledger:
        if not ledger.requests():
            return None
        return ledger.find_request(client, key=tombstone_key(default_folder(), run=directory))


def _renewed(directory: Path, kept: bytes) -> bytes | None:
    """The proof for the present head; None where there is no key to sign it with."""
    signer = load_signer(default_folder(), ask_passphrase)
    if signer is None:
        return None
    with Ledger.open(directory) as ledger:
        _refuse_other_key(ledger, signer)
        return renew(ledger, read_envelope(kept).payload, signer)


def _newest(directory: Path) -> int:
    """How many leaves the log has."""
    with Ledger.open(directory) as ledger:
        return ledger.log_length()


def _head_of(proof: bytes) -> int:
    """How many leaves a proof of ours has."""
    return len(read_statement(read_envelope(proof).payload).written)


def _kept_proof(directory: Path, request: ErasureRequest) -> bytes:
    """The proof as it was made with the answer; signed now, if there was no key then."""
    proofs = ProofStore(directory)
    if (kept := proofs.read(request.number)) is not None:
        return kept
    unsigned = proofs.read(request.number, signed=False)
    if unsigned is None:
        raise LedgerError(
            f"request {request.number} has no proof: it is not answered yet, or was before there were proofs"
        )
    with Ledger.open(directory) as ledger:
        proof = sign_late(ledger, unsigned, _signer())
    proofs.write(request.number, proof)
    return proof


def _signer() -> Signer:
    signer = load_signer(default_folder(), ask_passphrase)
    if signer is None:
        raise ConfigError("there is no key to sign with; `disavow keygen` makes one")
    return signer


def _write(output: Path, data: bytes, *, force: bool, mode: int = 0o644) -> None:
    """Write a file that somebody asked for; one that is there and says something else is kept unless forced."""
    try:
        if _refuse_other(output, data, force=force):
            return
        write_durably(output, data, mode=mode)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from None


def _refuse_other(output: Path, data: bytes, *, force: bool) -> bool:
    """Whether a file is there and holds just this; one that holds something else is refused unless forced."""
    if force or not os.path.lexists(output):
        return False
    if output.is_file() and output.stat().st_size == len(data) and output.read_bytes() == data:
        return True
    raise ConfigError(f"{output} exists and is not overwritten; --force replaces it")


def receipt(directory: Path, client: str, folder: Path, number: int | None, *, force: bool, as_json: bool) -> None:
    """Write a client's receipts."""
    check_openings(folder, directory)
    with Ledger.open(directory) as ledger:
        signer = load_signer(default_folder(), ask_passphrase)
        written = {
            folder / f"receipt-{round_number}.json": data
            for round_number, data in receipts(ledger, client, signer, number)
        }
    for path, data in written.items():
        _refuse_other(path, data, force=force)
    remove_temporaries(folder, r"receipt-[0-9]+\.json")
    for path, data in written.items():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(path, data, force=force, mode=0o600)
    if not written and number is not None:
        raise UnknownClient(f"{client!r} was not in round {number}, or that round does not stand")
    if as_json:
        print_json({"run": str(directory), "client": client, "receipts": [str(path) for path in written]})
    else:
        results().print(f"{len(written)} receipts of {escaped(client)} written to {folder}")


def checkpoint(directory: Path, output: Path | None, *, force: bool) -> None:
    """Give out the newest signed head."""
    with Ledger.open(directory) as ledger:
        head = ledger.signed_head()
    if head is None:
        raise ConfigError("the log of this run is not signed: it has no key; `disavow keygen` makes one")
    if output is None:
        print(head, end="")
    else:
        _write(output, head.encode(), force=force)


def export(directory: Path, output: Path, *, average: int, anyway: bool, force: bool, as_json: bool) -> None:
    """Write the model that is served, or the mean of it and of those before it."""
    with Ledger.open(directory) as ledger:
        open_work = unsettled(ledger)
        reason = open_work.unfinished or (open_work.forgotten if open_work else None)
        if reason is not None and not anyway:
            raise ModelNotReady(
                f"{directory}: {reason}. `--anyway` exports what it has now; docs/erasure.md says what to serve "
                "meanwhile"
            )
        newest = ledger.last_round
        if average == 1:
            data, mean_of = ledger.store.read_bytes(ledger.layout, ledger.digest_before(newest + 1)), None
        elif average > newest:
            raise ConfigError(f"{directory} has no more rounds than {newest}: too few for --average {average}")
        else:
            mean, mean_of = ledger.mean_model(average)
            data = to_safetensors(ledger.layout, mean)
    _write(output, data, force=force)
    digest = digest_of(data)
    if as_json:
        told = {"model": digest, "file": str(output), "mean_of": mean_of, **open_work.to_json()}
        print_json({"run": str(directory), **told})
        return
    results().print(f"model {digest} written to {output}")
    if reason is not None:
        results().print(f"It is not the model that this run will serve: {reason}")
    if mean_of:
        results().print(
            f"It is the mean of the models after rounds {newest - average + 1} to {newest}. Proofs name the last "
            "of them, not their mean: `disavow verify --model` wants that one."
        )
