"""The one public class: a run is created or opened, trained, and asked for every use case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from disavow import config, runs
from disavow.config import Settings
from disavow.domain import Policy
from disavow.federation.callbacks import NOBODY, Callbacks
from disavow.federation.erasures import Erasures
from disavow.federation.inspection import Inspection
from disavow.federation.open_run import load_silently
from disavow.ledger import Ledger
from disavow.ledger.keys import default_folder
from disavow.proof.keys import AskPassphrase, load_signer, nobody_to_ask
from disavow.rounds.options import Clock, now
from disavow.runs import Loading
from disavow.tracking import from_settings

if TYPE_CHECKING:
    from disavow.rounds.local_training import Engine
    from disavow.rounds.vectors import Model
    from disavow.runs import Prepared
    from disavow.tasks.task import Task


class Federation(Erasures, Inspection):
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
        loading: Loading = load_silently,
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
        shared: bool = False,
        keys: Path | None = None,
        clock: Clock = now,
        ask: AskPassphrase = nobody_to_ask,
        openings: Path | None = None,
        loading: Loading = load_silently,
        engine: Engine | None = None,
    ) -> Self:
        """Open a run that exists.

        Args:
            directory: Where it lies.
            task: What trains it, where its settings do not name a task: one, or module:callable that makes one.
                Needed only to train.
            write: Take its lock at once, to train it; otherwise `train` and `erase` take it while they work.
            shared: Keep it open for short writes beside whoever holds the lock, for a process that places many
                requests; without it, each of them opens the run once more.
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
            ledger = Ledger.open(directory, shared=shared, keys=keys)
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

    def train(self, callbacks: Callbacks = NOBODY, *, rounds: int | None = None) -> None:
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

    def train_round(self, callbacks: Callbacks = NOBODY) -> None:
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
