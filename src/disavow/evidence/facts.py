"""What a run knows about one request, read once: what the document of an evidence pack is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from importlib.metadata import version
from typing import Any, Self

from disavow.domain import Cost, ErasureRequest, Policy, RequestState
from disavow.erasure.dry_run import Forecast
from disavow.errors import DisavowError, VerificationError
from disavow.federation import Federation
from disavow.ledger.proofs import ProofStore
from disavow.proof.bounds import log10_odds, noise_in_words, total_ratio
from disavow.proof.envelope import Envelope
from disavow.proof.history import History
from disavow.proof.keys import PUBLIC, keys_in, load_signer, public_file
from disavow.proof.leaves import LogLeaf, PurgeLeaf
from disavow.proof.notes import Checkpoint, PublicKey, TrustedKey, read_note
from disavow.proof.statement import AnyStatement, Predicate
from disavow.proof.summary import erased_records, summarise, unchanged_in_words
from disavow.proof.verify import Report, VerificationInputs, examine


@dataclass(frozen=True, eq=False)
class CheckedProof:
    """A proof that holds, and what its verification read.

    Args:
        data: The file.
        report: What became of its checks when the pack was made.
        statement: What it says.
        history: Its log.
        head: The head of that log.
        signer: The key that signed it.

    """

    data: bytes
    report: Report
    statement: AnyStatement
    history: History
    head: Checkpoint
    signer: PublicKey

    @classmethod
    def of(cls, data: bytes, trusted: list[TrustedKey], what: str) -> Self:
        """Verify a proof before it goes on record.

        Args:
            data: The file.
            trusted: The keys of which one must have signed it.
            what: What it is, for the error.

        Raises:
            VerificationError: It does not hold.

        """
        report = examine(VerificationInputs(proof=data, trusted=trusted))
        if report.failed is not None:
            raise VerificationError(
                f"{what} does not hold: check {report.failed.number} ({report.failed.name}) failed: "
                f"{report.failure}; `disavow fsck` looks at the whole run"
            )
        assert report.statement and report.history and report.head  # noqa: S101, PT018 - all checks passed
        signer = Envelope.decode(data).signer([each.key for each in trusted])
        return cls(data, report, report.statement, report.history, report.head, signer)

    @property
    def drawn(self) -> str | None:
        """The chance that the leaver was drawn in a round that stands, in words; None where it is in none."""
        found = summarise(self.statement)
        if not found.rounds:
            return None
        return f"{'at most ' if found.fixed else ''}{found.drawn:.1%}"

    @property
    def exposed(self) -> bool:
        """Whether noise hides nobody from those who know the updates of a group."""
        bounds = self.report.bounds
        return bool(bounds) and noise_in_words(log10_odds(total_ratio(bounds))) is not None

    @property
    def unchanged(self) -> str:
        """What speaks against a retraining: how many rounds end in models that were undone; "" for none."""
        return unchanged_in_words(self.statement, self.history)

    @property
    def undone_by(self) -> LogLeaf | None:
        """The purge or rollback that undid the leaver's last round; None where the proof names none."""
        said = self.statement.predicate
        place = said.purge if isinstance(said, Predicate) else None
        return None if place is None else self.history.leaves[place]

    @property
    def signed_word(self) -> bool:
        """Whether the client has signed that it deleted the records."""
        records = erased_records(self.statement.predicate)
        return records is not None and records.word is not None


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known about a request. Nothing here names its client.

    Args:
        run: What the run is called.
        run_id: Its id.
        made_at: When this was read.
        made_by: The version of disavow that read it.
        request: The request, without its client; without names and reasons where they are not to be shown.
        named: Whether names and reasons are to be shown, and a forecast.
        policy: What the run promises.
        in_model: Whether updates of its client may be in the model that is served.
        trained_out_at: When the last of them was trained out of it, where that came after the answer.
        purge_due: By when they are to be out of it; None where nothing is promised, or they are.
        at_risk: Why they will not be out in time, as far as is known.
        purge_cost: What the retraining took that removed them, where a purge did.
        forecast: What answering it would come to now, where it waits.
        no_forecast: The code of the error that says why there is none, where it waits.
        model: The digest of the model that the run serves.
        released: How many models are recorded as given to others.
        superseded: How many of them are to be deleted by whoever has them.
        proof: The proof, of the newest head that could be signed; None where there is none.
        interim: The first proof, where `proof` is the second.
        no_proof: Why there is no proof, in words.
        key: The key that signs the log; None where nobody signs it.
        keys: The public keys as a file, and what it is called; None where there are none.
        checkpoint: The newest signed head of the log; None where it is not signed.

    """

    run: str
    run_id: str
    made_at: datetime
    made_by: str
    request: ErasureRequest
    named: bool
    policy: Policy
    in_model: bool
    trained_out_at: datetime | None
    purge_due: datetime | None
    at_risk: str | None
    purge_cost: Cost | None
    forecast: Forecast | None
    no_forecast: str
    model: str
    released: int
    superseded: int
    proof: CheckedProof | None
    interim: CheckedProof | None
    no_proof: str
    key: PublicKey | None
    keys: tuple[str, bytes] | None
    checkpoint: bytes | None

    @property
    def checkpoint_fits(self) -> bool:
        """Whether the proof covers the checkpoint, so that it can be verified against it."""
        if self.proof is None or self.checkpoint is None:
            return False
        return read_note(self.checkpoint.decode(), "the head", cosigned=True).head.size <= self.proof.head.size

    def as_view(self) -> Mapping[str, Any]:
        """The request as `disavow.wording` takes it."""
        return self.request.to_json()

    def policy_view(self) -> Mapping[str, Any]:
        """The policy as `disavow.wording` takes it."""
        return asdict(self.policy)


def gather(federation: Federation, number: int, *, named: bool) -> Facts:
    """Read all that goes on record about a request.

    Args:
        federation: The run; nothing is trained, and its task is not loaded.
        number: The request.
        named: Whether to say who decided and why, and what is forecast. Clients are never named.

    Raises:
        UnknownRequest: There is none of this number.
        VerificationError: The proof that the run keeps does not hold.
        ConfigError: The proof has to be renewed, and the signing key cannot be opened.

    """
    ledger = federation.ledger
    request = federation.request(number)
    in_model = request.state is RequestState.ANSWERED and number in ledger.unpurged().rounds
    purge_promised = in_model and federation.settings.deniability.purge == "deadline"
    forecast, no_forecast = _foreseen(federation, request) if named else (None, "")
    checkpoint = ledger.signed_head()  # before the proof, which then covers it
    keys = _public_keys(federation)
    proof, interim, no_proof = _proofs(federation, request, keys)
    releases = federation.releases()
    return Facts(
        run=federation.directory.resolve().name,
        run_id=ledger.run_id,
        made_at=federation.clock(),
        made_by=version("disavow"),
        request=_nameless(request, named=named),
        named=named,
        policy=ledger.policy,
        in_model=in_model,
        trained_out_at=request.purged_at if _has_second_proof(federation, number) else None,
        purge_due=request.due if purge_promised else None,
        at_risk=federation.purge_outlook().at_risk(number) if purge_promised else None,
        purge_cost=_purge_cost(federation, request, proof),
        forecast=forecast,
        no_forecast=no_forecast,
        model=ledger.served_model_digest(),
        released=len(releases),
        superseded=sum(each.superseded for each in releases),
        proof=proof,
        interim=interim,
        no_proof=no_proof,
        key=ledger.log_key() if proof is None else proof.signer,
        keys=keys,
        checkpoint=None if checkpoint is None else checkpoint.encode(),
    )


def _nameless(request: ErasureRequest, *, named: bool) -> ErasureRequest:
    history = request.history
    if not named:
        history = tuple(replace(event, actor="", reason="") for event in history)
    return replace(request, client=None, history=history)


def _foreseen(federation: Federation, request: ErasureRequest) -> tuple[Forecast | None, str]:
    """What answering a request that waits would come to; or why nobody can tell."""
    if not request.pending or request.judged:
        return None, ""
    try:
        return federation.forecast_of(request.number).forecast, ""
    except DisavowError as error:  # a forecast is an extra: what is on record does not depend on it
        return None, error.code


def _public_keys(federation: Federation) -> tuple[str, bytes] | None:
    """The public keys of the operator; where their files are not at hand, the one that the log names."""
    found = public_file(federation.keys)
    if found is not None:
        return found.name, found.read_bytes()
    key = federation.ledger.log_key()
    return None if key is None else (PUBLIC, f"{key}\n".encode())


def _proofs(
    federation: Federation, request: ErasureRequest, keys: tuple[str, bytes] | None
) -> tuple[CheckedProof | None, CheckedProof | None, str]:
    """The proof, the first one where that is a second, or why there is none."""
    if request.state is not RequestState.ANSWERED:
        return None, None, "it has not been answered"
    store, number = ProofStore(federation.directory), request.number
    first, second = store.read(number), store.read(number, purged=True)
    unsigned = first is None and second is None and load_signer(federation.keys, federation.ask) is None
    if keys is None or unsigned:
        return None, None, "there was no key to sign it with when it was answered, and there is none here"
    trusted, what = keys_in(keys[1], keys[0]), f"the proof of request {number}"
    proof = CheckedProof.of(federation.proof(request).data, trusted, what)
    if first is None or second is None:
        return proof, None, ""
    return proof, CheckedProof.of(first, trusted, f"the first proof of request {number}"), ""


def _has_second_proof(federation: Federation, number: int) -> bool:
    """Whether rounds of the leaver stood when it was answered, and none of them does since."""
    store = ProofStore(federation.directory)
    return any(store.path(number, signed=signed, purged=True).exists() for signed in (True, False))


def _purge_cost(federation: Federation, request: ErasureRequest, proof: CheckedProof | None) -> Cost | None:
    """What the purge took that removed the last update of a leaver; None where something else removed it."""
    if request.purged_at is None or proof is None or not isinstance(proof.undone_by, PurgeLeaf):
        return None
    begun = [each for each in federation.ledger.purges() if each.begun_at <= request.purged_at]
    return begun[-1].cost if begun else None
