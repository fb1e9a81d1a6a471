"""An open run: its settings, its ledger and its lock, what trains it, and the trackers that follow it.

Data and engine are built on first use, so that whatever needs no training works without them and without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from disavow import runs
from disavow.config import Settings
from disavow.cosigning import Cosigner
from disavow.domain import EngineChoice, Exclusions
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms import build as build_mechanism
from disavow.errors import ConfigError, DisavowError
from disavow.federation.callbacks import NOBODY, Callbacks, call_both
from disavow.ledger import Ledger
from disavow.proof.keys import AskPassphrase, load_signer, nobody_to_ask
from disavow.rounds.options import Clock, RoundOptions, now
from disavow.rounds.participation import participation_of
from disavow.runs import Loading
from disavow.tracking import Follower, Tracker, from_settings, in_one_line

if TYPE_CHECKING:
    from disavow.data.progress import OnProgress
    from disavow.rounds.local_training import Engine
    from disavow.runs import Prepared
    from disavow.tasks.loading import LoadedTask
    from disavow.tasks.task import Task


def load_silently() -> AbstractContextManager[OnProgress]:
    """Load data without showing how far it is."""
    return nullcontext(runs.show_nothing)


@dataclass(eq=False)
class OpenRun:
    """A run that is open, on which each use case is built. What its fields are, `Federation` says."""

    directory: Path
    settings: Settings
    ledger: Ledger
    keys: Path
    clock: Clock = now
    ask: AskPassphrase = nobody_to_ask
    openings: Path | None = None
    loading: Loading = load_silently
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
        return self._load_task().record_keys(client)

    def _load_task(self) -> LoadedTask:
        """Load the task without an engine: which records there are left."""
        runs.refuse_other_trainer(self.ledger, self.settings, self.task)
        if self._prepared is not None:
            return runs.leave_out_erased(self.ledger, self._prepared.loaded)
        with self.loading() as on_progress:
            return runs.find_again(self.ledger, self.settings, self.task, on_progress=on_progress)

    @property
    def engine_choice(self) -> EngineChoice | None:
        """Which engine trains, and why no faster one; before it is built, which trained last. None: nobody says."""
        if self._prepared is None and self.own_engine is None:
            return self.ledger.engine_choice()
        engine = self.engine
        return getattr(engine, "choice", None)

    def _note_engine(self, callbacks: Callbacks = NOBODY) -> EngineChoice | None:
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

    def track(self, tracker: Tracker) -> None:
        """Write rounds, metrics, verdicts and costs to a tracker from now on, beside those that the settings name.

        Args:
            tracker: Such as `disavow.TensorBoard(folder)` or `disavow.MLflow(uri)`; closed with the federation.

        """
        self._tracked(NOBODY, refuse=True)
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
            on_round=call_both(callbacks.on_round, follower.on_round),
            on_verdict=call_both(callbacks.on_verdict, follower.on_verdict),
            on_answer=call_both(callbacks.on_answer, follower.on_answer),
        )

    def _beside(self) -> AbstractContextManager[Ledger]:
        """The ledger, for a short write beside whoever holds the run: the one that is open, if it was opened so."""
        if self.ledger.takes_short_writes:
            return nullcontext(self.ledger)
        return Ledger.open(self.directory, shared=True, keys=self.keys)

    def _take_lock(self) -> None:
        """Open the run for writing, if it is not."""
        if self.ledger.writable:
            return
        signer = load_signer(self.keys, self.ask)
        reading = self.ledger
        self.ledger = Ledger.open(self.directory, write=True, signer=signer, keys=self.keys)
        reading.close()
        runs.refuse_changed(self.ledger, self.settings)
