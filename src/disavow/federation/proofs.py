"""What is proved, and the files that go to leavers: proofs, openings, receipts, the signed head of the log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from disavow.cosigning import Cosignatures, cosignatures_of
from disavow.domain import ErasureRequest
from disavow.erasure.proof_files import (
    check_openings,
    default_openings,
    names_asker,
    opening_path,
    request_opened_for,
    what_if_path,
    word_path,
)
from disavow.errors import ConfigError, LedgerError, RunUnsafe, UnknownClient, VerificationError
from disavow.federation.open_run import OpenRun
from disavow.ledger import Ledger, Reader
from disavow.ledger.files import remove_temporaries, sync_folder, write_durably
from disavow.ledger.proofs import ProofStore
from disavow.proof.envelope import Envelope
from disavow.proof.keys import load_signer
from disavow.proof.leaves import log_size
from disavow.proof.notes import Signer
from disavow.proof.statement import Predicate, decode_statement
from disavow.record_requests import unknown_client
from disavow.results import Proof

if TYPE_CHECKING:
    from disavow.erasure.prove import OpenedProof
    from disavow.proof.summary import Summary


class Proofs(OpenRun):
    """Proofs of answered requests and of what would be answered, and whose request one was."""

    def request_of(self, client: str) -> ErasureRequest | None:
        """Find the request of a client, if it has asked before and not cancelled it.

        Once a client is forgotten, only its opening tells which request was its own: it is looked for in the folder
        for openings.

        Args:
            client: Who may have asked.

        Returns:
            The request; None where there is none.

        """
        return self._request_of(self.ledger, client)

    def _request_of(self, reader: Reader, client: str) -> ErasureRequest | None:
        found = reader.find_request(client)
        if found is not None or not reader.has_left(client):
            return found
        number = request_opened_for(reader, self.openings or default_openings(self.directory), client)
        return None if number is None else next(iter(reader.requests([number])), None)

    def is_request_of(self, request: ErasureRequest, client: str) -> bool:
        """Say whether a request is this client's; once it is answered, only its opening tells.

        Args:
            request: The request.
            client: Who may have asked.

        Returns:
            Whether it is, as far as can be told here.

        """
        if request.client is not None:
            return request.client == client
        return names_asker(self.ledger, self.opening_of(request.number), request.number, client)

    def proof(self, request: ErasureRequest) -> Proof:
        """Give the proof of an answered request, for the present head if there is a key to sign it with.

        Args:
            request: The request that was answered.

        Returns:
            The signed proof, and what a caller tells of it.

        Raises:
            LedgerError: The request is not answered yet.
            ConfigError: The log is signed by another key.

        """
        kept, newest = self._kept_proof(request.number), self.ledger.log_length()
        word = self.ledger.word_of(request.number)
        head = self.ledger.cosigned_head()
        cosigned = head is None or set(head.lines.values()) <= _cosignatures_in(kept)
        current = _leaves_in(kept) == newest and _word_in(kept) == word and cosigned
        renewed = None if current else self._renewed(kept, word)
        data = renewed or kept
        return Proof(data, request.number, _leaves_in(data), newest, renewed is not None)

    def what_if(self, client: str) -> tuple[bytes, OpenedProof]:
        """Prove what the answer would be if a client asked now.

        Args:
            client: Who would ask.

        Returns:
            The signed proof, and what it was made from.

        Raises:
            UnknownClient: It is not in the run.
            LedgerError: It is not deniable.

        """
        from disavow.erasure.prove import prove_what_if

        signer = self._signer()
        self._refuse_other_key(signer)
        if self.ledger.strangers([client]):
            raise unknown_client(client, self.ledger.clients())
        proof = prove_what_if(self.ledger, client)
        return proof.sealed(signer), proof

    def write_what_if_opening(self, client: str, proof: OpenedProof) -> Path:
        """Write the opening of a what-if into the folder for openings; where it is now.

        Args:
            client: Who would ask.
            proof: What `what_if` gave.

        Returns:
            The file that was written.

        """
        folder = check_openings(self.openings or default_openings(self.directory), self.directory)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        opening = what_if_path(folder, self.ledger.run_id, client)
        remove_temporaries(folder, re.escape(opening.name))
        write_durably(opening, proof.opening.encode(), mode=0o600)
        return opening

    def receipts(self, client: str, round_number: int | None = None) -> dict[int, bytes]:
        """Make a client's receipts of its standing rounds, by round.

        Args:
            client: Whose receipts they are.
            round_number: The only round to make one for; None for all.

        Returns:
            The receipts as files, by round.

        Raises:
            UnknownClient: It is not in the run, or was not in that round.

        """
        from disavow.erasure.receipts import receipts

        if self.ledger.strangers([client]):
            raise unknown_client(client, self.ledger.clients())
        signer = load_signer(self.keys, self.ask)
        made = dict(receipts(self.ledger, client, signer, round_number))
        if not made and round_number is not None:
            raise UnknownClient(f"{client!r} was not in round {round_number}, or that round does not stand")
        return made

    def signed_head(self) -> str:
        """Give the newest signed head of the log, with the cosignatures of its witnesses.

        Returns:
            A note as transparency logs have it: origin, size, root and signatures.

        Raises:
            ConfigError: The log is not signed.

        """
        head = self.ledger.cosigned_head()
        if head is None:
            raise ConfigError("the log of this run is not signed: it has no key; `disavow keygen` makes one")
        return head.cosigned

    def cosigned(self) -> Cosignatures | None:
        """Tell which witnesses have cosigned the newest head of the log.

        Returns:
            Who has, who has not, and how many must; None where the log is not signed, or no witness is set.

        """
        return cosignatures_of(self.ledger, self.settings.witness)

    def note_word(self, request: int, word: bytes) -> Path:
        """Take a client's signed word that it removed the records of a request, and keep it beside the openings.

        The run keeps its digest alone, because the file names the client by its key. Proofs have the digest from
        now on; one that was made before is renewed by `disavow prove`.

        Args:
            request: The number of the request.
            word: The file; see `disavow.proof.word`.

        Returns:
            Where the file is now.

        Raises:
            RunError: It is no request for records.
            VerificationError: The word does not hold, or is about other records.

        """
        folder = check_openings(self.openings or default_openings(self.directory), self.directory)
        if self.ledger.writable:
            self.ledger.note_word(request, word)
        else:
            with Ledger.open(self.directory, shared=True, keys=self.keys) as ledger:
                ledger.note_word(request, word)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = word_path(folder, self.ledger.run_id, request)
        write_durably(path, word, mode=0o600)
        return path

    def opening_of(self, request: int) -> Path:
        """Where the opening of an answered request lies: where it was asked for, or else beside the run.

        Args:
            request: The number of the request.

        Returns:
            The file, whether it is still there or not.

        """
        folders = [*([self.openings] if self.openings else []), default_openings(self.directory)]
        found = [opening_path(folder, self.ledger.run_id, request) for folder in folders]
        return next((path for path in found if path.exists()), found[0])

    def read_opening(self, request: int) -> bytes | None:
        """Read the opening of an answered request, which is its leaver's own.

        Args:
            request: The number of the request.

        Returns:
            The file; None where it is not there, or not any more.

        """
        try:
            return self.opening_of(request).read_bytes()
        except FileNotFoundError:
            return None

    def delete_opening(self, request: int) -> bool:
        """Delete the opening of an answered request, once its leaver has it: it names the leaver.

        Args:
            request: The number of the request.

        Returns:
            Whether there was one.

        """
        path = self.opening_of(request)
        if not path.exists():
            return False
        path.unlink()
        sync_folder(path.parent)
        return True

    def summary_of(self, request: int) -> Summary | None:
        """What the proof of a request says in numbers; None where there is no proof that can be read.

        Args:
            request: The number of the request.

        Returns:
            Those numbers, or None.

        """
        from disavow.proof.summary import summarise

        proofs = ProofStore(self.directory)
        try:
            if (sealed := proofs.read(request)) is not None:
                return summarise(decode_statement(Envelope.decode(sealed).statement))
            unsigned = proofs.read(request, signed=False)
            return None if unsigned is None else summarise(decode_statement(unsigned))
        except (RunUnsafe, VerificationError):
            return None  # what became of the file is for fsck to say: the request is answered

    def _kept_proof(self, number: int) -> bytes:
        """The second proof of a request, or else the one that was made with the answer; signed now, if there was no
        key then.
        """
        from disavow.erasure.prove import sign_late

        proofs = ProofStore(self.directory)
        for purged in (True, False):
            if (kept := proofs.read(number, purged=purged)) is not None:
                return kept
            if (unsigned := proofs.read(number, signed=False, purged=purged)) is not None:
                proof = sign_late(self.ledger, unsigned, self._signer())
                proofs.write(number, proof, purged=purged)
                return proof
        raise LedgerError(f"request {number} has no proof: it is not answered yet, or was before there were proofs")

    def _renewed(self, kept: bytes, word: bytes | None) -> bytes | None:
        """The proof for the present head; None where there is no key to sign it with."""
        from disavow.erasure.prove import renew

        signer = load_signer(self.keys, self.ask)
        if signer is None:
            return None
        self._refuse_other_key(signer)
        return renew(self.ledger, Envelope.decode(kept).statement, signer, word=word)

    def _signer(self) -> Signer:
        signer = load_signer(self.keys, self.ask)
        if signer is None:
            raise ConfigError("there is no key to sign with; `disavow keygen` makes one")
        return signer

    def _refuse_other_key(self, signer: Signer) -> None:
        key = self.ledger.log_key()
        if key is not None and key != signer.public:
            raise ConfigError(
                f"the log of {self.directory} is signed with key {key.id[:16]}, not with {signer.public.id[:16]}; "
                f"`disavow resume {self.directory}` takes up a new key"
            )


def _leaves_in(proof: bytes) -> int:
    """How many leaves a proof of ours has."""
    return log_size(decode_statement(Envelope.decode(proof).statement).predicate.leaves)


def _cosignatures_in(proof: bytes) -> set[str]:
    """The lines of witnesses in a proof of ours."""
    predicate = decode_statement(Envelope.decode(proof).statement).predicate
    return set(predicate.cosignatures or ()) if isinstance(predicate, Predicate) else set()


def _word_in(proof: bytes) -> bytes | None:
    """The digest of the client's word in a proof of ours, if there is one."""
    from disavow.proof.summary import erased_records

    records = erased_records(decode_statement(Envelope.decode(proof).statement).predicate)
    return None if records is None else records.word
