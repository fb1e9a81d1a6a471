"""The application layer: every use case of a run once, for the command line, Flower, audits and notebooks.

A `Federation` is an open run. Its data and its engine are built on first use, so that whatever needs no training
(status, a forecast, a deniable erasure, proofs, the account) works without the data and without torch. For the
same reason each use case imports what only it needs: to look at a run takes neither the prover nor the verifier.

    request -> open keys -> forecast -> place -> judge ─┬─ deniable ───────────────────────────┐
                                                        └─ load data, engine -> retrain ───────┴─ prove, delete
"""

from __future__ import annotations

import copy
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self

from disavow import config, runs
from disavow.config import Settings
from disavow.cosigning import Cosigner, Standing, standing_of
from disavow.domain import (
    Approval,
    Decision,
    EngineChoice,
    ErasureRequest,
    EventKind,
    Exclusions,
    Policy,
    Release,
    RequestState,
    Verdict,
    VerdictKind,
    escaped,
)
from disavow.erasure.dry_run import Forecast, foresee
from disavow.erasure.mechanisms import Mechanism, WithoutRetraining, refuse_another
from disavow.erasure.mechanisms import build as build_mechanism
from disavow.erasure.proof_files import (
    check_openings,
    default_openings,
    names_asker,
    opening_path,
    request_opened_for,
    what_if_path,
    word_path,
)
from disavow.erasure.purge import PurgeForecast, foresee_purge, refuse_approximate
from disavow.errors import (
    CannotRetrain,
    ConfigError,
    DisavowError,
    ForecastChanged,
    LedgerError,
    ModelNotReady,
    PurgeRefused,
    RecordsUnchecked,
    RequestNotOpen,
    RunInUse,
    RunUnsafe,
    UnknownClient,
    VerificationError,
)
from disavow.ledger import Finding, Ledger, Reader
from disavow.ledger.files import remove_temporaries, sync_folder, write_durably
from disavow.ledger.keys import default_folder
from disavow.ledger.models import digest_of, to_safetensors
from disavow.ledger.proofs import ProofStore
from disavow.ledger.requests import RESTORED, UNCHECKED, NewRequest, already_forgotten
from disavow.proof.envelope import Envelope
from disavow.proof.keys import AskPassphrase, load_signer, nobody_to_ask
from disavow.proof.leaves import log_size
from disavow.proof.notes import Signer
from disavow.proof.statement import Predicate, decode_statement
from disavow.record_requests import Asked, Clients, checked, looking, refuse_erased, what_is_asked, why_not
from disavow.request_register import DueRequest, Register, due_first
from disavow.results import (
    Answer,
    ExportedModel,
    KeptModels,
    Proof,
    Prospect,
    Purged,
    PurgeOutlook,
    Spending,
    Status,
    Unsettled,
)
from disavow.rounds.options import Clock, RoundOptions, now, room_for
from disavow.rounds.participation import participation_of
from disavow.runs import Loading
from disavow.tracking import Follower, Tracker, from_settings, in_one_line

if TYPE_CHECKING:
    from torch import Tensor, nn

    from disavow.data.progress import OnProgress
    from disavow.erasure.erase import Remark
    from disavow.erasure.prove import OpenedProof
    from disavow.privacy.accountants import Claim
    from disavow.proof.summary import Summary
    from disavow.rounds.local_training import Engine
    from disavow.rounds.training import OnRound
    from disavow.rounds.vectors import Model
    from disavow.runs import Prepared
    from disavow.tasks.loading import LoadedTask
    from disavow.tasks.task import Task

_P = ParamSpec("_P")
_POLL_SECONDS = 0.2
_LOOKED_UP_BY = "the worker"
"""Who refuses a request for records that nobody has: whichever process has the task."""

_LIKE = 0.6
"""How alike two ids must be for one to be suggested in the place of the other; as `difflib` counts."""


def _load_silently() -> AbstractContextManager[OnProgress]:
    return nullcontext(runs.show_nothing)


@dataclass(frozen=True)
class Callbacks:
    """What a caller hears while a federation trains or answers. Each may be left out.

    Args:
        on_round: Each round, once it is recorded and evaluated.
        on_verdict: A verdict and how many requests it answers, once it is in the ledger.
        on_answer: A request that is answered, its client deleted.
        on_opening: A request's number and where its opening was written.
        on_placed: The numbers of the requests that were placed.
        on_wait: Why the caller has to wait for another process.
        on_note: What is not as it should be with the run or its data.
        on_engine: Which engine is about to train, and why no faster one.
        on_purge: What a purge that is about to begin will undo and retrain.

    """

    on_round: OnRound = lambda summary: None
    on_verdict: Callable[[Verdict, int], None] = lambda verdict, requests: None
    on_answer: Callable[[ErasureRequest], None] = lambda request: None
    on_opening: Callable[[int, Path], None] = lambda request, path: None
    on_placed: Callable[[tuple[int, ...]], None] = lambda numbers: None
    on_wait: Callable[[str], None] = lambda why: None
    on_note: Callable[[str], None] = lambda note: None
    on_engine: Callable[[EngineChoice], None] = lambda choice: None
    on_purge: Callable[[PurgeForecast], None] = lambda forecast: None


_NOBODY = Callbacks()


Confirm = Callable[[Prospect], None]
"""Sees what would happen before anything is placed; an exception from it ends the erasure with nothing changed."""


