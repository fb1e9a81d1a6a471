"""A run, assembled from its settings: data, network, engine and ledger put together.

For example::

    settings = config.load(Path("config.toml"))
    with runs.start(settings, Path("runs/first")) as run:
        run.train()

The directory holds everything; `reopen` goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from torch import nn

from disavow import __version__, config
from disavow.config import Settings
from disavow.data import FederatedData, OnProgress
from disavow.data import load as load_data
from disavow.data.progress import nothing
from disavow.domain import OWN_CODE, ErasureRequest, RequestState, TrainedBy, escaped
from disavow.engines import build as build_engine
from disavow.engines.state import layout_of, model_of
from disavow.engines.workload import Workload
from disavow.erasure.erase import OnVerdict, erase
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms import build as build_mechanism
from disavow.erasure.prove import OnOpening
from disavow.erasure.stream import place_from_stream
from disavow.errors import CannotRetrain, ConfigError, RunError, RunMissing
from disavow.ledger import Ledger, database
from disavow.ledger.creation import CONFIG, refuse_existing
from disavow.ledger.keys import default_folder, tombstone_key
from disavow.ledger.run_files import refuse_unsafe
from disavow.models import build
from disavow.privacy.budget import Budget
from disavow.proof.keys import AskPassphrase, load_signer, nobody_to_ask
from disavow.rounds.clustering.kmeans import require_kmeans
from disavow.rounds.conduct import Clock, Conduct, now
from disavow.rounds.local_training import Engine
from disavow.rounds.participation import needs_participation_key, participation_of
from disavow.rounds.randomness import Secrets
from disavow.rounds.training import OnRound, train

OnAnswer = Callable[[ErasureRequest], None]


@dataclass(frozen=True, eq=False)
class Run:
    """An open run: what it was told (settings), what it keeps (ledger), and what does the work (engine).

    `notes` say what is not as it should be with its data.
    """

    settings: Settings
    ledger: Ledger
    engine: Engine
    conduct: Conduct
    keys: Path
    mechanism: Mechanism
    openings: Path | None = None
    notes: tuple[str, ...] = ()

    def train(
        self,
        on_round: OnRound = lambda summary: None,
        on_verdict: OnVerdict = lambda verdict, requests: None,
        on_answer: OnAnswer = lambda request: None,
        on_opening: OnOpening = lambda request, path: None,
    ) -> None:
        """Train until the rounds of the settings stand; requests are honoured between rounds.

        `on_round` sees each recorded round, `on_verdict` each judgement, `on_answer` each request once it is
        answered and its client deleted, `on_opening` where the opening of each was written.
        """

        def between_rounds() -> None:
            rate = self.settings.requests.rate
            if rate > 0:
                place_from_stream(self.ledger, self.conduct, rate=rate, key=self.tombstone_key())
            for request in self.honour_requests(on_round, on_verdict, on_opening):
                on_answer(request)

        train(
            self.ledger,
            self.engine,
            self.conduct,
            rounds=self.settings.rounds,
            on_round=on_round,
            between_rounds=between_rounds,
        )

    def honour_requests(
        self,
        on_round: OnRound = lambda summary: None,
        on_verdict: OnVerdict = lambda verdict, requests: None,
        on_opening: OnOpening = lambda request, path: None,
    ) -> tuple[ErasureRequest, ...]:
        """Answer every request that waits, and complete what was interrupted."""
        return erase(
            self.ledger,
            self.engine,
            self.conduct,
            self.mechanism,
            on_verdict=on_verdict,
            on_round=on_round,
            openings=self.openings,
            on_opening=on_opening,
        )

    def tombstone_key(self) -> bytes:
        """The operator's key of the tombstones."""
        return tombstone_key(self.keys, run=self.ledger.directory)

    def close(self) -> None:
        """Let go of the run."""
        self.engine.close()
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, eq=False)
class Prepared:
    """What runs have in common whose settings differ in neither data, network, training, engine nor seed.

    `trainer` is what a run records of it: from the settings, or else made by whoever calls.
    """

    data: FederatedData
    network: nn.Module
    engine: Engine
    trainer: TrainedBy = OWN_CODE


def prepare(settings: Settings, *, on_progress: OnProgress = nothing) -> Prepared:
    """Load the data, build the network and the engine. `on_progress` hears how far the data is."""
    data = load_data(settings.data, seed=settings.seed, on_progress=on_progress)
    return _prepared(settings, data, network_of(settings, data))


