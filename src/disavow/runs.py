"""What a run is put together from: its settings, its data, its network and its engine; and what is refused.

`federation.Federation` is what callers use. Data, network and engine, and with them torch, are imported only by
what makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disavow import config
from disavow.config import Settings
from disavow.domain import OWN_CODE, Layout, RequestState, TrainedBy, escaped
from disavow.domain.strategies import CLUSTERINGS, MECHANISMS
from disavow.errors import CannotRetrain, ConfigError, RunError, RunMissing, TaskError
from disavow.ledger import Ledger, database
from disavow.ledger.blobs import check_location
from disavow.ledger.creation import CONFIG, refuse_existing
from disavow.ledger.files import PRIVATE_FILE, write_durably
from disavow.ledger.keys import refuse_inside
from disavow.ledger.run_files import refuse_unsafe
from disavow.proof.keys import AskPassphrase, load_signer
from disavow.proof.notes import Signer
from disavow.rounds.options import Clock, RoundOptions, now
from disavow.rounds.participation import SecretOrder
from disavow.rounds.randomness import Secrets

if TYPE_CHECKING:
    from torch import nn

    from disavow.data import FederatedData, OnProgress
    from disavow.privacy.budget import Budget
    from disavow.rounds.local_training import Engine
    from disavow.rounds.vectors import Model
    from disavow.tasks.factory import Factory
    from disavow.tasks.loading import LoadedTask
    from disavow.tasks.task import Task

SET_BY_NODES = (
    "data",
    "model",
    "requests.rate",
    "training.batch_size",
    "training.learning_rate",
    "training.momentum",
    "training.weight_decay",
)
"""Settings that Flower nodes know, and not the server: left out of the config.toml of such a run."""

_NODE_ENGINE = ("engine.device", "engine.precision", "engine.compile")
"""Left out as well: the engine is the nodes, and nothing else of it can be set."""

Loading = Callable[[], "AbstractContextManager[OnProgress]"]
"""Opens whatever shows how far the data is, each time that data is loaded."""


_UNNAMED_TASK = (
    "a task trains this run that its config.toml does not name: open it with Federation.open(directory, task), or "
    "name one with --task module:callable"
)


def show_nothing(what: str, done: int, total: int | None) -> None:
    """Show nothing of how far the data is."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A task, loaded, and what trains it: what runs have in common that differ in neither of them.

    Args:
        loaded: The task, its model with the initial weights, and its data.
        engine: What trains it.
        trainer: What a run records of it; by default, that whoever calls made it.
        batch_size: Samples in a batch; None where whoever calls cuts the batches.

    """

    loaded: LoadedTask
    engine: Engine
    trainer: TrainedBy = OWN_CODE
    batch_size: int | None = None

    @property
    def network(self) -> nn.Module:
        """The model with its initial weights."""
        return self.loaded.network

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as it should be with the data."""
        from disavow.tasks import ImageTask

        of_data = self.loaded.task.data.notes if isinstance(self.loaded.task, ImageTask) else ()
        small = _small_last_batches(map(len, self.loaded.samples.values()), self.batch_size)
        return of_data if small is None else (*of_data, small)


_EIGHTH = 8