@dataclass(eq=False)
class Federation:
    """A run that is open: its settings, its ledger, and what trains it, built on first use.

    Use `Federation.create` or `Federation.open`, best as a context manager.

    Example::

        with Federation.open(Path("runs/first")) as federation:
            answer = federation.erase(["client-07"])

    Attributes:
        directory: Where the run lies.
        settings: What its config.toml says.
        ledger: Its ledger, open.
        keys: The folder of the operator's keys.
        clock: What time it is.
        ask: Asks for the passphrase of the signing key.
        openings: The folder for leavers' openings; None for one beside the run.
        loading: Shows how far the data is.
    """

    directory: Path
    settings: Settings
    ledger: Ledger
    keys: Path
    clock: Clock = now
    ask: AskPassphrase = nobody_to_ask
    openings: Path | None = None
    loading: Loading = _load_silently
    _prepared: Prepared | None = None
    task: Task | str | None = None
    """A task, or module:callable that makes one, in place of the one that the settings name."""
    own_engine: Engine | None = None
    """An engine of the caller's own, in place of the one that the settings describe."""
    own_options: RoundOptions | None = None
    """How rounds are run, where that is not as the settings say."""
    _follower: Follower | None = None
    _left_out: Mapping[str, Exclusions] = field(default_factory=dict, repr=False)
    """The erased records that the engine was built without, as far as this federation has looked."""
    _bound: frozenset[str] = frozenset()
    """The clients whose data was compared with what the run knows of it, as far as this federation has looked."""
    _not_purged: str = ""
    """Why a purge that is due could not be done, as it was last noted."""
    _cosigner: Cosigner | None = field(default=None, repr=False)
    """What asks the witnesses, once there is a head to cosign."""
    _on_note: Callable[[str], None] = field(default=lambda note: None, repr=False)
    """Who hears that heads are not cosigned: whoever trains or answers now."""

    # -- opening and closing ------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        directory: Path | str,
        task: Task | Settings | None = None,
        *,
        policy: Policy | None = None,
        rounds: int | None = None,
        seed: int | None = None,
        settings: Settings | None = None,
        models: str | None = None,
        keys: Path | None = None,
        clock: Clock = now,
        ask: AskPassphrase = nobody_to_ask,
        loading: Loading = _load_silently,
        prepared: Prepared | None = None,
        database: str | None = None,
    ) -> Self:
        """Start a new run in a directory that does not exist yet, or is empty. It is open for training.

        Args:
            directory: Where the run is to lie.
            task: What to train: a task of one's own, or settings that name one or a built-in data set.
            policy: What the run promises; by default, what the settings say.
            rounds: Rounds to train; by default, what the settings say.
            seed: What every training draw derives from; by default, what the settings say.
            settings: Everything else that can be set, beside a task.
            models: Where its models are kept, such as s3://bucket/prefix; by default, what the settings say, or
                else in the directory. The run remembers it.
            keys: The folder of the operator's keys; DISAVOW_KEYS, or else a folder at home. Where it holds a
                signing key, that signs the run's log.
            clock: What time it is.
            ask: Asks for the passphrase of the signing key.
            loading: Shows how far the data is.
            prepared: Data, network and engine that several runs share; its engine is closed with this run.
            database: Where the rows of the run are kept: a URL such as `postgresql+psycopg://role@host/database`
                (docs/databases.md), or "sqlite" for a file in the directory; by default what the settings say, or
                DISAVOW_DATABASE, or else that file.

        Returns:
            The run, open for training; close it, or use it as a context manager.

        Raises:
            RunExists: The directory is not empty.
            ConfigError: The settings cannot be used.
            StorageError: The bucket for the models cannot be used.

        """
        directory, keys = Path(directory), keys or default_folder()
        if isinstance(task, Settings):
            task, settings = None, task
        settings = config.with_policy(settings or Settings(), policy, rounds=rounds, seed=seed)
        if models is not None:
            kept = settings.ledger.model_copy(update={"models": models})
            settings = settings.model_copy(update={"ledger": kept})
        from_settings(settings.tracking)  # what is not installed is better known before there is a run
        ledger, settings, made = runs.start(
            settings,
            directory,
            keys=keys,
            clock=clock,
            ask=ask,
            loading=loading,
            prepared=prepared,
            task=task,
            url=database,
        )
        return cls(directory, settings, ledger, keys, clock, ask, None, loading, made, task)

    @classmethod
    def open(
        cls,
        directory: Path | str,
        task: Task | str | None = None,
        *,
        write: bool = False,
        keys: Path | None = None,
        clock: Clock = now,
        ask: AskPassphrase = nobody_to_ask,
        openings: Path | None = None,
        loading: Loading = _load_silently,
        engine: Engine | None = None,
    ) -> Self:
        """Open a run that exists.

        Args:
            directory: Where it lies.
            task: What trains it, where its settings do not name a task: one, or module:callable that makes one.
                Needed only to train.
            write: Take its lock at once, to train it; otherwise `train` and `erase` take it while they work.
            keys: The folder of the operator's keys.
            clock: What time it is.
            ask: Asks for the passphrase of the signing key.
            openings: The folder for leavers' openings; without it, one beside the run.
            loading: Shows how far the data is.
            engine: What trains a run of one's own code, in place of what the settings say; closed with the run.

        Returns:
            The run; close it, or use it as a context manager.

        Raises:
            RunMissing: There is no run.
            RunInUse: Another process holds it, and `write` was asked for.

        """
        directory = Path(directory)
        settings, keys = runs.settings_of(directory), keys or default_folder()
        if write:
            runs.refuse_on_nodes(settings, directory)
            ledger = Ledger.open(directory, write=True, signer=load_signer(keys, ask), keys=keys)
        else:
            ledger = Ledger.open(directory, keys=keys)
        federation = cls(
            directory, settings, ledger, keys, clock, ask, openings, loading, task=task, own_engine=engine
        )
        if write:
            try:
                runs.refuse_changed(ledger, settings)
            except BaseException:
                federation.close()
                raise
        return federation

    @classmethod
    def on_nodes(
        cls,
        directory: Path,
        settings: Settings,
        initial: Model,
        *,
        keys: Path | None = None,
        clock: Clock = now,
        ask: AskPassphrase = nobody_to_ask,
        openings: Path | None = None,
    ) -> Self:
        """Open a run whose clients train on nodes of their own, for training; start it where there is none.

        Args:
            directory: Where it lies, or is to lie.
            settings: What it promises; a run that is there must promise the same.
            initial: The model that a new run starts from; a run that is there has its own.
            keys: The folder of the operator's keys.
            clock: What time it is.
            ask: Asks for the passphrase of the signing key.
            openings: The folder for leavers' openings; without it, one beside the run.

        Returns:
            The run, open for training.

        Raises:
            ConfigError: The run that is there has other settings, or models of another layout.
            RunInUse: Another process holds it.

        """
        keys = keys or default_folder()
        signer = load_signer(keys, ask)
        ledger = runs.start_on_nodes(settings, directory, initial, keys=keys, at=clock(), signer=signer)
        return cls(directory, settings, ledger, keys, clock, ask, openings)

    def close(self) -> None:
        """Let go of the run, its lock, its data, its workers and its trackers. Closing twice is closing once."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        if self._cosigner is not None:
            self._cosigner.close()
            self._cosigner = None
        if self.own_engine is not None:
            self.own_engine.close()
        if self._prepared is not None:
            self._prepared.engine.close()
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what it is made of --------------------------------------------------------------------------------------

    @property
    def prepared(self) -> Prepared:
        """Data, network and engine, loaded on first use exactly as they were when the run began.

        Raises:
            CannotRetrain: They are not to be had here, or are not the same.

        """
        if self._prepared is None:
            self._left_out = self.ledger.exclusions()  # before: what is erased meanwhile is left out later
            self._bound = frozenset(self.ledger.clients())
            with self.loading() as on_progress:
                self._prepared = runs.prepare_again(
                    self.ledger, self.settings, task=self.task, on_progress=on_progress
                )
        return self._prepared

    def load(self) -> None:
        """Load the data and build the engine now, and not on first use."""
        self.prepared  # noqa: B018

    @property
    def engine(self) -> Engine:
        """What trains the clients of a round, without any record that was erased."""
        if self.own_engine is not None:
            return self.own_engine
        if self.prepared.trainer.kind == "python":
            return self.prepared.engine
        from disavow.engines.current import CurrentEngine

        return CurrentEngine(self._current_engine)

    def _current_engine(self) -> Engine:
        """The engine of the task without what was erased by now; built again where that has become more.

        Whoever has come in since, readmitted by another process, is compared with what the run knows of its data.
        """
        prepared, erased, clients = self.prepared, self.ledger.exclusions(), frozenset(self.ledger.clients())
        if erased != self._left_out or not clients <= self._bound:
            self._prepared = prepared = runs.prepare_without_erased(self.ledger, self.settings, prepared)
            self._left_out = erased
        self._bound = clients  # who has left is compared again if it returns
        return prepared.engine

    def record_keys_of(self, client: str) -> tuple[str, ...] | None:
        """Name the records of a client that are left, one key for each of its examples. No engine is built.

        Args:
            client: The client's id.

        Returns:
            The keys, in the order of its data; None where the task does not name this client's records.

        Raises:
            CannotRetrain: The task is not to be had here, or is not the same.
            TaskError: The task has no such client, or names its examples otherwise than one by one.

        """
        runs.refuse_other_trainer(self.ledger, self.settings, self.task)
        if self._prepared is not None:
            return runs.leave_out_erased(self.ledger, self._prepared.loaded).record_keys(client)
        with self.loading() as on_progress:
            found = runs.find_again(self.ledger, self.settings, self.task, on_progress=on_progress)
        return found.record_keys(client)

    @property
    def engine_choice(self) -> EngineChoice | None:
        """Which engine trains, and why no faster one; before it is built, which trained last. None: nobody says."""
        if self._prepared is None and self.own_engine is None:
            return self.ledger.engine_choice()
        engine = self.engine
        return getattr(engine, "choice", None)

    def _note_engine(self, callbacks: Callbacks = _NOBODY) -> EngineChoice | None:
        """Build the engine, say which one it is, and keep that with the run."""
        choice: EngineChoice | None = getattr(self.engine, "choice", None)
        if choice is not None:
            callbacks.on_engine(choice)
            self.ledger.note_engine(choice)
        return choice

    @property
    def options(self) -> RoundOptions:
        """How rounds are run, beyond the policy in the ledger."""
        if self.own_options is not None:
            return replace(self.own_options, approval=self.settings.requests.approval, on_head=self._cosign)
        participation = participation_of(self.settings, self.ledger)
        return replace(
            runs.round_options(self.settings, self.clock, participation=participation), on_head=self._cosign
        )

    def _cosign(self, ledger: Ledger, proving: bool) -> None:
        """Have the newest head cosigned by the witnesses of the settings."""
        if self._cosigner is None:
            self._cosigner = Cosigner(self.settings.witness)
        self._cosigner.on_note = self._on_note
        self._cosigner.cosign(ledger, proving=proving)

    @property
    def mechanism(self) -> Mechanism:
        """How rounds are rebuilt after a rollback."""
        return build_mechanism(self.settings.mechanism)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as it should be with the run, and with its data once it is loaded."""
        of_data = () if self._prepared is None else self._prepared.notes
        return (*of_data, *self.ledger.restored.notes)

    # -- tracking ----------------------------------------------------------------------------------------------

    def track(self, tracker: Tracker) -> None:
        """Write rounds, metrics, verdicts and costs to a tracker from now on, beside those that the settings name.

        Args:
            tracker: Such as `disavow.TensorBoard(folder)` or `disavow.MLflow(uri)`; closed with the federation.

        """
        self._tracked(_NOBODY, refuse=True)
        if self._follower is None:
            self._follower = Follower(lambda: self.ledger)
        self._follower.add(tracker)

    def _tracked(self, callbacks: Callbacks, *, refuse: bool = False) -> Callbacks:
        """Let trackers hear what a caller hears.

        Args:
            callbacks: What the caller hears.
            refuse: Refuse trackers of the settings that cannot be opened; otherwise they are left out, and that
                is noted: no erasure waits for a tracker.

        Raises:
            ConfigError: One cannot be opened.

        """
        self._on_note = callbacks.on_note
        if self._follower is None and self.settings.tracking.is_used:
            self._follower = Follower(lambda: self.ledger)
            try:
                for tracker in from_settings(self.settings.tracking):
                    self._follower.add(tracker)
            except Exception as error:  # whatever a tracker may raise
                reason = str(error) if isinstance(error, DisavowError) else in_one_line(error)
                if refuse:
                    self._follower = None
                    raise ConfigError(f"tracking is set, and cannot be used: {reason}") from error
                callbacks.on_note(f"not tracked: {reason}")
        if (follower := self._follower) is None:
            return callbacks
        follower.on_note = callbacks.on_note
        return replace(
            callbacks,
            on_round=_both(callbacks.on_round, follower.on_round),
            on_verdict=_both(callbacks.on_verdict, follower.on_verdict),
            on_answer=_both(callbacks.on_answer, follower.on_answer),
        )

    # -- training ----------------------------------------------------------------------------------------------

    def train(self, callbacks: Callbacks = _NOBODY, *, rounds: int | None = None) -> None:
        """Train until enough rounds stand; requests are answered between rounds.

        Args:
            callbacks: Who hears how far it is.
            rounds: How many rounds are to stand; those of the settings by default.

        Raises:
            CannotRetrain: What trained the run is not to be had here.
            BudgetSpent: The privacy budget has no room for the next round.
            RoundRefused: A round must not be recorded; the run stays as it was.

        """
        from disavow.erasure.stream import place_from_stream
        from disavow.rounds.training import train

        self._take_lock()
        engine, options, rate = self.engine, self.options, self.settings.requests.rate
        callbacks = self._tracked(callbacks, refuse=True)
        self._note_engine(callbacks)

        def between_rounds() -> None:
            self._note_engine()  # it may have fallen back meanwhile
            if rate > 0:
                place_from_stream(self.ledger, options, rate=rate)
            self._answer(callbacks)
            self._purge_in_time(callbacks)

        train(
            self.ledger,
            engine,
            options,
            rounds=self.settings.rounds if rounds is None else rounds,
            on_round=callbacks.on_round,
            between_rounds=between_rounds,
        )
        self._cosign(self.ledger, True)  # the head that stays must not lack what a moment more would give

    def train_round(self, callbacks: Callbacks = _NOBODY) -> None:
        """Train one more round, whatever the settings say of how many.

        Args:
            callbacks: Who hears of the round.

        Raises:
            BudgetSpent: The privacy budget has no room for it.
            RoundRefused: It must not be recorded; the run stays as it was.

        """
        from disavow.rounds.round import run_round
        from disavow.rounds.training import settle_newest

        self._take_lock()
        engine, options = self.engine, self.options
        callbacks = self._tracked(callbacks, refuse=True)
        run_round(self.ledger, engine, options)
        self._note_engine()
        for summary in settle_newest(self.ledger, engine, options):
            callbacks.on_round(summary)

    def _take_lock(self) -> None:
        """Open the run for writing, if it is not."""
        if self.ledger.writable:
            return
        signer = load_signer(self.keys, self.ask)
        reading = self.ledger
        self.ledger = Ledger.open(self.directory, write=True, signer=signer, keys=self.keys)
        reading.close()
        runs.refuse_changed(self.ledger, self.settings)

    def answer(self, callbacks: Callbacks = _NOBODY) -> tuple[ErasureRequest, ...]:
        """Answer every request that waits, and complete what was interrupted.

        Data and engine are loaded only where something has to be trained.

        Args:
            callbacks: Who hears how far it is.

        Returns:
            The requests that are answered now.

        Raises:
            CannotRetrain: Rounds must be trained, and what trained the run is not to be had here.

        """
        self._take_lock()
        callbacks = self._tracked(callbacks)
        answered = self._answer(callbacks)
        self._purge_in_time(callbacks)
        return answered

    def _answer(self, callbacks: Callbacks) -> tuple[ErasureRequest, ...]:
        from disavow.erasure.erase import answer_requests, answer_without_training, training_due

        ledger, options, mechanism = self.ledger, self.options, self.mechanism
        self._look_up_records(callbacks)
        answered: tuple[ErasureRequest, ...] = ()
        loaded = self._prepared is not None or self.own_engine is not None
        if not loaded:
            answered = answer_without_training(
                ledger,
                options,
                mechanism,
                on_verdict=callbacks.on_verdict,
                openings=self.openings,
                on_opening=callbacks.on_opening,
                remark=self._remark,
            )
        if not loaded and training_due(ledger, options):
            self._note_engine(callbacks)
            loaded = True
        if loaded:
            answered += answer_requests(
                ledger,
                self.engine,
                options,
                mechanism,
                on_verdict=callbacks.on_verdict,
                on_round=callbacks.on_round,
                openings=self.openings,
                on_opening=callbacks.on_opening,
                remark=self._remark,
            )
        _tell_answered(callbacks, answered)
        return answered

    def _look_up_records(self, callbacks: Callbacks) -> RecordsUnchecked | None:
        """Look up the records of requests that were placed where the task is not, and refuse those that nobody has.

        Why they could not be looked up, if so: then these requests wait, and no others.
        """
        ledger, waiting = self.ledger, self.ledger.unchecked_requests()
        if not waiting:
            return None
        try:
            with looking():
                task = self._load_task()
        except RecordsUnchecked as refusal:
            callbacks.on_note(f"requests {', '.join(map(str, waiting))} for records wait: {refusal}")
            return refusal
        for number in reversed(waiting):  # of two that leave a client nothing, the later one is refused
            with ledger.transaction() as transaction:
                client = transaction.request(number).client
                if client is not None and number in transaction.unchecked_requests():
                    reason = why_not(transaction, number, client, task.record_keys(client))
                    refusal_of = None if reason is None else Decision(_LOOKED_UP_BY, self.clock(), reason)
                    transaction.note_checked(number, refusal_of)
            ledger.drop_asked(number)  # of one that is refused now
        return None

    # -- purge -------------------------------------------------------------------------------------------------

    def forecast_purge(self) -> PurgeForecast:
        """Tell what `purge` would do now. Changes nothing.

        Returns:
            Whom it would remove from the model, the rounds to retrain, what that takes, and what stands in the way.

        Raises:
            ConfigError: The run's mechanism does not retrain exactly.

        """
        return foresee_purge(self.ledger, self.options, self.mechanism)

    def purge_outlook(self) -> PurgeOutlook:
        """Tell who may still be in the model that is served, until when they must be out, and whether they can.

        Returns:
            The deadlines, and what a purge would do now.

        """
        unpurged = self.ledger.requests(list(self.ledger.unpurged().rounds))
        promised = self.settings.deniability.purge == "deadline"
        return PurgeOutlook(
            {request.number: request.due for request in unpurged} if promised else {},
            len(unpurged),
            self.forecast_purge() if unpurged and self.mechanism.exact else PurgeForecast(),
            self.clock(),
        )

    def purge(
        self,
        *,
        wait: float = 60.0,
        confirm: Callable[[PurgeForecast], None] | None = None,
        callbacks: Callbacks = _NOBODY,
    ) -> Purged:
        """Remove all leavers so far from the model, by one exact retraining of the rounds that they were in.

        Requests that wait are judged first, and purged with the others. Killed at any instant, whoever opens the
        run for training completes it. Each leaver gets a second proof. Another process that holds the run is waited
        for; where the settings promise a purge, that process purges by itself in time.

        Args:
            wait: Seconds to wait for another process that holds the run.
            confirm: Sees what would happen before anything is undone, and may end it by an exception.
            callbacks: Who hears how far it is.

        Returns:
            What it came to; nothing where nobody is to be purged.

        Raises:
            ConfigError: The run's mechanism does not retrain exactly.
            PurgeRefused: Not all rounds could be retrained; nothing was undone.
            CannotRetrain: What trained the run is not to be had here; nothing was undone.
            RunInUse: Another process holds the run, and has neither let go of it nor purged in time.

        """
        refuse_approximate(self.mechanism)
        told, before = self.forecast_purge(), self.ledger.purged()
        if confirm is not None and told:
            confirm(told)
        if self._waits_to_purge(callbacks, needed=bool(told), deadline=time.monotonic() + wait):
            return self._purge(self._tracked(callbacks), before)
        return Purged(str(self.directory), self.requests(sorted(self.ledger.purged() - before)), None, 0)

    def _waits_to_purge(self, callbacks: Callbacks, *, needed: bool, deadline: float) -> bool:
        """Take the run's lock as soon as whoever holds it lets go of it; False once that has purged where it is
        `needed`, and nothing is left to purge.
        """
        told = False
        while True:
            try:
                self._take_lock()
            except RunInUse as error:
                if needed and not self.forecast_purge():
                    return False
                if time.monotonic() >= deadline:
                    raise RunInUse(f"{error}. Nothing was purged here: {self._who_purges()}") from None
                if not told:
                    callbacks.on_wait(f"{error}; waiting for it, {self._who_purges()}")
                    told = True
                time.sleep(_POLL_SECONDS)
            else:
                return True

    def _who_purges(self) -> str:
        """Say whether the process that holds the run purges by itself."""
        due = self.purge_outlook().due
        if due is not None:
            return f"that process does it by itself between its rounds, by {due:%Y-%m-%d %H:%M} UTC"
        return 'that process does it by itself only with deniability.purge = "deadline"'

    def _purge(self, callbacks: Callbacks, before: frozenset[int] | None = None) -> Purged:
        """Purge, holding the lock; `before` are the requests that were purged when it was asked for."""
        from disavow.erasure.purge import purge

        ledger, before = self.ledger, self.ledger.purged() if before is None else before
        begun = len(ledger.purges())
        told = self.forecast_purge()
        if not told or told.obstacle is not None:
            self._answer(callbacks)  # and whatever was interrupted, an earlier purge too
        if told.obstacle is not None:
            raise PurgeRefused(f"nothing was purged, and the model that is served stays: {told.obstacle}")
        if told:
            engine = self._engine_to_retrain()
            self._note_engine(callbacks)
            callbacks.on_purge(told)
            answered = purge(
                ledger,
                engine,
                self.options,
                self.mechanism,
                on_verdict=callbacks.on_verdict,
                on_round=callbacks.on_round,
                openings=self.openings,
                on_opening=callbacks.on_opening,
                remark=self._remark,
            )
            _tell_answered(callbacks, answered)
        purged = self.requests(sorted(ledger.purged() - before))
        done = ledger.purges()[begun:]  # none where a rollback of whoever waited has undone all that there was
        return Purged(str(self.directory), purged, done[-1] if done else None, len(ledger.unpurged().rounds))

    def _purge_in_time(self, callbacks: Callbacks) -> None:
        """Purge where the settings ask for it and the first request that it is for is due soon.

        What stands in the way is no reason not to train or to answer: it is noted.
        """
        if self.settings.deniability.purge != "deadline" or not self.ledger.unpurged():
            return
        outlook = self.purge_outlook()
        if not outlook.begins:
            return
        try:
            self._purge(callbacks)
        except (PurgeRefused, CannotRetrain) as refusal:
            if str(refusal) != self._not_purged:
                callbacks.on_note(f"a purge is due by {outlook.due:%Y-%m-%d %H:%M} UTC: {refusal}")
                self._not_purged = str(refusal)

    # -- erasure requests --------------------------------------------------------------------------------------

    def clients(self) -> tuple[str, ...]:
        """List the clients that are in the run.

        Returns:
            Their ids, in order.
        """
        return self.ledger.clients()

    def requests(self, numbers: Sequence[int] | None = None) -> tuple[ErasureRequest, ...]:
        """List erasure requests in the order in which they were placed: all, or those of these numbers.

        Args:
            numbers: Which requests; None for all.

        Returns:
            The requests, each with its state, verdict and cost.

        """
        return tuple(map(self._with_approval, self.ledger.requests(numbers)))

    def request(self, number: int) -> ErasureRequest:
        """Give the request of a number, with its history.

        Args:
            number: Its number.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none.

        """
        return self._with_approval(self.ledger.request(number))

    def request_page(
        self, *, states: Sequence[RequestState] | None = None, before: int | None = None, most: int
    ) -> tuple[ErasureRequest, ...]:
        """List some requests, the newest first, however many there are.

        Args:
            states: Only those in one of these states; None for all.
            before: Only those with lower numbers.
            most: How many at most.

        Returns:
            The requests.

        """
        found = self.ledger.request_page(states=states, before=before, most=most)
        return tuple(map(self._with_approval, found))

    def _with_approval(self, request: ErasureRequest) -> ErasureRequest:
        """Say of a request that it has to be approved, where the settings say so and it was not yet."""
        open_ones = (RequestState.WAITING, RequestState.PAUSED)
        needed = self.settings.requests.approval != "never" and request.remark != RESTORED
        if needed and request.state in open_ones and request.approval is Approval.NOT_NEEDED:
            return replace(request, approval=Approval.AWAITED)
        return request

    def due(self, now: datetime | None = None) -> tuple[DueRequest, ...]:
        """List the requests about which something is still to be done, the one with the least time left first.

        Where the settings promise a purge, a deniable answer is an interim one: then whoever is yet to be purged is
        among them.

        Args:
            now: The moment to count from; the present one by default.

        Returns:
            The requests, each with its days left and whether it is at risk.

        """
        now, open_ones = now or self.clock(), self.ledger.open_requests()
        outlook = self._outlook()
        risks = {} if outlook is None else {n: replace(outlook, now=now).at_risk(n) for n in outlook.deadlines}
        pending = {request.number for request in open_ones}
        interim = self.ledger.requests([number for number in risks if number not in pending])
        listed = tuple(map(self._with_approval, (*open_ones, *interim)))
        return due_first(str(self.directory), listed, now, risks)

    def register(self) -> Register:
        """Give the register of all requests: refused, cancelled and repeated ones too (GDPR Art. 30).

        Clients, actors and reasons are in it only where the keyring is.

        Returns:
            The register, which writes itself as JSON and CSV.

        """
        named = self.ledger.keyring.exists
        return Register(
            str(self.directory),
            self.ledger.run_id,
            self.clock(),
            self.requests(),
            named=named,
            readmissions=self.ledger.all_readmissions() if named else (),
        )

    def approve(
        self, number: int, *, by: str, reason: str = "", forecast_digest: str | None = None
    ) -> ErasureRequest:
        """Approve a request, so that it is answered. Whoever holds the run is not disturbed, nor by those below.

        Args:
            number: The request.
            by: Who approves it.
            reason: Why, if there is anything to say.
            forecast_digest: The `Prospect.digest` of the forecast that was seen; None: whatever it comes to.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It is judged, refused, cancelled or approved already.
            ForecastChanged: The present forecast is another than the one that was seen.
            TextNamesClient: Name or reason contain the id of a client.

        """
        decision = Decision(by, self.clock(), reason)
        with Ledger.open(self.directory, shared=True, keys=self.keys) as ledger:
            with ledger.transaction() as transaction:  # nobody else writes meanwhile: the forecast stays
                if forecast_digest is not None:
                    self._refuse_other_forecast(ledger, transaction.request(number), forecast_digest)
                transaction.approve_request(number, decision, forecast=forecast_digest)
            return self._with_approval(ledger.request(number))

    def _refuse_other_forecast(self, ledger: Ledger, request: ErasureRequest, seen: str) -> None:
        if request.judged or not request.pending or request.client is None:
            return  # it cannot be approved at all, which is said next
        leaving, staying = ([request.client], []) if request.records is None else ([], [request.client])
        present = foresee(ledger, leaving, self.options, self.mechanism, records_of=staying).digest
        if present != seen:
            raise ForecastChanged(
                f"what is forecast for request {request.number} has changed since it was seen: look at it again; "
                "nothing was approved",
                digest=present,
            )

    def readmit(self, client: str, *, by: str, reason: str) -> None:
        """Let somebody who was erased be a client again, under a new key: it consents again.

        What it was forgotten for stays forgotten: its earlier slots are nobody's. Whoever holds the run is not
        disturbed, and takes it for a newcomer.

        Args:
            client: Who returns.
            by: Who decided it.
            reason: Why.

        Raises:
            NotForgotten: It is in the run.
            UnknownClient: It never was.
            TextNamesClient: Name or reason contain the id of a client.

        """
        with Ledger.open(self.directory, shared=True, keys=self.keys) as ledger:
            ledger.readmit(client, Decision(by, self.clock(), reason))

    def forecast_of(self, number: int, *, retrain: bool = True) -> Prospect:
        """Tell what answering a request would do now; its digest is what `approve` takes. Changes nothing.

        Args:
            number: The request.
            retrain: As for `erase`.

        Returns:
            What is to be expected; without a forecast where it is judged already.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It was cancelled or refused.
            KeyringMissing: Without the keyring nobody knows whose it is.

        """
        request = self.request(number)
        if request.judged:
            return Prospect({} if request.client is None else {request.client: request}, None)
        if not request.pending:
            raise RequestNotOpen(f"request {number} is {request.state.value}: there is nothing to forecast")
        self.ledger.keyring.count()  # without a keyring, that is what is wrong
        if request.client is None:
            raise RequestNotOpen(
                f"request {number} is for clients who were forgotten: there is nothing to forecast"
            )
        asked = Asked(clients=(request.client,))
        if request.records is not None:
            asked = Asked(records={request.client: self.ledger.records_asked(number)})
        return self._prospect(self.ledger, asked, retrain=retrain)

    def refuse(self, number: int, *, by: str, reason: str) -> ErasureRequest:
        """Refuse a request: it is not answered, and stays in the register. Its client may ask again.

        Args:
            number: The request.
            by: Who refuses it.
            reason: Why.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It is judged, refused or cancelled already.
            TextNamesClient: Name or reason contain the id of a client.

        """
        return self._decide(number, EventKind.REFUSED, by, reason)

    def pause(self, number: int, *, by: str, reason: str) -> ErasureRequest:
        """Pause a request while the identity of who asks is in doubt: its deadline moves by as long.

        Args:
            number: The request.
            by: Who pauses it.
            reason: Why.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It does not wait: it is paused, judged, refused or cancelled.
            TextNamesClient: Name or reason contain the id of a client.

        """
        return self._decide(number, EventKind.PAUSED, by, reason)

    def resume_request(self, number: int, *, by: str, reason: str) -> ErasureRequest:
        """End the pause of a request: the identity of who asks is verified.

        Args:
            number: The request.
            by: Who has verified it.
            reason: How.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It is not paused.
            TextNamesClient: Name or reason contain the id of a client.

        """
        return self._decide(number, EventKind.RESUMED, by, reason)

    def extend(self, number: int, *, by: str, reason: str, until: datetime | None = None) -> ErasureRequest:
        """Extend the deadline of a request, once and before it is due (GDPR Art. 12(3)).

        Where the settings promise a purge, also that of an answered request whose client is yet to be purged: the
        purge begins as much later.

        Args:
            number: The request.
            by: Who extends it.
            reason: Why, which is told to whoever asks.
            until: To when; by default as far as it may be, three months after receipt and any pause.

        Returns:
            The request as it stands now.

        Raises:
            UnknownRequest: There is none of this number.
            RequestNotOpen: It is closed, or paused.
            DeadlineRefused: It was extended before, is due already, or is to be extended too far or into the past.
            TextNamesClient: Name or reason contain the id of a client.

        """
        return self._decide(number, EventKind.EXTENDED, by, reason, until=until)

    def _decide(
        self, number: int, kind: EventKind, by: str, reason: str, *, until: datetime | None = None
    ) -> ErasureRequest:
        with Ledger.open(self.directory, shared=True, keys=self.keys) as ledger:
            ledger.decide_request(
                number,
                kind,
                Decision(by, self.clock(), reason),
                until=until,
                interim=self.settings.deniability.purge == "deadline",
            )
            return self._with_approval(ledger.request(number))

    def cancel(self, client: str | int, *, by: str = "", reason: str = "") -> ErasureRequest:
        """Cancel a request that waits; whoever holds the run is not disturbed. Its client may ask again.

        Args:
            client: Whose request it is; or the number of the request.
            by: Who cancels it.
            reason: Why.

        Returns:
            The request as it stands now.

        Raises:
            UnknownClient: It is not a client of the run.
            UnknownRequest: There is no request of this number.
            ConfigError: Several requests of the client wait.
            RunError: It has not asked, or has its verdict already.

        """
        if isinstance(client, int):
            request = self.request(client)
            if request.state is RequestState.CANCELLED:
                return request
            return self._decide(client, EventKind.CANCELLED, by, reason)
        with Ledger.open(self.directory, shared=True, keys=self.keys) as ledger:
            number = ledger.cancel_request(client, at=self.clock(), by=by, reason=reason)
            [request] = ledger.requests([number])
        return request

    def forecast(
        self,
        clients: Clients | None = None,
        *,
        records: Sequence[str] | str | None = None,
        everywhere: Sequence[str] | str | None = None,
        unchecked: bool = False,
        retrain: bool = True,
        try_loading: bool = True,
    ) -> Prospect:
        """Tell what `erase` would do, also whether it could retrain here. Changes nothing.

        Args:
            clients: Who would ask.
            records: As for `erase`.
            everywhere: As for `erase`.
            unchecked: As for `erase`.
            retrain: As for `erase`.
            try_loading: Load the data, to see whether it is there; without it, somebody else is to retrain.

        Returns:
            The verdict and the cost that are to be expected, and why it would be refused here, if so.

        Raises:
            UnknownClient: One of them is not in the run, and has not asked before.
            UnknownRecord: A client does not hold one of the records.

        """
        asked = self._checked(what_is_asked(clients, records, everywhere), unchecked=unchecked)
        told = self._prospect(self.ledger, asked, retrain=retrain)
        trains = told.refusal is None and told.forecast is not None and _trains(told.forecast)
        if try_loading and self.own_engine is None and trains:
            try:
                with self.loading() as on_progress:
                    runs.find_again(self.ledger, self.settings, self.task, on_progress=on_progress)
            except (CannotRetrain, ConfigError) as error:
                return replace(told, refusal=CannotRetrain(str(error)))
        return told

    def erase(
        self,
        clients: Clients | None = None,
        *,
        records: Sequence[str] | str | None = None,
        everywhere: Sequence[str] | str | None = None,
        unchecked: bool = False,
        wait: float = 60.0,
        retrain: bool = True,
        confirm: Confirm | None = None,
        callbacks: Callbacks = _NOBODY,
        by: str = "",
        reason: str = "",
    ) -> Answer:
        """Place requests of clients to be forgotten, or to have records erased; see to it that they are answered.

        Whatever can refuse comes before a request is placed. What is deniable takes neither data nor an engine; and
        what is not undoes nothing before both are there. Another process that holds the run answers the requests
        between its rounds; it is waited for.

        Of a client that has records erased, all updates so far are withdrawn; it goes on without the records, which
        no round sees again. Whether it holds them is looked up in the task.

        Example::

            federation.erase("client-07")
            federation.erase("hospital-3", records=["patient-17", "patient-40"])
            federation.erase({"hospital-1": ["patient-17"], "hospital-3": ["patient-40"]})
            federation.erase(everywhere=["patient-17"])

        Args:
            clients: Who asks; or the records, by client.
            records: The records of these clients; without them, the whole clients are forgotten.
            everywhere: Records to erase wherever they are, in the place of clients.
            unchecked: Place requests for records without looking whether the clients hold them: where the task is
                not to be had here, or the data is gone already. Of clients on nodes of their own it never is.
            wait: Seconds to wait for another process that holds the run.
            retrain: Without it, a rollback that these clients need is made here and nothing is trained after it:
                the model of before is served, and the rounds after it are dropped, those of an unfinished rebuild
                too.
            confirm: Sees what would happen before anything is placed, and may end it by an exception.
            callbacks: Who hears how far it is.
            by: Who places the requests.
            reason: What is said of that in their history.

        Returns:
            The request of each client, with its verdict and cost once it is answered; and why some wait, if so. One
            that has to be approved, or is paused, is placed and left waiting (`ErasureRequest.on_hold`).

        Raises:
            UnknownClient: One of them is not in the run, and has not asked before; nothing is placed.
            UnknownRecord: A client does not hold one of the records; nothing is placed.
            RecordErased: One of the records was erased before; nothing is placed.
            RecordsUnchecked: Records cannot be looked up here, or are all that a client holds; nothing is placed.
            RunInUse: Another process holds the run, and has not answered in time; the requests stay placed.

        """
        settings, asked = self.settings, what_is_asked(clients, records, everywhere)
        openings = None if self.openings is None else self.openings.expanduser().absolute()
        check_openings(openings or default_openings(self.directory), self.directory)
        # a wrong passphrase is refused here, before anything is placed
        signer = load_signer(self.keys, self.ask)
        if not self.ledger.writable:
            self.ledger.allow_short_writes()
        ledger = self.ledger
        for note in ledger.restored.notes:
            callbacks.on_note(note)
        runs.refuse_changed(ledger, settings)
        refuse_another(ledger, self.mechanism)
        ledger.refuse_signer(signer)
        self._refuse_unknown(asked.clients)
        asked = self._checked(asked, unchecked=unchecked)
        if confirm is not None:
            confirm(self._prospect(ledger, asked, retrain=retrain))
        if openings is not None:
            _make_openings(openings)
        placed = self._place(asked, openings, by=by, reason=reason)
        numbers = tuple(placed.values())
        callbacks.on_placed(numbers)
        callbacks = self._tracked(callbacks)
        deadline = time.monotonic() + wait
        refusal = self._see_to(numbers, signer, callbacks, retrain=retrain, deadline=deadline)
        found = {request.number: self._with_approval(request) for request in ledger.requests(numbers)}
        return Answer({client: found[number] for client, number in placed.items()}, refusal)

    def _place(self, asked: Asked, openings: Path | None, *, by: str, reason: str) -> dict[str, int]:
        """Place the requests; whoever was answered before has its request already. Their numbers, by client."""
        ledger, at = self.ledger, self.clock()
        if asked.records:
            return ledger.place_record_requests(asked.records, at=at, openings=openings, by=by, reason=reason)
        before = {client: self._request_of(ledger, client) for client in asked.clients if ledger.has_left(client)}
        asking = [client for client in asked.clients if client not in before]
        numbers = ledger.place_requests(asking, at=at, openings=openings, by=by, reason=reason)
        placed = dict(zip(asking, numbers, strict=True))
        placed |= {client: request.number for client, request in before.items() if request is not None}
        return {client: placed[client] for client in asked.clients}

    def _checked(self, asked: Asked, *, unchecked: bool) -> Asked:
        """Refuse records that nobody has, or that cannot be erased; find who holds those to erase everywhere."""
        if not asked.names_records:
            return asked
        for client in self.ledger.strangers(list(asked.records)):
            if self.ledger.has_left(client) or self.ledger.find_request(client) is not None:
                raise already_forgotten(client)
            raise unknown_client(client, self.ledger.clients())
        # nodes hold records that only they can look for: each says what it does not have when it is to leave it out
        if not unchecked and not runs.on_nodes(self.settings):
            return checked(self.ledger, asked, self._load_task)
        if asked.everywhere:
            raise ConfigError(
                "records to erase everywhere must be looked for, which --unchecked does not, and nobody can for "
                "nodes; allowed: the clients that hold them, each with --record"
            )
        refuse_erased(self.ledger, asked)
        return asked

    def _load_task(self) -> LoadedTask:
        """Load the task without an engine: which records there are left."""
        runs.refuse_other_trainer(self.ledger, self.settings, self.task)
        if self._prepared is not None:
            return runs.leave_out_erased(self.ledger, self._prepared.loaded)
        with self.loading() as on_progress:
            return runs.find_again(self.ledger, self.settings, self.task, on_progress=on_progress)

    def place(
        self,
        clients: Sequence[str],
        *,
        by: Sequence[str] | str = "",
        records: Sequence[Sequence[str] | None] | None = None,
    ) -> tuple[int, ...]:
        """Place requests of these clients to be forgotten, for whoever holds the run or next opens it to answer.

        Nothing is answered here, so that it takes neither the run's lock nor its signing key, nor the task. Asking
        twice gives the number of the first request. All are placed in one transaction, or none. Records are not
        looked up here: whoever answers does, and refuses a request for records that nobody has.

        Args:
            clients: Who asks.
            by: Who places the requests: one for all, or one for each.
            records: The records of each client, in the same order; None for a whole client.

        Returns:
            The numbers of their requests, in this order.

        Raises:
            UnknownClient: One of them is not in the run; nothing is placed.
            RecordErased: One of the records was erased before; nothing is placed.

        """
        actors = [by] * len(clients) if isinstance(by, str) else by
        named = [None] * len(clients) if records is None else records
        asked = [NewRequest(*each) for each in zip(clients, named, actors, strict=True)]
        openings = None if self.openings is None else self.openings.expanduser().absolute()
        note = "" if runs.on_nodes(self.settings) else UNCHECKED  # nodes look for their own
        with (
            Ledger.open(self.directory, shared=True, keys=self.keys) as ledger,
            ledger.transaction() as transaction,
        ):
            return transaction.place_requests(asked, at=self.clock(), openings=openings, note=note)

    def _refuse_unknown(self, clients: Sequence[str]) -> None:
        """Refuse an id that nobody has, and say whose it may have been meant to be."""
        for client in self.ledger.strangers(clients):
            if self._request_of(self.ledger, client) is None:
                if self.ledger.has_left(client):
                    raise already_forgotten(client)
                raise unknown_client(client, self.ledger.clients())

    def _see_to(
        self,
        numbers: tuple[int, ...],
        signer: Signer | None,
        callbacks: Callbacks,
        *,
        retrain: bool,
        deadline: float,
    ) -> CannotRetrain | None:
        """Answer the requests here, or wait for the process that holds the run to answer them between its rounds.

        Why some of them are left waiting; None once all are answered, or wait for somebody's decision.
        """
        ledger, told = self.ledger, False
        while any(request.pending for request in ledger.requests(numbers)):
            if self._all_on_hold(numbers, looked_at=self.settings.requests.approval == "always"):
                return None
            try:
                with ledger.locked(signer):
                    refusal = self._answer_locked(numbers, callbacks, retrain=retrain)
                    if retrain:
                        self._purge_in_time(callbacks)
            except RunInUse as error:
                if time.monotonic() >= deadline:
                    raise RunInUse(
                        f"{error}. The request is placed and will be honoured between its rounds: "
                        f"`disavow requests {self.directory}` shows it"
                    ) from None
                if not told:
                    callbacks.on_wait(f"{error}; the request is placed, waiting for it to be honoured")
                    told = True
                time.sleep(_POLL_SECONDS)
                continue
            if refusal is not None:
                return refusal if any(request.pending for request in ledger.requests(numbers)) else None
            if self._all_on_hold(numbers, looked_at=True):
                return None
        return None

    def _all_on_hold(self, numbers: tuple[int, ...], *, looked_at: bool) -> bool:
        """Whether every request that is still open waits for somebody's decision.

        One that only a rollback needs approval for does so once somebody has `looked_at` it and left it waiting.
        """
        open_ones = [request for request in self.requests(numbers) if request.pending]
        return all(request.on_hold if looked_at else request.paused for request in open_ones)

    def _answer_locked(
        self, numbers: tuple[int, ...], callbacks: Callbacks, *, retrain: bool
    ) -> CannotRetrain | None:
        """Answer all who wait, and complete what was interrupted; why the rest cannot be trained here, if so."""
        from disavow.erasure.erase import answer_requests, answer_without_training, training_due

        ledger, mechanism, options = self.ledger, self.mechanism, self.options
        without_training = partial(
            answer_without_training, ledger, options, on_verdict=callbacks.on_verdict, remark=self._remark
        )
        unchecked = self._look_up_records(callbacks)
        waits = None if unchecked is None else CannotRetrain(str(unchecked))
        _tell_answered(callbacks, without_training(mechanism))
        if not training_due(ledger, options):
            return waits
        if not retrain:
            if any(request.pending for request in ledger.requests(numbers)):
                _tell_answered(callbacks, without_training(WithoutRetraining(mechanism), among=numbers))
            return waits
        try:
            engine = self._engine_to_retrain()
            self._note_engine(callbacks)
            answered = answer_requests(
                ledger,
                engine,
                options,
                mechanism,
                on_verdict=callbacks.on_verdict,
                on_round=callbacks.on_round,
                remark=self._remark,
            )
        except CannotRetrain as refusal:
            _tell_answered(callbacks, without_training(mechanism, apart=True))
            return refusal
        _tell_answered(callbacks, answered)
        return waits

    @property
    def _remark(self) -> Remark:
        """What the report of a rebuild says beyond its cost: whether nodes, or a user's code, trained as before."""
        from disavow.erasure.reproducibility import repetition

        own_task = self.ledger.trainer.kind == "task" and self.mechanism.exact
        return repetition if own_task or runs.on_nodes(self.settings) else lambda ledger: ""

    def _engine_to_retrain(self) -> Engine:
        """What trained the run, with its data; or why it cannot be had."""
        try:
            return self.engine
        except ConfigError as error:
            raise CannotRetrain(str(error)) from error

    def _prospect(self, ledger: Ledger, asked: Asked, *, retrain: bool) -> Prospect:
        try:
            return self._prospect_now(ledger, asked, retrain=retrain)
        except UnknownClient:
            # another process may have answered it between two reads: then it is found among the answered ones
            return self._prospect_now(ledger, asked, retrain=retrain)

    def _prospect_now(self, ledger: Ledger, asked: Asked, *, retrain: bool) -> Prospect:
        with ledger.snapshot() as snapshot:
            found = {client: self._request_of(snapshot, client) for client in asked.clients}
            found |= {client: snapshot.find_record_request(client, keys) for client, keys in asked.records.items()}
        before = {c: r for c, r in found.items() if r is not None and r.judged}
        asking = [client for client in asked.ids if client not in before]
        if not asking:
            return Prospect(before, None, records=asked.records)
        for client in ledger.strangers(asking):
            if ledger.has_left(client):
                raise already_forgotten(client)
            raise unknown_client(client, ledger.clients())
        mechanism = self.mechanism if retrain else WithoutRetraining(self.mechanism)
        leaving, staying = ([c for c in asking if (c in asked.records) == kept] for kept in (False, True))
        told = foresee(ledger, leaving, self.options, mechanism, records_of=staying)
        if _trains(told) and self.own_engine is None:
            try:
                runs.refuse_other_trainer(ledger, self.settings, self.task)
            except (CannotRetrain, ConfigError) as error:
                return Prospect(before, told, CannotRetrain(str(error)), asked.records)
        return Prospect(before, told, records=asked.records)

    # -- what it holds ------------------------------------------------------------------------------------------

    def unsettled(self) -> Unsettled:
        """Look whether rounds are still to be rebuilt, and whether leavers are in the run again.

        Returns:
            What is still to be done; false where nothing is.
        """
        with self.ledger.snapshot() as snapshot:
            forgotten = snapshot.restored_from_backup()
            found = Unsettled(snapshot.rebuilding(), forgotten, snapshot.last_round + 1, run=str(self.directory))
        further = "its Flower server app goes on"
        if not runs.on_nodes(self.settings):
            further = f"`disavow resume {self.directory}` goes on"
        return replace(found, remedy=further) if found else found

    def status(self, *, due: bool = True) -> Status:
        """Tell what the run holds, without touching it.

        Args:
            due: Also list the requests that are open, however many there are, and who is yet to be purged.

        Returns:
            The state of the run, of which `to_json` gives a form for machines.

        """
        ledger, settings = self.ledger, self.settings
        models, leaves, key = ledger.round_models(), ledger.log_length(), ledger.log_key()
        summaries = ledger.summaries()
        standing = sum(summary.standing for summary in summaries)
        kept = [each for each in models if each.kept]
        cosigned = standing_of(ledger, settings.witness)
        return Status(
            run=str(self.directory),
            run_id=ledger.run_id,
            created_at=ledger.created_at,
            created_by=ledger.created_by,
            policy=ledger.policy,
            settings=settings,
            clients=ledger.count_clients(),
            log=f"{leaves} leaves, "
            + (f"signed by {key.name} ({key.id[:16]})" if key else "not signed: there is no key (`disavow keygen`)")
            + (f", {cosigned}" if cosigned else ""),
            cosigned=cosigned,
            unsettled=self.unsettled(),
            stored_bytes=ledger.stored_bytes(),
            models=KeptModels(
                retention=settings.ledger.retention,
                kept=len(kept),
                thinned=len(models) - len(kept),
                kept_bytes=sum(each.stored_bytes for each in kept),
                kept_rounds=[each.round - 1 for each in kept],
                url=ledger.models_at,
            ),
            model=ledger.digest_before(standing + 1),
            budget=self._spending(),
            odds=ledger.odds(),
            rounds=summaries,
            obstacle=self._obstacle(standing),
            engine=ledger.engine_choice(),
            due=self.due() if due else (),
            purge=self._outlook() if due else None,
        )

    def _outlook(self) -> PurgeOutlook | None:
        """As `purge_outlook`; None where the keyring is not here that says who could retrain."""
        return self.purge_outlook() if self.ledger.keyring.exists else None

    def claims(self, delta: float | None = None) -> tuple[Claim, ...]:
        """Account for what the executed rounds have cost in differential privacy.

        Args:
            delta: That of the claims; what the settings say by default.

        Returns:
            One claim for each way of accounting that applies.

        """
        from disavow.privacy.accountants import account

        return tuple(account(self.ledger.events(), delta or self.settings.privacy.delta))

    def departures(self, *, skip: int = 0, most: int = 20) -> tuple[tuple[str, Verdict], ...]:
        """Judge clients one by one as if each left now, alone. Changes nothing.

        Args:
            skip: How many clients to leave out, in the order of their ids.
            most: How many to judge.

        Returns:
            Clients with the verdict that each would get.

        """
        from disavow.erasure.judge import judged

        with self.ledger.snapshot() as snapshot:
            some = snapshot.clients()[skip : skip + most]
            numbers = snapshot.numbers_of(some)
            never = snapshot.never_present(list(numbers.values()))
            absent = Verdict(VerdictKind.NEVER_PRESENT)
            return tuple(
                (client, absent if number in never else judged(snapshot, [number], self.mechanism))
                for client, number in numbers.items()
            )

    def _spending(self) -> Spending | None:
        budget = runs.budget_of(self.settings)
        if budget is None:
            return None
        claim = "sampled" if self.ledger.policy.anchored else "unconditional"
        return Spending(budget.epsilon, budget.delta, budget.spent(self.ledger.events()), claim)

    def _obstacle(self, standing: int) -> str | None:
        """Why no more rounds can be trained, where some are wanted."""
        left, k = self.ledger.count_clients(), self.ledger.policy.k
        if standing >= self.settings.rounds:
            return None
        if left is None:
            return "the keyring is not here"
        if left < k:
            return f"{left} clients are fewer than k"
        try:
            spent = room_for(self.ledger, self.options, standing + 1).obstacle is not None
        except DisavowError:
            return None  # the keyring is not here that says who is in the next round
        return "the privacy budget is spent" if spent else None

    def check(
        self,
        *,
        absent: Sequence[str] = (),
        checkpoint: bytes | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Finding]:
        """Check the run from its stored bytes: see `check_run`, which also takes one that cannot be opened.

        Args:
            absent: Ids that no file of the run may contain.
            checkpoint: A signed head that was kept; the log must go on from it.
            on_progress: Hears how many checks are done, of how many.

        Returns:
            Everything that was found, faults and notes; an empty list where there is nothing.

        Raises:
            RunInUse: This federation is open for training.

        """
        from disavow.run_checks import check_run

        if self.ledger.writable:
            raise RunInUse(f"{self.directory} is open for training here: close it first, then check it")
        # closed meanwhile: reading the database as a file would drop the locks that SQLite has on it
        self.ledger.close()
        try:
            return check_run(
                self.directory, keys=self.keys, absent=absent, checkpoint=checkpoint, on_progress=on_progress
            )
        finally:
            self.ledger = Ledger.open(self.directory, keys=self.keys)

    def export(self, *, average: int = 1, anyway: bool = False, to: str | None = None) -> ExportedModel:
        """Give the model that is served, or the mean of it and of those before it.

        Args:
            average: Of how many models to take the mean.
            anyway: Also while rounds that a rollback undid are still to be rebuilt.
            to: Who receives it: recorded in the run, sealed, before it is given out; see `releases`.

        Returns:
            The model as a safetensors file, with its SHA-256.

        Raises:
            ModelNotReady: A rebuild is unfinished, or leavers are in the run again.
            ConfigError: Fewer rounds stand than are to be averaged.
            TextNamesClient: The name of who receives it contains the id of a client.

        """
        ledger, open_work = self.ledger, self.unsettled()
        if (reason := open_work.reason) is not None and not anyway:
            raise ModelNotReady(
                f"{self.directory}: {reason}. `--anyway` exports what it has now; docs/erasure.md says what to "
                "serve meanwhile"
            )
        newest = ledger.last_round
        if average == 1:
            data, mean_of = ledger.store.read_bytes(ledger.layout, ledger.digest_before(newest + 1)), None
        elif average > newest:
            raise ConfigError(f"{self.directory} has no more rounds than {newest}: too few for --average {average}")
        else:
            mean, mean_of = ledger.mean_model(average)
            data = to_safetensors(ledger.layout, mean)
        made = ExportedModel(data, digest_of(data), mean_of, newest, open_work)
        return made if to is None else replace(made, release=self._release(made, to))

    def _release(self, model: ExportedModel, to: str) -> int:
        after, averaged = (model.digest, 1) if model.mean_of is None else (model.mean_of[-1], len(model.mean_of))
        with Ledger.open(self.directory, shared=True, keys=self.keys) as ledger:
            return ledger.note_release(
                digest=model.digest, newest=model.newest, after=after, averaged=averaged, to=to, at=self.clock()
            )

    def releases(self) -> tuple[Release, ...]:
        """List the models that were exported for somebody, and which of them are superseded (GDPR Art. 19).

        Without the keyring nobody is named.

        Returns:
            The releases, in the order in which they were made.

        """
        return self.ledger.releases()

    def model(self, *, average: int = 1) -> nn.Module:
        """Build the network with the weights that are served.

        Args:
            average: Of how many models to take the mean, the one that is served and those before it.

        Returns:
            The task's own module, complete: frozen parameters are those of the task.

        Raises:
            CannotRetrain: What trained the run, and so its network, is not to be had here.
            ConfigError: Fewer rounds stand than are to be averaged.

        """
        import torch

        from disavow.engines.state import put_model
        from disavow.ledger.models import from_safetensors
        from disavow.rounds.vectors import Model

        network = copy.deepcopy(self.prepared.network)
        exported = self.export(average=average, anyway=True)
        vector = torch.from_numpy(from_safetensors(self.ledger.layout, exported.data))
        put_model(network, Model(self.ledger.layout, vector))
        return network

    def state_dict(self, *, average: int = 1) -> dict[str, Tensor]:
        """Give the state of the network that is served, frozen parameters and whole numbers included.

        Args:
            average: As for `model`.

        Returns:
            What `load_state_dict` of the same network takes, with nothing missing.

        """
        return dict(self.model(average=average).state_dict())

    # -- proofs ------------------------------------------------------------------------------------------------

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

    def cosigned(self) -> Standing | None:
        """Tell which witnesses have cosigned the newest head of the log.

        Returns:
            Who has, who has not, and how many must; None where the log is not signed, or no witness is set.

        """
        return standing_of(self.ledger, self.settings.witness)

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


