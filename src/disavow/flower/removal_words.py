"""Collect the clients' signed words that they removed records (`disavow.proof.word`).

A node is asked for its word in the messages that exclude the records, and gives it in a reply once its app has
left them out. It counts where it is signed with the key that the client is known by. The run keeps the word's
digest, and proofs that are made or renewed from then on carry it; the word itself, which names the client, lies
beside the openings.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from flwr.app import ConfigRecord

from disavow.domain import Decision
from disavow.erasure.proof_files import word_path
from disavow.errors import DisavowError, TextNamesClient, VerificationError
from disavow.federation import Federation
from disavow.flower.log import inform, warn
from disavow.flower.node_keys import fingerprint
from disavow.flower.opened_requests import OpenedRequests
from disavow.flower.protocol import NODE, UNKNOWN, WORDS
from disavow.proof.word import SignedWord


class RemovalWords:
    """The words that clients have given, and those that they are asked for.

    Args:
        federation: The run, open for training.
        opened: The requests whose openings are here.
        openings: The folder for openings, where words are kept.

    """

    def __init__(self, federation: Federation, opened: OpenedRequests, openings: Path) -> None:
        self._federation, self._ledger = federation, federation.ledger
        self._opened, self._openings = opened, openings
        self._warned: set[str] = set()
        self._not_held: set[int] = set()

    def wanted(self, client: str) -> dict[bytes, int]:
        """Find the requests for records of a client that it has not given its word on.

        Args:
            client: Whose records they were.

        Returns:
            The numbers of the requests, by the log's commitments to the records.

        """
        open_ones = self._ledger.words_wanted(client)
        # only once it is judged are a request's records excluded: before, the client would promise too much
        judged = {request.number for request in self._ledger.requests(list(open_ones)) if request.judged}
        wanted = {records: number for number, records in open_ones.items() if number in judged}
        for opened in self._opened.all():
            if opened.client == client and opened.for_records and not self._is_given(opened.number):
                records = self._ledger.records_commitment(opened.number)
                if records is not None:
                    wanted[records] = opened.number
        return wanted

    def _is_given(self, number: int) -> bool:
        """Whether the run has a word's digest, and the word is here: a crash may have come in between."""
        if self._ledger.word_of(number) is None:
            return False
        return word_path(self._openings, self._ledger.run_id, number).exists()

    def take(self, client: str, record: ConfigRecord) -> None:
        """Keep the words in a reply, checked; and say in the log, and in the history of the request, that its node
        does not have some records.

        Args:
            client: Whose node it is from.
            record: What the reply says beside the update; it may be anything.

        """
        unknown, words = record.get(UNKNOWN), record.get(WORDS)
        if isinstance(unknown, list) and unknown:
            self._note_not_held(client, {each for each in unknown if isinstance(each, bytes)})
            self._warn_once(
                f"{client}: its node has no records of {len(unknown)} keys that were excluded: they are misspelt, "
                "or were removed before"
            )
        for data in words if isinstance(words, list) else []:
            try:
                self._note(client, data if isinstance(data, bytes) else b"")
            except DisavowError as wrong:
                self._warn_once(f"a word of {client} that it removed records is not taken: {wrong}")

    def _note_not_held(self, client: str, unknown: set[bytes]) -> None:
        """Note in the histories of a client's requests for records which of them its node does not have."""
        excluded = self._ledger.exclusions([client])[client]
        for number, records in self._records_of(client).items():
            missing = sum(excluded.hash_of(record) in unknown for record in records)
            if missing and number not in self._not_held:
                held = f"its node has none of {missing} of {len(records)} records: misspelt, or removed before"
                try:
                    self._ledger.note_not_held(number, Decision(NODE, self._federation.clock(), held))
                except TextNamesClient:  # somebody is called by a word of these: it stays a warning
                    continue
                finally:
                    self._not_held.add(number)

    def _records_of(self, client: str) -> dict[int, tuple[str, ...]]:
        """The keys of the records that a client's judged requests name, as far as they can be known here."""
        open_ones = self._ledger.requests(list(self._ledger.words_wanted(client)))
        found = {each.number: self._ledger.requested_records(each.number) for each in open_ones if each.judged}
        for opened in self._opened.all():
            if opened.client == client and opened.for_records and opened.number not in found:
                found[opened.number] = opened.records
        return found

    def _note(self, client: str, data: bytes) -> None:
        word = SignedWord.decode(data)
        number = self.wanted(client).get(word.word.records)
        if number is None:
            return  # it was given before, or is about nothing that was asked
        if _key_of(word) != client:
            raise VerificationError("it is signed with another key than the client is known by")
        self._federation.note_word(number, data)
        inform(f"request {number}: the client has given its signed word that it removed the records")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


def _key_of(word: SignedWord) -> str | None:
    """The fingerprint of the key that a word names, as clients are known by it; None where it is no such key."""
    try:
        key = serialization.load_der_public_key(word.public_key)
    except ValueError:
        return None
    return fingerprint(
        key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