def start(
    settings: Settings,
    directory: Path,
    *,
    keys: Path | None = None,
    clock: Clock = now,
    ask: AskPassphrase = nobody_to_ask,
    on_progress: OnProgress = nothing,
    prepared: Prepared | None = None,
) -> Run:
    """A new run in a directory that does not exist yet, or is empty. `keys` holds the operator's keys.

    Where there is a signing key among them, it signs the run's log; `ask` asks for its passphrase. `on_progress`
    hears how far the data is, where it takes time to load. What is `prepared` for several runs is used as it is;
    its engine ends with the first of them that is closed, unless the caller sees to that.
    """
    refuse_on_nodes(settings, directory)
    refuse_existing(directory)
    keys = keys or default_folder()
    signer = load_signer(keys, ask)
    if needs_participation_key(settings):
        tombstone_key(keys, run=directory)  # a folder that cannot be used is better known before there is a run
    if settings.clustering.method == "constrained-kmeans":
        require_kmeans()
    prepared = prepared or prepare(settings, on_progress=on_progress)
    settings = _bound_to(settings, prepared.data)
    initial = model_of(prepared.network)
    try:
        ledger = Ledger.create(
            directory,
            policy=settings.policy,
            layout=initial.layout,
            initial=initial.vector.numpy(),
            clients=prepared.data.parts,
            config=config.to_toml(settings),
            created_by=f"disavow {__version__}",
            at=clock(),
            settings_digest=config.settings_digest(settings),
            trainer=prepared.trainer,
            signer=signer,
            keys=keys or default_folder(),
        )
    except BaseException:
        prepared.engine.close()
        raise
    try:
        return _assemble(settings, ledger, prepared, keys, clock)
    except BaseException:
        prepared.engine.close()
        ledger.close()
        raise


def reopen(
    directory: Path,
    *,
    keys: Path | None = None,
    clock: Clock = now,
    ask: AskPassphrase = nobody_to_ask,
    openings: Path | None = None,
    on_progress: OnProgress = nothing,
) -> Run:
    """A run that was started before, opened for writing. `openings` is the folder for leavers' openings.

    `on_progress` hears how far the data is, where it takes time to load.
    """
    settings = settings_of(directory)
    refuse_on_nodes(settings, directory)
    keys = keys or default_folder()
    ledger = Ledger.open(directory, write=True, signer=load_signer(keys, ask), keys=keys)
    try:
        refuse_changed(ledger, settings)
        prepared = prepare_again(ledger, settings, on_progress=on_progress)
        return _assemble(settings, ledger, prepared, keys, clock, openings)
    except BaseException:
        ledger.close()
        raise


def prepare_again(ledger: Ledger, settings: Settings, *, on_progress: OnProgress = nothing) -> Prepared:
    """Load the data and build network and engine to train a run that exists, exactly as it was trained.

    `CannotRetrain` where what trained it is not to be had here, or is not the same.
    """
    return _prepared(settings, *find_again(ledger, settings, on_progress=on_progress))


def find_again(
    ledger: Ledger, settings: Settings, *, on_progress: OnProgress = nothing
) -> tuple[FederatedData, nn.Module]:
    """The data and the network that a run was trained with; `CannotRetrain` where they are not to be had here."""
    refuse_other_trainer(ledger, settings)
    data = load_data(settings.data, seed=settings.seed, on_progress=on_progress)
    refuse_other_data(ledger, data)
    network = network_of(settings, data)
    refuse_other_layout(ledger, network)
    return data, network


def _prepared(settings: Settings, data: FederatedData, network: nn.Module) -> Prepared:
    return Prepared(data, network, _engine_of(settings, network, data), TrainedBy("settings", data.held))


def refuse_other_trainer(ledger: Ledger, settings: Settings) -> None:
    """Refuse to train a run that something else trains than its settings."""
    refuse_on_nodes(settings, ledger.directory)
    if ledger.trainer.kind == "flower":
        raise CannotRetrain(
            f"{ledger.directory}: its clients are Flower nodes, and its Flower server app alone can train it "
            "(docs/flower.md)"
        )
    if ledger.trainer.kind == "python":
        raise CannotRetrain(
            f"{ledger.directory} was trained by code of its own, which its config.toml does not describe: open it "
            'from Python with the engine that trained it (docs/erasure.md, "Runs of your own code")'
        )


def refuse_other_data(ledger: Ledger, data: FederatedData) -> None:
    """Refuse to train a run on other data than its clients hold."""
    refuse_missing_data(ledger, data)
    if data.held != ledger.trainer.data:
        raise CannotRetrain(
            f"the data at hand is not what the clients of {ledger.directory} hold (SHA-256 {data.held[:12]}, not "
            f"{(ledger.trainer.data or 'unknown')[:12]}): get the same data again"
        )