def _small_last_batches(sizes: Iterable[int], batch_size: int | None) -> str | None:
    """Say that most clients end an epoch with a small batch; None where they do not."""
    if batch_size is None:
        return None
    sizes = list(sizes)
    small = [size for size in sizes if size > batch_size and 0 < size % batch_size <= batch_size // _EIGHTH]
    if 2 * len(small) <= len(sizes):
        return None
    return (
        f"{len(small):,} of {len(sizes):,} clients end each epoch with at most an eighth of a batch "
        f"(training.batch_size is {batch_size}): its step counts as much as that of a whole one, so that updates "
        "differ more and few representatives cost more accuracy; choose a size that leaves no small rest"
    )


def prepare(
    settings: Settings,
    task: Task | None = None,
    *,
    factory: Factory | None = None,
    on_progress: OnProgress = show_nothing,
) -> Prepared:
    """Load a task and build its engine.

    Args:
        settings: The settings of the run.
        task: What to train; by default the task, or the built-in images, that the settings name.
        factory: Where the task was imported from, so that worker processes can do the same.
        on_progress: Hears how far the data is.

    """
    from disavow.engines.state import frozen_digest
    from disavow.tasks import ImageTask

    loaded = _load_task(settings, task, on_progress, factory)
    if isinstance(loaded.task, ImageTask):
        trainer = TrainedBy("settings", loaded.task.data.held)
    else:
        trainer = TrainedBy("task", frozen=frozen_digest(loaded.network))
    batch_size = loaded.task.batch_size or settings.training.batch_size
    return Prepared(loaded, _engine_of(settings, loaded), trainer, batch_size)


def _load_task(
    settings: Settings, task: Task | str | None, on_progress: OnProgress, factory: Factory | None = None
) -> LoadedTask:
    """Load a task: the one that was given, or else the one that the settings name."""
    from disavow.tasks import ImageTask
    from disavow.tasks.loading import load

    made, factory = _build_task(settings, task), factory or _factory_of(settings, task)
    if isinstance(made, ImageTask):
        made = made.read(settings.seed, on_progress)
    return load(made, training=settings.training, seed=settings.seed, factory=factory)


def _build_task(settings: Settings, task: Task | str | None) -> Task:
    """Build the task that was named, or else the one that the settings name: built-in images without a factory."""
    from disavow.tasks import ImageTask

    if task is not None and not isinstance(task, str):
        return task
    factory = _factory_of(settings, task)
    if factory is None:
        return ImageTask(settings.data, settings.model)
    return factory.build()


def _factory_of(settings: Settings, task: Task | str | None) -> Factory | None:
    """Where a task can be imported from: the name that was given, or else the one of the settings."""
    from disavow.tasks.factory import Factory

    if task is not None and not isinstance(task, str):
        return None
    name, path = task or settings.task.factory, settings.task.path
    return None if name is None else Factory(name, settings.task.options, Path(path) if path else None)


def settings_with(settings: Settings, task: Task) -> Settings:
    """Write what a task says about itself into settings.

    Args:
        settings: The settings.
        task: The task: its epochs and its batch size count, and of built-in images their sections.

    Raises:
        ConfigError: They do not fit together.

    """
    from disavow.tasks import ImageTask

    if isinstance(task, ImageTask):
        settings = task.settings_with(settings)
    own = {"epochs": task.epochs, "batch_size": task.batch_size}
    changed = {name: value for name, value in own.items() if value is not None}
    return settings.model_copy(update={"training": settings.training.model_copy(update=changed)})


def start(
    settings: Settings,
    directory: Path,
    *,
    keys: Path,
    clock: Clock,
    ask: AskPassphrase,
    loading: Loading,
    prepared: Prepared | None = None,
    task: Task | str | None = None,
    url: str | None = None,
) -> tuple[Ledger, Settings, Prepared]:
    """Make the ledger of a new run, in the database of this URL or of the settings.

    Returns:
        The ledger, the settings as the run keeps them, and what trains it.

    """
    refuse_on_nodes(settings, directory)
    refuse_existing(directory)
    if settings.ledger.models is not None:
        check_location(settings.ledger.models)
    url = database.chosen(url or _database_of(settings))
    database.refuse_unreachable(url, directory)
    if prepared is None:
        refuse_device(settings)
    signer = load_signer(keys, ask)
    refuse_inside(keys, directory)
    CLUSTERINGS[settings.clustering.method].require()
    if prepared is None:
        factory = _factory_of(settings, task)
        task = _build_task(settings, task)
        settings = settings_with(settings, task)
        with loading() as on_progress:
            prepared = prepare(settings, task, factory=factory, on_progress=on_progress)
    try:
        return _create(settings, directory, keys, clock(), signer, prepared, url)
    except BaseException:
        prepared.engine.close()
        raise


def _create(
    settings: Settings,
    directory: Path,
    keys: Path,
    at: datetime,
    signer: Signer | None,
    prepared: Prepared,
    url: str,
) -> tuple[Ledger, Settings, Prepared]:
    from disavow.engines.state import model_of
    from disavow.tasks import ImageTask

    settings, models_at = _without_location(_tracked_anywhere(settings))
    loaded, model = prepared.loaded, model_of(prepared.network)
    digests: Mapping[str, str] = {}
    without: tuple[str, ...] = ()
    if isinstance(loaded.task, ImageTask):
        settings = _bound_to(settings, loaded.task.data)
    else:
        settings, digests, without = _bound_to_task(settings, loaded), loaded.digests, ("data", "model")
    ledger = _new_ledger(
        settings,
        directory,
        model,
        loaded.samples,
        prepared.trainer,
        keys=keys,
        at=at,
        signer=signer,
        without=without,
        data=digests,
        models_at=models_at,
        url=url,
    )
    return ledger, settings, prepared


def _without_location(settings: Settings) -> tuple[Settings, str | None]:
    """Take where the models of a new run go out of its settings: the run notes it by itself, and it may change."""
    kept = settings.ledger.model_copy(update={"models": None})
    return settings.model_copy(update={"ledger": kept}), settings.ledger.models


def _new_ledger(
    settings: Settings,
    directory: Path,
    initial: Model,
    clients: Iterable[str],
    trainer: TrainedBy,
    *,
    keys: Path,
    at: datetime,
    signer: Signer | None,
    without: Collection[str] = (),
    data: Mapping[str, str] | None = None,
    models_at: str | None = None,
    url: str | None = None,
) -> Ledger:
    from disavow import __version__  # reads the installed package, which answering never needs

    return Ledger.create(
        directory,
        policy=settings.policy,
        layout=initial.layout,
        initial=initial.vector.numpy(),
        clients=clients,
        config=config.to_toml(settings, without=(*without, *config.UNKEPT)),
        created_by=f"disavow {__version__}",
        at=at,
        settings_digest=config.settings_digest(settings),
        trainer=trainer,
        data=data,
        signer=signer,
        keys=keys,
        models_at=models_at,
        database=url or _database_of(settings),
    )


def _database_of(settings: Settings) -> str | None:
    """The database that the settings name. A file that is copied and shown is no place for a password."""
    url = settings.ledger.database
    if url is not None and database.has_password(url):
        raise ConfigError(
            "ledger.database holds a password; allowed: a URL without one (PGPASSWORD, ~/.pgpass or "
            f"{database.VARIABLE} give it)"
        )
    return url


def start_on_nodes(
    settings: Settings, directory: Path, initial: Model, *, keys: Path, at: datetime, signer: Signer | None
) -> Ledger:
    """Make the ledger of a run whose clients are Flower nodes, or open the one that is there for writing.

    A run that is there goes on where it stands: its own initial model counts, and its settings but for what may be
    changed, such as the number of rounds.

    Args:
        settings: What the run promises.
        directory: Where it lies, or is to lie.
        initial: The model that a new run starts from.
        keys: The folder of the operator's keys.
        at: When it is started.
        signer: Signs its log; None leaves it unsigned.

    Returns:
        The ledger, open for writing.

    Raises:
        ConfigError: The run that is there has other settings, or models of another layout.

    """
    CLUSTERINGS[settings.clustering.method].require()
    without = (*SET_BY_NODES, *_NODE_ENGINE, *config.UNKEPT)
    settings, models_at = _without_location(settings)
    if not directory.exists() or not any(directory.iterdir()):
        if models_at is not None:
            check_location(models_at)
        return _new_ledger(
            settings,
            directory,
            initial,
            (),
            TrainedBy("flower"),
            keys=keys,
            at=at,
            signer=signer,
            without=without,
            models_at=models_at,
        )
    ledger = Ledger.open(directory, write=True, signer=signer, keys=keys)
    try:
        _refuse_another_run(ledger, settings, initial.layout)
        text = config.to_toml(settings, without=without)
        if (directory / CONFIG).read_text(encoding="utf-8") != text:
            write_durably(directory / CONFIG, text.encode(), mode=PRIVATE_FILE)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _refuse_another_run(ledger: Ledger, settings: Settings, layout: Layout) -> None:
    """A run keeps its promises and its model; whoever wants others starts another run."""
    if ledger.layout != layout:
        raise ConfigError(
            f"{ledger.directory} holds a run of another model ({ledger.layout.difference(layout)}); "
            "allowed: the same model, or another directory for `ledger`"
        )
    if ledger.settings_digest != config.settings_digest(settings):
        changes = _differences(config.load(ledger.directory / CONFIG), settings)
        raise ConfigError(
            f"{ledger.directory} holds a run with other promises "
            f"({'; '.join(changes) or 'its config.toml was changed'}); allowed: the same ones, or another "
            "directory for `ledger`"
        )


def _differences(kept: Settings, given: Settings) -> list[str]:
    old, new = kept.model_dump(), given.model_dump()
    found = []
    for section, values in old.items():
        for key, value in values.items() if isinstance(values, dict) else [("", values)]:
            wanted = new[section][key] if key else new[section]
            name = f"{section}.{key}" if key else section
            if value != wanted and not {section, name} & set(config.CHANGEABLE):
                found.append(f"{name} is {value!r} there and {wanted!r} here")
    return found


def prepare_again(
    ledger: Ledger, settings: Settings, *, task: Task | str | None = None, on_progress: OnProgress = show_nothing
) -> Prepared:
    """Load the data and build network and engine to train a run that exists, exactly as it was trained.

    Args:
        ledger: The run.
        settings: Its settings.
        task: A task, or module:callable that makes one, in place of the one that the settings name.
        on_progress: Hears how far the data is.

    Raises:
        CannotRetrain: What trained it is not to be had here, or is not the same.

    """
    refuse_device(settings)
    loaded = find_again(ledger, settings, task, on_progress=on_progress)
    return Prepared(loaded, _engine_of(settings, loaded), ledger.trainer)


def find_again(
    ledger: Ledger, settings: Settings, task: Task | str | None = None, *, on_progress: OnProgress = show_nothing
) -> LoadedTask:
    """Load the task that a run was trained with.

    Args:
        ledger: The run.
        settings: Its settings.
        task: A task, or module:callable that makes one, in place of the one that the settings name.
        on_progress: Hears how far the data is.

    Raises:
        CannotRetrain: It is not to be had here, or has changed since the run began.

    """
    from disavow.tasks import ImageTask

    refuse_other_trainer(ledger, settings, task)
    try:
        loaded = _load_task(settings, task, on_progress)
    except TaskError as error:
        raise CannotRetrain(f"the task of {ledger.directory} cannot be loaded: {error}") from error
    images = isinstance(loaded.task, ImageTask)
    if images != (ledger.trainer.kind == "settings"):
        trained = "a task, and not built-in images" if images else "built-in images, and not a task"
        raise CannotRetrain(f"{ledger.directory} was trained with {trained}: leave the task away, or give that one")
    if isinstance(loaded.task, ImageTask):
        refuse_other_data(ledger, loaded.task.data)
        refuse_other_layout(ledger, loaded.network)
    else:
        refuse_other_layout(ledger, loaded.network)
        _refuse_other_model(ledger, loaded.network)
    return leave_out_erased(ledger, loaded)


def leave_out_erased(ledger: Ledger, loaded: LoadedTask) -> LoadedTask:
    """Leave the records that were erased out of a run's task, and refuse clients whose data is not what it was.

    What a client holds is compared without the records: the data may still have them, or not. After a record
    request the run knows nothing of it; then it is noted, where the run is open for writing, and must stay so.

    Args:
        ledger: The run.
        loaded: Its task.

    Returns:
        The task with what is left; itself where nothing was left out.

    Raises:
        CannotRetrain: The data of a client is gone or has changed, or nothing is left of it.

    """
    from disavow.tasks import ImageTask

    clients = set(ledger.clients())
    erased = {client: found for client, found in ledger.exclusions().items() if client in clients}
    try:
        left = loaded.without(erased)
    except TaskError as error:
        raise CannotRetrain(f"the task of {ledger.directory} cannot be used: {error}") from error
    # built-in images are bound as a whole, with the records: whoever has them has all of them
    if not isinstance(loaded.task, ImageTask):
        _refuse_other_samples(ledger, left)
    return left


def prepare_without_erased(ledger: Ledger, settings: Settings, prepared: Prepared) -> Prepared:
    """Build the engine of a run again where records were erased since it was built.

    Args:
        ledger: The run.
        settings: Its settings.
        prepared: Its task and its engine, which is closed where another one takes its place.

    Returns:
        What trains from now on.

    Raises:
        CannotRetrain: The data of a client is gone or has changed, or nothing is left of it.

    """
    left = leave_out_erased(ledger, prepared.loaded)
    if left is prepared.loaded:
        return prepared
    prepared.engine.close()
    return replace(prepared, loaded=left, engine=_engine_of(settings, left))


def _refuse_other_model(ledger: Ledger, network: nn.Module) -> None:
    """Refuse a task whose model is not the one that the run began with."""
    from disavow.engines.state import frozen_digest, model_of
    from disavow.ledger.models import digest_of, to_safetensors

    if frozen_digest(network) != ledger.trainer.frozen:
        raise CannotRetrain(f"the frozen parameters of the task's model are not those of {ledger.directory}")
    initial = model_of(network)
    if initial.layout.constants != ledger.layout.constants:
        raise CannotRetrain(f"the whole numbers in the task's model are not those of {ledger.directory}")
    if digest_of(to_safetensors(ledger.layout, initial.vector.numpy())) != ledger.initial_model:
        raise CannotRetrain(
            f"the task builds another initial model than the one of {ledger.directory} (is it an object whose "
            "weights were drawn outside the task? A function that builds it draws them from the run's seed)"
        )


def _refuse_other_samples(ledger: Ledger, left: LoadedTask) -> None:
    """Refuse a task whose clients do not hold what they held, and note what a client holds where nobody has yet."""
    kept, leaving = ledger.data_digests(), _leaving(ledger)
    staying = [client for client in ledger.clients() if client not in leaving]
    for client in staying:
        if client not in left.samples:
            raise CannotRetrain(f"the task has no client {escaped(client)}, who takes part in {ledger.directory}")
        if client in kept and left.digests[client] != kept[client]:
            raise CannotRetrain(
                f"the data of {escaped(client)} has changed since {ledger.directory} began, or since records of it "
                "were erased"
            )
    new = {client: left.digests[client] for client in staying if client not in kept}
    if new and ledger.writable:
        ledger.bind_data(new)


def refuse_other_trainer(ledger: Ledger, settings: Settings, task: Task | str | None = None) -> None:
    """Refuse to train a run that something else trains than its settings, or than a task that is given for it.

    Args:
        ledger: The run.
        settings: Its settings.
        task: What was given to train it.

    Raises:
        CannotRetrain: Flower nodes train it, code of its own, or a task that nobody named.

    """
    refuse_on_nodes(settings, ledger.directory)
    if ledger.trainer.kind == "flower":
        raise CannotRetrain(
            f"{ledger.directory}: its clients are Flower nodes, and its Flower server app alone can train it "
            "(docs/flower.md)"
        )
    if ledger.trainer.kind == "task" and task is None and settings.task.factory is None:
        raise CannotRetrain(_UNNAMED_TASK)
    if ledger.trainer.kind == "python":
        raise CannotRetrain(
            f"{ledger.directory} was trained by code of its own, which its config.toml does not describe: open it "
            'from Python with the engine that trained it (docs/erasure.md, "Runs of your own code")'
        )


def refuse_other_data(ledger: Ledger, data: FederatedData) -> None:
    """Refuse to train a run on other data than its clients hold.

    Args:
        ledger: The run.
        data: The data at hand.

    Raises:
        CannotRetrain: It is not the same.

    """
    refuse_missing_data(ledger, data)
    if data.held != ledger.trainer.data:
        raise CannotRetrain(
            f"the data at hand is not what the clients of {ledger.directory} hold (SHA-256 {data.held[:12]}, not "
            f"{(ledger.trainer.data or 'unknown')[:12]}): get the same data again"
        )


def refuse_missing_data(ledger: Ledger, data: FederatedData) -> None:
    """Refuse to train a run on data that lacks a client who stays in it.

    Args:
        ledger: The run.
        data: The data at hand.

    Raises:
        CannotRetrain: A client is lacking.

    """
    leaving = _leaving(ledger)
    lacking = [client for client in ledger.clients() if client not in data.parts and client not in leaving]
    if lacking:
        raise CannotRetrain(
            f"the data at hand holds nothing of {escaped(lacking[0])}"
            f"{f' and {len(lacking) - 1} more' if len(lacking) > 1 else ''}, who take part in {ledger.directory}"
        )


def _leaving(ledger: Ledger) -> set[str | None]:
    """Clients who wait to be forgotten: their data may be gone already."""
    return {request.client for request in ledger.requests() if request.state is RequestState.WAITING}


def refuse_other_layout(ledger: Ledger, network: nn.Module) -> None:
    """Refuse to train a run with a network that its models do not fit."""
    from disavow.engines.state import layout_of

    layout = layout_of(network)
    if layout != ledger.layout:
        raise CannotRetrain(
            f"the models of {ledger.directory} are not of the network at hand: {ledger.layout.difference(layout)}"
        )


def settings_of(directory: Path) -> Settings:
    """Read the settings that a run was started with.

    Args:
        directory: Where the run lies.

    Returns:
        Those of its config.toml.

    Raises:
        RunMissing: There is no run.
        RunError: The run has lost its config.toml.
        RunUnsafe: The directory holds a link or a special file.

    """
    path = directory / CONFIG
    refuse_unsafe(directory)
    if not path.exists():
        if database.exists(directory):
            raise RunError(f"{path} is missing: put it back, the run cannot be used without its settings")
        raise RunMissing(f"{directory} holds no run; `disavow train CONFIG.toml --run {directory}` starts one")
    return config.load(path)


def refuse_changed(ledger: Ledger, settings: Settings) -> None:
    """Refuse settings that are not those the run was started with.

    Args:
        ledger: The run.
        settings: What its config.toml says now.

    Raises:
        ConfigError: Something was changed that a run keeps.

    """
    if ledger.settings_digest and ledger.settings_digest != config.settings_digest(settings):
        raise ConfigError(
            f"{ledger.directory / CONFIG} was changed since the run was started; restore it "
            f"(only {', '.join(config.CHANGEABLE)} may be changed)"
        )


def on_nodes(settings: Settings) -> bool:
    """Tell whether the clients are Flower nodes, so that only the run's server app can train."""
    return settings.engine.name == "flower"


def refuse_device(settings: Settings) -> None:
    """Refuse a GPU that is asked for and not there, before data is loaded or anything is written."""
    if settings.engine.device == "cuda":
        from disavow.engines.factory import device_of

        device_of(settings.engine)


def refuse_on_nodes(settings: Settings, directory: Path) -> None:
    """Refuse to train a run whose clients are Flower nodes: nothing here can.

    Args:
        settings: Its settings.
        directory: Where it lies, for the error.

    Raises:
        ConfigError: They are.

    """
    if on_nodes(settings):
        raise ConfigError(
            f'{directory}: engine.name is "flower": its clients are Flower nodes, and its Flower server app starts '
            "it, goes on with it and retrains (docs/flower.md)"
        )


def round_options(
    settings: Settings, clock: Clock = now, *, participation: SecretOrder | None = None
) -> RoundOptions:
    """How these settings run rounds. `participation` comes from `participation_of`."""
    return RoundOptions(
        seed=settings.seed,
        fraction=settings.training.fraction,
        epochs=settings.training.epochs,
        secrets=Secrets(settings.seed if settings.draws == "seeded" else None),
        clock=clock,
        budget=budget_of(settings),
        retention=None if settings.ledger.retention == "all" else settings.ledger.retention,
        keep_every=settings.mechanism.interval if MECHANISMS[settings.mechanism.name].keeps_updates else None,
        compress=settings.mechanism.compress,
        at_least=settings.clustering.k if on_nodes(settings) else 1,
        participation=participation,
        approval=settings.requests.approval,
    )


def budget_of(settings: Settings) -> Budget | None:
    """Read what settings allow a run to spend.

    Args:
        settings: The settings of the run.

    Returns:
        The privacy budget; None where they set none.

    """
    privacy = settings.privacy
    if privacy.epsilon is None:
        return None
    from disavow.privacy.budget import Budget  # loads scipy, which a run without a budget does not need

    return Budget(privacy.epsilon, privacy.delta)


def _bound_to_task(settings: Settings, loaded: LoadedTask) -> Settings:
    """The settings that a run with a task keeps: how many clients it has, and the full path of its module."""
    path = settings.task.path
    found: dict[str, Any] = {
        "clients": len(loaded.samples),
        "path": str(Path(path).expanduser().absolute()) if path else None,
    }
    if settings.task.factory is not None and loaded.task.kept_options is not None:
        found["options"] = dict(loaded.task.kept_options)
    bound = settings.model_copy(update={"task": settings.task.model_copy(update=found)})
    return config.from_values(bound.model_dump(exclude_unset=False), source="task")


def _tracked_anywhere(settings: Settings) -> Settings:
    """The settings with full paths of what is tracked to: an erasure may be asked for in another folder."""
    tracking, full = settings.tracking, {}
    if tracking.tensorboard is not None:
        full["tensorboard"] = str(Path(tracking.tensorboard).expanduser().absolute())
    scheme, _, database_file = (tracking.mlflow or "").partition("sqlite:///")
    if not scheme and database_file:
        full["mlflow"] = f"sqlite:///{Path(database_file).expanduser().absolute()}"
    return settings.model_copy(update={"tracking": tracking.model_copy(update=full)})


def _bound_to(settings: Settings, data: FederatedData) -> Settings:
    """The settings that a run keeps: with the full path of its data, and with what tells it from other data."""
    if data.digest is None:
        return settings
    folder = settings.data.dir and str(Path(settings.data.dir).expanduser().absolute())
    return settings.model_copy(
        update={"data": settings.data.model_copy(update={"dir": folder, "digest": data.digest})}
    )


def _engine_of(settings: Settings, loaded: LoadedTask) -> Engine:
    from disavow.engines import build as build_engine
    from disavow.engines.task_engine import build_for_task
    from disavow.engines.workload import image_workload
    from disavow.tasks import ImageTask

    if isinstance(loaded.task, ImageTask):
        workload = image_workload(loaded.task, loaded.network, settings.training, settings.seed)
        return build_engine(workload, settings.engine)
    return build_for_task(loaded, settings.training, settings.seed, settings.engine)