def unknown_client(client: str, known: Sequence[str]) -> UnknownClient:
    """The refusal of an id that nobody in the run has, with ids that may have been meant.

    Several, because numbered ids are equally alike, and whoever pastes the wrong one erases somebody else.
    """
    like = get_close_matches(client, known, n=3, cutoff=_LIKE)
    hint = f"; did you mean {' or '.join(map(escaped, like))}?" if like else ""
    return UnknownClient(f"{client!r} is not a client of this run, or has left it; nothing was changed{hint}")


def _tell_answered(callbacks: Callbacks, answered: Sequence[ErasureRequest]) -> None:
    for request in answered:
        callbacks.on_answer(request)


def _both(first: Callable[_P, None], second: Callable[_P, None]) -> Callable[_P, None]:
    """Give a function that calls two, in this order."""

    def both(*args: _P.args, **kwargs: _P.kwargs) -> None:
        first(*args, **kwargs)
        second(*args, **kwargs)

    return both


def _trains(told: Forecast) -> bool:
    """Whether these clients' own answer needs training."""
    return told.verdict.undoes is not None and told.cost.rounds > 0


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


def _make_openings(folder: Path) -> None:
    """Make the folder that openings are asked for in, while somebody is there to be told that it cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        usable = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}; allowed: a folder for openings") from None
    if not usable:
        raise ConfigError(f"{folder} cannot be written; allowed: a folder for openings that can be")
