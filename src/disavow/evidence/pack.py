"""The evidence pack of a request: all its files, as a folder or as an archive."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from disavow.domain import ErasureRequest
from disavow.erasure.proof_files import word_path
from disavow.errors import ConfigError, LedgerError, ModelNotReady
from disavow.evidence.document import PackedFile, render
from disavow.evidence.facts import CheckedProof, Facts, gather
from disavow.evidence.pdf import print_pdf
from disavow.federation import Federation
from disavow.ledger.files import sync_folder, write_durably
from disavow.ledger.keys import refuse_inside
from disavow.verifier.assemble import assemble

DOCUMENT = "evidence.html"
PDF = "evidence.pdf"
SUMS = "SHA256SUMS"
OPENING = "opening.json"

_ABOUT = {
    DOCUMENT: "the document for people: begin here",
    PDF: "the same for paper",
    "proof.json": "the signed proof of the answer",
    "proof-interim.json": "the first proof, from before the client was trained out of the model",
    "checkpoint.txt": "the signed head of the log, to be kept",
    "serving.json": "the signed statement which model is served",
    "request.json": "the request with its history, for programs",
    "verify.html": "a page that checks the proof in a browser",
    OPENING: "the client's own file: it says who the client is",
    "word.json": "the client's signed word that it deleted the records; its key says who the client is",
    SUMS: "the SHA-256 of every other file",
}
_KEYS = "the operator's public keys: compare their fingerprint by another channel"


@dataclass(frozen=True, eq=False)
class Pack:
    """The files of an evidence pack.

    Args:
        request: The request that it is about, without its client.
        files: What each file holds, in the order in which they are listed.
        named: Whether the client's opening is among them, which says who the client is.
        no_pdf: Why there is no PDF, where one was wanted.

    """

    request: ErasureRequest
    files: Mapping[str, bytes]
    named: bool
    no_pdf: str = ""

    def about(self, name: str) -> str:
        """Say what a file is."""
        return _ABOUT.get(name, _KEYS)

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of each file, in hexadecimal."""
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}


def make_pack(
    federation: Federation, number: int, *, with_opening: bool = False, names: bool = True, pdf: bool = True
) -> Pack:
    """Make the evidence pack of a request, in whatever state it is. Nothing is trained, and nothing is changed.

    Args:
        federation: The run.
        number: The request.
        with_opening: Whether to put the client's opening in: only then does anything in the pack name the client.
        names: Whether to say who decided and why, and what is forecast of a request that waits.
        pdf: Whether to print the document as well, where a Chromium is at hand.

    Raises:
        UnknownRequest: There is none of this number.
        LedgerError: The opening is wanted, and not here.
        VerificationError: The proof that the run keeps does not hold.

    """
    facts = gather(federation, number, named=names)
    files = {**_evidence(federation, facts), **(_opening(federation, number) if with_opening else {})}
    packed = [PackedFile(name, _ABOUT.get(name, _KEYS), _digest(data)) for name, data in files.items()]
    document = render(facts, packed, opening=with_opening)
    files = {DOCUMENT: document, **files}
    no_pdf = ""
    if pdf:
        printed = print_pdf(document)
        no_pdf = printed.reason
        files |= {} if printed.data is None else {PDF: printed.data}
    files[SUMS] = "".join(f"{_digest(data)}  {name}\n" for name, data in files.items()).encode()
    return Pack(facts.request, files, with_opening, no_pdf)


def _evidence(federation: Federation, facts: Facts) -> dict[str, bytes]:
    """What can be given to anybody."""
    proof, interim = facts.proof, facts.interim
    serving = None if proof is None else _serving_statement(federation, proof)
    shown = {"run": facts.run, "run_id": facts.run_id, **facts.request.to_json()}
    return {
        **({} if proof is None else {"proof.json": proof.data}),
        **({} if interim is None else {"proof-interim.json": interim.data}),
        **({} if facts.keys is None else {facts.keys[0]: facts.keys[1]}),
        **({} if facts.checkpoint is None else {"checkpoint.txt": facts.checkpoint}),
        **({} if serving is None else {"serving.json": serving}),
        "request.json": json.dumps(shown, indent=2).encode() + b"\n",
        **({} if proof is None else {"verify.html": assemble()}),
    }


def _serving_statement(federation: Federation, proof: CheckedProof) -> bytes | None:
    """The signed statement which model is served, to be compared with the proof; None where none can be made."""
    try:
        return federation.serving_statement(since=proof.head.size)
    except (ConfigError, ModelNotReady):  # no key is at hand, or what is served now is not what will be
        return None


def _opening(federation: Federation, number: int) -> dict[str, bytes]:
    """What says who the client is."""
    opening = federation.read_opening(number)
    if opening is None:
        raise LedgerError(
            f"the opening of request {number} is not here, or not any more; `--openings` says where it was written"
        )
    word = word_path(federation.opening_of(number).parent, federation.ledger.run_id, number)
    return {OPENING: opening, **({"word.json": word.read_bytes()} if word.is_file() else {})}


def check_folder(folder: Path, run: Path) -> None:
    """Find out before the work that a folder cannot be used.

    Args:
        folder: Where a pack is to be written: it must not be there yet, or be empty.
        run: The run directory, which must not contain it.

    Raises:
        ConfigError: It cannot.

    """
    refuse_inside(folder, run, "--output")
    try:
        used = folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir())))
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used: {error.strerror}") from None
    if used:
        raise _used(folder)


def write_folder(pack: Pack, folder: Path) -> None:
    """Write a pack as a folder, whole or not at all, readable by its owner alone.

    It is made under another name beside it, `.NAME.unfinished`, and renamed: what a killed process left there is
    removed first, because an opening may be in it.

    Args:
        pack: What to write.
        folder: Where: one that `check_folder` accepts.

    Raises:
        ConfigError: The folder cannot be written, or somebody has put something into it meanwhile.

    """
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(mode=0o700)
        for name, data in pack.files.items():
            write_durably(unfinished / name, data, mode=0o600)
        unfinished.rename(folder)  # onto an empty folder at most: the system refuses another one
        sync_folder(folder.parent)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise _used(folder) from None
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from None


def _used(folder: Path) -> ConfigError:
    return ConfigError(f"{folder} is there and is not empty; allowed: a folder to be made, or an empty one")


def write_archive(pack: Pack) -> bytes:
    """Write a pack as a zip archive; the same pack gives the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in pack.files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    return stream.getvalue()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
