"""Everything that can be read of a run, as frozen values. Nothing here changes it.

`Reader` is implemented twice: a `Ledger` reads the newest state with every call, a `Snapshot` reads one state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

import sqlalchemy as sa

from disavow.domain import (
    Anchors,
    ClusterEvidence,
    Decision,
    EngineChoice,
    ErasureRequest,
    Layout,
    Policy,
    RebuiltEvidence,
    Release,
    RequestState,
    Round,
    TrainedBy,
    model_name,
)
from disavow.domain.records import Exclusions
from disavow.errors import IntegrityError, LedgerError
from disavow.ledger import clients as registry
from disavow.ledger import (
    cosignatures,
    journal,
    log,
    releases,
    request_listing,
    requests,
    retention,
    rounds,
    rows,
    updates,
    withdrawals,
)
from disavow.ledger.backend import backend_of
from disavow.ledger.blobs import location_of
from disavow.ledger.bucket import Location
from disavow.ledger.client_secrets import ClientSecrets
from disavow.ledger.cosignatures import CosignedHead
from disavow.ledger.evidence import PartialEvidence, evidence, growing
from disavow.ledger.files import bytes_in
from disavow.ledger.journal import Purge, Rebuilding, Unpurged, Waiting
from disavow.ledger.keyring import Keyring
from disavow.ledger.log import LoggedLeaf, LoggedRound, LoggedSlot, LogSize
from disavow.ledger.members import UNKNOWN, Members
from disavow.ledger.models import ModelStore, Vector, mean_of
from disavow.ledger.odds import Odds, odds
from disavow.ledger.pseudonyms import derive
from disavow.ledger.readmission import all_readmissions, readmissions
from disavow.ledger.requests import JudgedRequest
from disavow.ledger.restored import Restored, restored
from disavow.ledger.retention import RoundModel
from disavow.ledger.rounds import ClientRound, RoundSummary, StoredCluster, WeakestCluster
from disavow.ledger.run_state import state_of
from disavow.ledger.schema import models, run
from disavow.ledger.updates import KeptRound, UpdateStore
from disavow.ledger.withdrawals import Withdrawn
from disavow.privacy.events import Event
from disavow.proof.cosignatures import WitnessKey
from disavow.proof.leaves import MOST_REQUESTS, LogLeaf
from disavow.proof.notes import Checkpoint as LogHead
from disavow.proof.notes import PublicKey, Signer

Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")


@dataclass(frozen=True)
class RunRecord:
    """What was settled when a run was created, and where its files are."""

    directory: Path
    run_id: str
    created_at: datetime
    created_by: str
    policy: Policy
    layout: Layout
    initial_model: str
    settings_digest: str
    trainer: TrainedBy
    store: ModelStore
    updates: UpdateStore
    members: Members
    location: Location | None

    @classmethod
    def load(cls, directory: Path, engine: sa.Engine, keys: Path) -> Self:
        """Read it from a run.

        Args:
            directory: The folder of the run.
            engine: Opens connections to its database.
            keys: The folder of the operator's keys.

        Raises:
            LedgerError: The row of the run is damaged.

        """
        try:
            with engine.connect() as connection:
                row = connection.execute(sa.select(run)).one()
            keyring = Keyring(keys, row.run_id)
            return cls(
                directory=directory,
                run_id=row.run_id,
                created_at=datetime.fromisoformat(row.created_at),
                created_by=row.created_by,
                policy=rows.policy_from_json(row.policy),
                layout=Layout.from_json(row.layout),
                initial_model=row.initial_model,
                settings_digest=row.settings_digest,
                trainer=TrainedBy.from_json(row.trainer),
                store=ModelStore.of_run(directory, row.run_id),
                updates=UpdateStore.of_run(directory, row.run_id),
                members=Members(keyring, row.run_id),
                location=location_of(directory),
            )
        except (sa.exc.NoResultFound, sa.exc.MultipleResultsFound, ValueError, TypeError) as error:
            raise LedgerError(
                f"the ledger of {directory} is damaged; `disavow fsck {directory}` says more"
            ) from error


class Reader(ABC):
    """Reads a run. Rounds are named by their numbers, clients by their ids unless their number is asked for."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self.directory = record.directory
        self.run_id = record.run_id
        self.created_at = record.created_at
        self.created_by = record.created_by
        self.policy = record.policy
        self.layout = record.layout
        self.initial_model = record.initial_model
        self.settings_digest = record.settings_digest
        self.trainer = record.trainer
        self.store = record.store
        self.updates = record.updates
        self.members = record.members
        self.keyring = record.members.keyring
        self.models_at = str(record.location) if record.location is not None else None
        """The URL of the models, where they are not in the directory."""

    @abstractmethod
    def _connect(self) -> AbstractContextManager[sa.Connection]:
        """Open a connection to read through."""

    def _read(
        self,
        query: Callable[Concatenate[sa.Connection, Arguments], Found],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Found:
        with self._connect() as connection:
            return query(connection, *args, **kwargs)

    # -- rounds --------------------------------------------------------------------------------------------

    @property
    def last_round(self) -> int:
        """The number of the newest standing round; 0 before the first."""
        return self._read(rounds.last_round)

    def next_round(self) -> tuple[int, int]:
        """The number and the attempt of the round that comes next."""
        return self._read(rounds.next_round)

    def rounds_with(self, client: str) -> tuple[int, ...]:
        """The numbers of the standing rounds in which a client took part; answered from an index."""
        return self._read(rounds.rounds_with, self.members, client)

    def rounds_of_client(self, client: int) -> tuple[ClientRound, ...]:
        """The rounds, standing or not, in which a client (by its number) took part."""
        return self._read(rounds.rounds_of_client, self.members, client)

    def membership(self, number: int) -> tuple[tuple[str, ...], ...]:
        """Who is in which cluster of a standing round, leavers left out."""
        return self._read(rounds.membership, self.members, number)

    def newest_membership(self) -> tuple[tuple[str, ...], ...]:
        """The same of the newest standing round that has clusters: a rebuilt one has none."""
        return self._read(rounds.newest_membership, self.members)

    def round(self, number: int) -> Round:
        """A standing round, whole."""
        return self._read(rounds.load, self.members, number)

    def cluster_at(self, round_id: int, slot: int) -> StoredCluster:
        """The cluster that holds a slot of a round, which is named by its row."""
        return self._read(rounds.cluster_at, round_id, slot)

    def commitments(self, round_id: int) -> list[bytes]:
        """The commitments of all slots of a round, which is named by its row."""
        return self._read(rounds.commitments, round_id)

    def summaries(self) -> tuple[RoundSummary, ...]:
        """All recorded rounds, superseded ones too, one line each, in the order in which they were recorded."""
        return self._read(rounds.summaries)

    def weakest_clusters(self, numbers: Sequence[int]) -> dict[int, WeakestCluster]:
        """The cluster of each standing round that has the fewest members left."""
        return self._read(rounds.weakest_clusters, numbers)

    def summary(self, number: int) -> RoundSummary:
        """A standing round in one line."""
        return self._read(rounds.summary, number)

    def engine_choice(self) -> EngineChoice | None:
        """Which engine trained last, and why no faster one did; None where nobody has said."""
        with self._connect() as connection:
            text = connection.execute(sa.select(run.c.engine)).scalar_one()
        try:
            return None if text is None else EngineChoice.from_text(text)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerError(
                f"the ledger of {self.directory} is damaged; `disavow fsck {self.directory}` says more"
            ) from error

    def unevaluated(self) -> tuple[int, ...]:
        """The numbers of the standing rounds whose model has not been evaluated."""
        return self._read(rounds.unevaluated)

    def events(self) -> tuple[Event, ...]:
        """What every executed round released, superseded ones too, in the order in which they were recorded."""
        return self._read(rounds.executed)

    def odds(self) -> Odds | None:
        """What the models of the standing rounds say about who was drawn; None where nobody could have been."""
        return self._read(odds, self.members, self.policy)

    def latest_samples(self) -> dict[str, int]:
        """How many samples each participant of the round recorded last held; none before the first."""
        return self._read(rounds.latest_samples, self.members)

    def seconds_per_round(self) -> float | None:
        """What a round took lately; None before any was measured."""
        return self._read(rounds.seconds_per_round)

    def kept_rounds(self, first: int, most: int | None = None) -> list[KeptRound]:
        """The rounds whose kept updates a rebuild from `first` on goes through; see `updates.to_rebuild_from`."""
        return self._read(updates.to_rebuild_from, self.members, first, most)

    def kept_updates(self, source: KeptRound) -> list[Vector]:
        """Read the updates that are kept of a round, in the order of their clients' ids."""
        return [self.updates.read(self.layout.size, filled) for filled in source.filled]

    # -- models --------------------------------------------------------------------------------------------

    def model_before(self, number: int) -> Vector:
        """The model broadcast in a round: a standing one, or the one that comes next."""
        return self._recall(number - 1, self.digest_before(number))

    def model_after(self, number: int) -> Vector:
        """The model that a standing round produced."""
        return self._recall(number, self._read(rounds.standing_round, number).after)

    def mean_model(self, count: int) -> tuple[Vector, tuple[str, ...]]:
        """The mean of the models that the newest `count` standing rounds produced; their digests, oldest first."""
        with self._connect() as connection:
            last = rounds.last_round(connection)
            newest = range(last - count + 1, last + 1)
            digests = [rounds.standing_round(connection, number).after for number in newest]
        found = [self._recall(number, digest) for number, digest in zip(newest, digests, strict=True)]
        return mean_of(found), tuple(digests)

    def _recall(self, number: int, digest: str) -> Vector:
        """The model that a round produced; where it was thinned, the error says so."""
        try:
            return self.store.recall(self.layout, digest)
        except IntegrityError:
            with self._connect() as connection:
                gone = connection.execute(sa.select(models.c.thinned).where(models.c.digest == digest)).scalar()
            if not gone:
                raise
        raise LedgerError(
            f"{model_name(number)} is no longer there: it was thinned to keep to ledger.retention, the budget for "
            "checkpoints; the newest model and the initial one always stay"
        )

    def digest_before(self, number: int) -> str:
        """The digest of the model broadcast in a round."""
        return self._read(self._digest_before, number)

    def served_model_digest(self) -> str:
        """The digest of the model that is served: that of the newest standing round, or the initial one."""
        return self._read(lambda connection: self._digest_before(connection, rounds.last_round(connection) + 1))

    def _digest_before(self, connection: sa.Connection, number: int) -> str:
        if number == 1:
            return self.initial_model
        after: str = rounds.standing_round(connection, number - 1).after
        return after

    def round_models(self) -> tuple[RoundModel, ...]:
        """The models of standing rounds, kept or thinned, from the initial one to the newest."""
        return self._read(retention.round_models)

    def nearest_kept_round(self, number: int) -> int:
        """The round that a rollback to a round goes back to; see `retention.nearest`."""
        return self._read(retention.nearest, number)

    def stored_bytes(self) -> int:
        """What the run takes on disk, in its database and (by what was recorded) in a bucket.

        SQLite's working files are left out.
        """
        on_disk = bytes_in(self.directory, without=("-wal", "-shm"))
        rows = self._read(lambda connection: backend_of(connection).stored_bytes(connection))
        return on_disk + rows + (0 if self.models_at is None else self._read(retention.stored_bytes))

    # -- clients -------------------------------------------------------------------------------------------

    def clients(self) -> tuple[str, ...]:
        """The ids of all clients still in, sorted."""
        return self._read(registry.still_in, self.keyring)

    def count_clients(self) -> int | None:
        """Count the clients still in; None where there is no keyring to say so."""
        if not self.keyring.exists:
            return None
        return self.count_survivors()

    def count_survivors(self, leavers: Collection[str] = ()) -> int:
        """Count the clients still in once these have left; nobody is named for it."""
        gone = set(leavers)
        leaving = self._read(registry.leaving) - {UNKNOWN}
        leaving_now = len(gone) - len(self.strangers(sorted(gone))) if gone else 0
        return self.keyring.count() - len(leaving) - leaving_now

    def data_digests(self) -> dict[str, str]:
        """Read the SHA-256 of what each client holds, where a task trains the run."""
        return self._read(registry.data_digests, self.keyring)

    def strangers(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Those of these who are not clients of the run, or have been withdrawn from it."""
        return self._read(registry.strangers, self.keyring, ids)

    def numbers_of(self, ids: Sequence[str]) -> dict[str, int]:
        """The numbers of those of these clients who are known."""
        return {client: found.number for client, found in self.keyring.find_all(ids).items()}

    def names_of(self, numbers: Sequence[int]) -> list[str]:
        """The ids of those of these clients, by their numbers, who are in the keyring."""
        return list(self.members.ids_of(numbers).values())

    def client_secrets(self, purpose: str) -> ClientSecrets:
        """Give a secret for each client, derived from its own key; see `ClientSecrets`."""
        return ClientSecrets(self.keyring, purpose)

    def exclusions(self, clients: Sequence[str] | None = None) -> dict[str, Exclusions]:
        """Read which records of clients were erased, and are never to be trained on again.

        Args:
            clients: The clients; None for all who had any erased.

        Returns:
            For each of these clients the key of its hashes, and those of its erased records: none where it had none
            erased. Nobody where there is no keyring.

        """
        return self.keyring.exclusions(clients) if self.keyring.exists else {}

    def run_secret(self, purpose: str) -> bytes:
        """Derive a secret of the run, which says nothing about any client, from its keyring."""
        return derive(self.keyring.secret, purpose, self.run_id.encode())

    def known_among(self, texts: Sequence[str]) -> set[str]:
        """Find those of these texts that are ids of clients, also of clients who were forgotten."""
        return self.keyring.known_among(texts) if self.keyring.exists else set()

    def anchors(self) -> Anchors | None:
        """The run's fixed clusters, with the places of all clients still in; None where none are settled yet."""
        return self._read(registry.load_anchors, self.keyring)

    def restored_from_backup(self) -> Restored:
        """Whom the run has forgotten, by its keyring; see `restored.restored`."""
        return self._read(restored, self.members)

    # -- erasure requests ----------------------------------------------------------------------------------

    def requests(self, numbers: Sequence[int] | None = None) -> tuple[ErasureRequest, ...]:
        """Erasure requests with what became of them: all, or those of these numbers."""
        return self._read(requests.listed, self.members, numbers)

    def request_page(
        self,
        *,
        states: Collection[RequestState] | None = None,
        before: int | None = None,
        after: int | None = None,
        oldest_first: bool = False,
        most: int,
    ) -> tuple[ErasureRequest, ...]:
        """Some erasure requests, the newest first; see `request_listing.page`."""
        return self._read(
            request_listing.page,
            self.members,
            states=states,
            before=before,
            after=after,
            oldest_first=oldest_first,
            most=most,
        )

    def last_changed_requests(self, most: int) -> tuple[ErasureRequest, ...]:
        """The requests to which something happened last, at most so many, in the order of their numbers."""
        with self._connect() as connection:
            return requests.listed(connection, self.members, request_listing.last_changed(connection, most))

    def request_counts(self) -> dict[RequestState, int]:
        """How many requests there are in each state."""
        return self._read(request_listing.counts)

    def verdict_counts(self) -> dict[str, int]:
        """How many requests got which verdict."""
        return self._read(request_listing.verdicts)

    def count_rollbacks(self) -> int:
        """How many erasures undid rounds."""
        return self._read(request_listing.rollbacks)

    def request_states(self, first: int) -> dict[int, RequestState]:
        """The states of the requests from a number on."""
        return self._read(request_listing.states_from, first)

    def purged_since(self, event: int) -> dict[int, int]:
        """Give the requests that were purged after an event; see `request_listing.purged_since`."""
        return self._read(request_listing.purged_since, event)

    def changes(self) -> int:
        """Count the changes of the log and of the requests so far: alike, where nothing happened in between."""
        with self._connect() as connection:
            return state_of(connection).commits

    def request(self, number: int) -> ErasureRequest:
        """The erasure request of a number.

        Raises:
            UnknownRequest: There is none.

        """
        return self._read(requests.numbered, self.members, number)

    def open_requests(self) -> tuple[ErasureRequest, ...]:
        """The requests about which something is still to be done."""
        with self._connect() as connection:
            return requests.listed(connection, self.members, requests.open_numbers(connection))

    def releases(self) -> tuple[Release, ...]:
        """The models that were given to somebody, in order."""
        return self._read(releases.listed, self.keyring)

    def readmissions(self, client: str) -> tuple[Decision, ...]:
        """Who decided that a client who had left may return, when and why; nothing where it never did."""
        return readmissions(self.keyring, client)

    def all_readmissions(self) -> tuple[Decision, ...]:
        """Who decided that somebody who had left may return, when and why, in the order of time."""
        return all_readmissions(self.keyring)

    def find_request(self, client: str) -> ErasureRequest | None:
        """The request of a client in the keyring, if it has asked before and not cancelled it."""
        return self._read(requests.find, self.members, client)

    def find_record_request(self, client: str, records: Sequence[str]) -> ErasureRequest | None:
        """The request of a client for just these records that waits, or has its verdict and is not answered yet."""
        return self._read(requests.find_for_records, self.members, client, records)

    def requested_records(self, number: int) -> tuple[str, ...]:
        """The records that a request names; none once its client is forgotten, or if it is for a whole client."""
        return self._read(requests.requested_records, self.keyring, number)

    def unchecked_requests(self) -> tuple[int, ...]:
        """The numbers of requests for records that wait for somebody to look the records up in the task."""
        return self._read(requests.unchecked)

    def records_waiting(self, client: str) -> set[str]:
        """The records of a client that requests name which wait."""
        return self._read(requests.records_waiting, self.keyring, client)

    def opens_request(self, number: int, *, client: str, salt: bytes) -> bool:
        """Say whether a request was this client's, by the salt of its opening; see `log.opens_request`."""
        return self._read(log.opens_request, self.run_id, number, client=client, salt=salt)

    def records_commitment(self, number: int) -> bytes | None:
        """The commitment to the records of a request, in the log or as it will be there; None of a whole client."""
        return self._read(log.records_commitment, self.members, number)

    def words_wanted(self, client: str) -> dict[int, bytes]:
        """Find the requests for records of a client for whose removal it has not given its word (`note_word`).

        Args:
            client: The client's id.

        Returns:
            The commitments to the records, by request: of those that are not answered yet. Afterwards nobody can
            say whose they were.

        """
        return self._read(requests.words_wanted, self.members, client)

    def word_of(self, number: int) -> bytes | None:
        """The digest of the client's word that it removed the records of a request; None where there is none."""
        return self._read(requests.word_of, number)

    def has_left(self, client: str) -> bool:
        """Say whether somebody of this id was forgotten; never where there is no keyring."""
        return self.keyring.exists and self.keyring.has_left(client)

    def numbers_to_judge(self, ids: Sequence[str]) -> list[int]:
        """The numbers of those of these clients who are not withdrawn yet.

        Raises:
            UnknownClient: One of them is not a client of the run.

        """
        return self._read(requests.numbers_to_judge, self.keyring, ids)

    def latest_stream_round(self) -> int:
        """The last round after which a request stream placed a request; 0 where there is none."""
        return self._read(requests.latest_stream_round)

    def judged_requests_of(self, clients: Sequence[int]) -> tuple[JudgedRequest, ...]:
        """The requests, with their verdicts, of clients (by their numbers) who are not deleted yet."""
        return self._read(requests.judged_requests_of, self.members, clients)

    def judged_together(self, erasure: int) -> tuple[JudgedRequest, ...]:
        """The requests that one erasure answers."""
        return self._read(requests.judged_together, self.members, erasure)

    def waiting(
        self,
        *,
        after: int = 0,
        among: Collection[int] | None = None,
        most: int = MOST_REQUESTS,
        approved: bool | None = None,
    ) -> Waiting:
        """The requests that wait; see `journal.waiting`."""
        return self._read(journal.waiting, after=after, among=among, most=most, approved=approved)

    def never_present(self, leavers: Sequence[int]) -> set[int]:
        """Those of these clients, by their numbers, who never took part in a round, standing or superseded."""
        return self._read(journal.never_present, self.members, leavers)

    def all_absent(self, leavers: Sequence[int]) -> bool:
        """Whether none of these clients, by their numbers, ever took part in a round."""
        return self._read(journal.all_absent, self.members, leavers)

    def evidence(self, leavers: Sequence[int]) -> tuple[ClusterEvidence | RebuiltEvidence, ...]:
        """What there is to judge once these clients, by their numbers, are withdrawn; see `evidence.evidence`."""
        with self._connect() as connection:
            return tuple(evidence(connection, self.members, leavers, self.policy))

    def growing_evidence(self, leavers: Sequence[int]) -> Iterator[PartialEvidence]:
        """The same of ever more rounds, in the end of all; see `evidence.growing`."""
        with self._connect() as connection:
            yield from growing(connection, self.members, leavers, self.policy)

    def rebuilding(self) -> Rebuilding | None:
        """What has to be rebuilt before open erasures can go on; None when nothing has."""
        return self._read(journal.rebuilding)

    def unpurged(self) -> Unpurged:
        """The requests whose clients' updates may be in the model though they were withdrawn; with the rounds."""
        return self._read(journal.unpurged)

    def purged(self) -> frozenset[int]:
        """The numbers of the requests that are noted as purged."""
        return self._read(journal.purged)

    def to_be_purged(self) -> tuple[int, ...]:
        """The numbers of the requests that are yet to be noted as purged; see `journal.to_be_purged`."""
        return self._read(journal.to_be_purged)

    def rebuilt_stands(self) -> bool:
        """Say whether a round stands that was rebuilt approximately."""
        return self._read(journal.rebuilt_stands)

    def purges(self) -> tuple[Purge, ...]:
        """All purges, in the order in which they were begun."""
        return self._read(journal.purges)

    def undone_at(self, positions: Collection[int]) -> int | None:
        """The place of the leaf that undid the last of the rounds at these places; see `log.undone_at`."""
        return self._read(log.undone_at, positions)

    def unchanged(self) -> int:
        """How many standing rounds end in a model that an open erasure has undone; see `journal.unchanged`."""
        return self._read(journal.unchanged)

    def repeated_updates(self) -> tuple[bool, ...] | None:
        """Whether survivors returned the same updates again; see `journal.repeated_updates`."""
        return self._read(journal.repeated_updates, self.members)

    def leavers_to_forget(self) -> dict[int, int]:
        """The clients who are to be forgotten now, by their numbers, with their requests."""
        return self._read(journal.leavers_to_forget)

    def deleting(self) -> bool:
        """Whether erasures wait for their leavers to be forgotten."""
        return self._read(journal.deleting)

    # -- the transparency log ------------------------------------------------------------------------------

    def log_key(self) -> PublicKey | None:
        """The key with which heads of the log are signed now."""
        return self._read(log.key_of)

    def refuse_signer(self, signer: Signer | None) -> None:
        """Refuse a key that may not sign this run's log, and none where the log is signed.

        Raises:
            ConfigError: The key was replaced, or the log is signed and there is no key.

        """
        self._read(log.refuse_signer, signer)

    def closed_leaves(self, shown: Collection[int]) -> list[LogLeaf]:
        """All leaves of the log as a proof has them that shows those at these places."""
        return self._read(log.closed_leaves, shown)

    def log_hashes(self) -> list[bytes]:
        """The leaf hashes of the whole log."""
        return self._read(log.hashes_of)

    def log_page(self, *, before: int | None = None, most: int) -> tuple[LoggedLeaf, ...]:
        """Some leaves of the log, the newest first; see `log.page`."""
        return self._read(log.page, before=before, most=most)

    def log_length(self) -> int:
        """How many leaves the log has."""
        return self._read(log.head_size)

    def log_size(self) -> LogSize:
        """What the size of proofs depends on."""
        return self._read(log.log_size)

    def log_head(self) -> LogHead:
        """The head of the log as it is now, not yet signed."""
        return self._read(log.head_of, self.run_id)

    def signed_head(self) -> str | None:
        """The newest checkpoint of the log, if it was signed."""
        return self._read(log.signed_head)

    def cosigned_head(self) -> CosignedHead | None:
        """The newest checkpoint of the log with its cosignatures; None where it was not signed."""
        return self._read(cosignatures.cosigned_head)

    def sizes_cosigned(self, witnesses: Collection[WitnessKey]) -> dict[WitnessKey, int]:
        """The size of the newest head that each witness has cosigned; see `cosignatures.sizes_cosigned`."""
        return self._read(cosignatures.sizes_cosigned, witnesses)

    def consistency_since(self, old: int, new: int) -> list[bytes]:
        """The proof that the log of `new` leaves goes on from that of `old`, at least one (RFC 6962, 2.1.2)."""
        return self._read(cosignatures.consistency_since, old, new)

    def day_of_leaf(self, place: int) -> str:
        """The day in the leaf of a withdrawal."""
        return self._read(log.day_at, place)

    def logged_round(self, place: int) -> LoggedRound:
        """The leaf of a round at a place in the log, with the leaf hashes of its clusters."""
        return self._read(log.logged_round, place)

    def standing_positions(self) -> dict[int, int]:
        """The rows of the rounds that stand, by the places of their leaves in the log."""
        return self._read(log.standing_positions)

    def positions_of_client(self, client: int) -> list[int]:
        """The places in the log of the rounds, standing or not, in which a client (by its number) took part."""
        return self._read(log.rounds_of, self.members, client)

    def logged_slots(self, client: int) -> tuple[LoggedSlot, ...]:
        """The slots that a client (by its number) filled in standing rounds, in the order of the log."""
        return self._read(log.logged_slots, self.members, client)

    def logged_slots_of_round(self, number: int) -> dict[str, LoggedSlot]:
        """The slots of a standing round by the ids of their members who are still in the tables, in order."""
        return self._read(log.logged_slots_of_round, self.members, number)

    def withdrawal_positions(self) -> dict[int, int]:
        """The place of each erasure's withdrawal in the log, in order."""
        return self._read(log.withdrawal_positions)

    def withdrawn_by(self, erasure: int) -> list[Withdrawn]:
        """The slots that an erasure withdrew, in the order in which its leaf has them."""
        return self._read(withdrawals.withdrawn_by, erasure)