def refuse_missing_data(ledger: Ledger, data: FederatedData) -> None:
    """Refuse to train a run on data that lacks a client who stays in it."""
    leaving = {request.client for request in ledger.requests() if request.state is RequestState.WAITING}
    lacking = [client for client in ledger.clients() if client not in data.parts and client not in leaving]
    if lacking:
        raise CannotRetrain(
            f"the data at hand holds nothing of {escaped(lacking[0])}"
            f"{f' and {len(lacking) - 1} more' if len(lacking) > 1 else ''}, who take part in {ledger.directory}"
        )


def refuse_other_layout(ledger: Ledger, network: nn.Module) -> None:
    """Refuse to train a run with a network that its models do not fit."""
    if layout_of(network) != ledger.layout:
        raise CannotRetrain(
            f"the models of {ledger.directory} are not of the network that its settings describe: their tensors "
            "have other names or shapes"
        )


def settings_of(directory: Path) -> Settings:
    """The settings a run was started with."""
    path = directory / CONFIG
    refuse_unsafe(directory)
    if not path.exists():
        if (directory / database.NAME).exists():
            raise RunError(f"{path} is missing: put it back, the run cannot be used without its settings")
        raise RunMissing(f"{directory} holds no run; `disavow train CONFIG.toml --run {directory}` starts one")
    return config.load(path)


def refuse_changed(ledger: Ledger, settings: Settings) -> None:
    """Refuse settings that are not those the run was started with."""
    if ledger.settings_digest and ledger.settings_digest != config.settings_digest(settings):
        raise ConfigError(
            f"{ledger.directory / CONFIG} was changed since the run was started; restore it "
            f"(only {', '.join(config.CHANGEABLE)} may be changed)"
        )


def on_nodes(settings: Settings) -> bool:
    """Whether the clients are Flower nodes, so that only the run's server app can train."""
    return settings.engine.name == "flower"


def refuse_on_nodes(settings: Settings, directory: Path) -> None:
    """Nothing here can train clients that are elsewhere."""
    if on_nodes(settings):
        raise ConfigError(
            f'{directory}: engine.name is "flower": its clients are Flower nodes, and its Flower server app starts '
            "it, goes on with it and retrains (docs/flower.md)"
        )


def conduct_of(settings: Settings, clock: Clock = now, *, participation: bytes | None = None) -> Conduct:
    """How these settings run rounds. `participation` comes from `participation_of`."""
    return Conduct(
        seed=settings.seed,
        fraction=settings.training.fraction,
        epochs=settings.training.epochs,
        secrets=Secrets(settings.seed if settings.draws == "seeded" else None),
        clock=clock,
        budget=budget_of(settings),
        retention=None if settings.ledger.retention == "all" else settings.ledger.retention,
        keep_every=settings.mechanism.interval if settings.mechanism.name == "federaser" else None,
        compress=settings.mechanism.compress,
        at_least=settings.clustering.k if on_nodes(settings) else 1,
        participation=participation,
    )


def budget_of(settings: Settings) -> Budget | None:
    """What these settings allow a run to spend; None where they set no budget."""
    privacy = settings.privacy
    return None if privacy.epsilon is None else Budget(privacy.epsilon, privacy.delta)


def network_of(settings: Settings, data: FederatedData) -> nn.Module:
    """The network of these settings, with its initial weights."""
    return build(settings.model.name, data.train.shape, data.train.classes, seed=settings.seed)


def _bound_to(settings: Settings, data: FederatedData) -> Settings:
    """The settings that a run keeps: with the full path of its data, and with what tells it from other data."""
    if data.digest is None:
        return settings
    folder = settings.data.dir and str(Path(settings.data.dir).expanduser().absolute())
    return settings.model_copy(
        update={"data": settings.data.model_copy(update={"dir": folder, "digest": data.digest})}
    )


def _engine_of(settings: Settings, network: nn.Module, data: FederatedData) -> Engine:
    return build_engine(
        Workload(
            network=network,
            images=data.train.images,
            labels=data.train.labels,
            parts=data.parts,
            test_images=data.test.images,
            test_labels=data.test.labels,
            settings=settings.training,
            seed=settings.seed,
        ),
        settings.engine,
    )


def _assemble(
    settings: Settings,
    ledger: Ledger,
    prepared: Prepared,
    keys: Path | None,
    clock: Clock,
    openings: Path | None = None,
) -> Run:
    keys = keys or default_folder()
    conduct = conduct_of(settings, clock, participation=participation_of(settings, ledger, keys))
    mechanism = build_mechanism(settings.mechanism)
    notes = (*prepared.data.notes, *ledger.restored.notes)
    return Run(settings, ledger, prepared.engine, conduct, keys, mechanism, openings, notes)
