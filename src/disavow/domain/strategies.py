"""Strategies by name: what a run does in one of several ways, and what the rest of disavow must know of each.

A strategy is a class with a name. What others must know of it are attributes that it declares; nothing compares
names outside `proof`, whose format the names are. Those of disavow are listed below by where they are, one line
each, and imported when they are first asked for: naming one in a settings file loads neither torch nor a database.
Others are added by `register`, or by an installed package with an entry point of the group `disavow.strategies`
(docs/extending.md).
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from disavow.errors import NO_ROOM, REFUSED, ConfigError, DisavowError, StrategyError

if TYPE_CHECKING:
    from disavow.domain.policy import Policy

PLUGINS = "disavow.strategies"
"""The group of entry points whose modules register strategies when they are imported."""

NOISE_KEYS = ("sigma", "clip", "tau")
"""What a noise can need of `[noise]`."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Strategy:
    """One of several ways to do something. Subclasses are constructed without arguments.

    Attributes:
        name: What settings, ledgers and reports call it.
        summary: What the settings file says about it, beginning with its name.

    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    registry: ClassVar[Registry[Any]]

    @classmethod
    def check(cls) -> None:
        """Refuse a declaration that cannot be registered.

        Raises:
            ConfigError: The declaration contradicts what ledgers or proofs rely on.

        """

    @classmethod
    def unusable(cls, method: str, arguments: tuple[Any, ...], result: Any) -> str:
        """Say why what a registered strategy returned cannot be used; those of disavow are not asked.

        Args:
            method: The method that returned it.
            arguments: What it was called with, by position.
            result: What it returned.

        Returns:
            What is wrong, and what is allowed; "" where nothing is.

        """
        del method, arguments, result
        return ""

    def __getstate__(self) -> dict[str, Any]:
        """Leave guards out of what is sent to another process: they are put on again there."""
        return {name: value for name, value in vars(self).items() if not hasattr(value, "__wrapped__")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        if not _of_disavow(type(self)):
            _guarded(self, self.registry.setting)


S = TypeVar("S", bound=Strategy)
C = TypeVar("C", bound=type[Strategy])


class Registry(Mapping[str, S], Generic[S]):
    """The strategies of one kind, by name: those of disavow, then those that were registered.

    Args:
        setting: The key that chooses one of them, for messages.
        own: Where those of disavow are, as `module:Class`, each with its summary.

    """

    def __init__(self, setting: str, own: Mapping[str, tuple[str, str]]) -> None:
        self.setting = setting
        self._own = own
        self._loaded: dict[str, S] = {}

    def add(self, strategy: type[S]) -> None:
        """Add a class under its name.

        Args:
            strategy: The class.

        Raises:
            ConfigError: It has no name, another class has that name, or its declaration cannot be.

        """
        name, place = getattr(strategy, "name", ""), ".".join(_place(strategy))
        if not name or not isinstance(name, str):
            raise ConfigError(f"{place} has no name, under which it could be registered")
        # what no setting names may have spaces: it is only printed
        if not _NAME.fullmatch(name if "." in self.setting else name.replace(" ", "-")):
            raise ConfigError(
                f"{place} has the name {name[:80]!r}; allowed: 1 to 64 letters, digits, dots, hyphens, underscores"
            )
        taken = self._loaded.get(name)
        same = taken is not None and _place(type(taken)) == _place(strategy)
        if name in self._own or (taken is not None and not same):
            raise ConfigError(f"{self.setting} {name!r} is registered already")
        missing = sorted(getattr(strategy, "__abstractmethods__", ()))
        if missing:
            raise ConfigError(f"{self.setting} {name!r} ({place}) lacks {', '.join(missing)}")
        strategy.check()
        try:
            made = strategy()
        except TypeError as error:
            raise ConfigError(
                f"{self.setting} {name!r} ({place}) must be constructed without arguments: {error}"
            ) from error
        self._loaded[name] = _guarded(made, self.setting)

    def added(self, name: str) -> bool:
        """Return whether somebody else than disavow registered this name.

        Args:
            name: The name of a strategy.

        """
        return name not in self._own and name in self

    def summary(self, name: str) -> str:
        """Return what the settings file says about a strategy.

        Args:
            name: The name of a strategy.

        """
        return self._own[name][1] if name in self._own else self[name].summary or name

    def complete(self) -> list[S]:
        """Return all of them, where leaving one out would change a result.

        Raises:
            ConfigError: An installed package cannot be imported, so nobody knows what it registers.

        """
        if broken := broken_plugins():
            raise ConfigError("; ".join(broken) + "; mend or remove it, because every registered one counts here")
        return list(self.values())

    def __getitem__(self, name: str) -> S:
        if name not in self:
            raise ConfigError(
                f"{self.setting} is {name!r}, which is not registered here; allowed: {', '.join(self)}, or what an "
                + "; ".join(["installed package registers (docs/extending.md)", *broken_plugins()])
            )
        if name not in self._loaded:
            module, _, attribute = self._own[name][0].partition(":")
            self._loaded[name] = getattr(import_module(module), attribute)()
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        if name in self._own or name in self._loaded:
            return True
        broken_plugins()
        return name in self._loaded

    def __iter__(self) -> Iterator[str]:
        broken_plugins()
        return iter([*self._own, *(name for name in self._loaded if name not in self._own)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def register(strategy: C) -> C:
    """Register a strategy, as a decorator of its class; before settings are read that name it.

    Args:
        strategy: A subclass of `Clustering`, `Noise`, `Distribution`, `Criterion`, `Mechanism` or `Attacker`.

    Returns:
        The same class.

    Raises:
        ConfigError: It is no such class, it has no name, its name is taken, or its declaration cannot be.

    """
    if not inspect.isclass(strategy) or not hasattr(strategy, "registry") or not issubclass(strategy, Strategy):
        raise ConfigError(
            f"{strategy!r} cannot be registered; allowed: a class derived from disavow.Clustering, Noise, "
            "Distribution, Criterion, Mechanism or Attacker"
        )
    strategy.registry.add(strategy)
    return strategy


def _place(strategy: type) -> tuple[str, str]:
    return strategy.__module__, strategy.__qualname__


def _of_disavow(thing: Any) -> bool:
    return str(thing.__module__).partition(".")[0] == "disavow"


def _guarded(strategy: S, setting: str) -> S:
    """Guard the methods that a registered strategy overrides: its mistakes are not defects of disavow."""
    kind, label = type(strategy), f'{setting} "{strategy.name}" ({".".join(_place(type(strategy)))})'
    ours = {name for base in kind.__mro__ if _of_disavow(base) for name in vars(base) if name[0] != "_"}
    for name in ours - {"check", "unusable"}:
        written = getattr(kind, name)
        if callable(written) and not isinstance(written, type) and not _of_disavow(written):
            vars(strategy).setdefault(name, _guard(getattr(strategy, name), label, kind, setting))
    return strategy


def _guard(method: Callable[..., Any], label: str, kind: type[Strategy], setting: str) -> Callable[..., Any]:
    @wraps(method)
    def guarded(*arguments: Any, **named: Any) -> Any:
        try:
            result = method(*arguments, **named)
            if isinstance(result, Iterator):
                result = list(result)  # here, where an error in a generator is caught too
            wrong = kind.unusable(method.__name__, arguments, result)
        except DisavowError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM | REFUSED:
                raise
            line = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            raise StrategyError(
                f"{label}: {method.__name__} failed with {what} ({line.filename}, line {line.lineno})"
            ) from error
        if wrong:
            raise StrategyError(f"{label}: {method.__name__} returned {wrong}")
        return _guarded(result, setting) if isinstance(result, Strategy) else result

    return guarded


@cache
def broken_plugins() -> tuple[str, ...]:
    """Import what installed packages register, once; strategies of disavow are found without.

    Returns:
        A sentence about each entry point that cannot be imported.

    """
    from importlib.metadata import entry_points  # loads the parser of e-mails, for names that are not ours alone

    broken = []
    for point in entry_points(group=PLUGINS):
        try:
            point.load()
        except Exception as error:
            package = f"the installed package {point.dist.name}" if point.dist else "an installed package"
            why = " ".join(f"{type(error).__name__}: {error}".split())
            broken.append(f"{package} cannot be imported, entry point {point.name} = {point.value}: {why}")
    return tuple(broken)


class ClusteringSpec(Strategy):
    """What others must know of a clustering method. The method itself: `disavow.Clustering`.

    Attributes:
        anchored: Clusters are settled before the first round and never move: who leaves leaves a gap.
        sticky: Clusters of the round before can be kept and repaired (`clustering.sticky`).

    """

    anchored: ClassVar[bool] = False
    sticky: ClassVar[bool] = True

    @classmethod
    def check(cls) -> None:
        """Refuse anchors under another name than `fixed`: verifiers allow gaps in its clusters alone."""
        if cls.anchored:
            raise ConfigError(f"{cls.name!r} is anchored; allowed in proofs: fixed alone")

    def require(self) -> None:
        """Refuse to start a run with it where something that it needs is not installed.

        Raises:
            MissingExtra: Something is missing.

        """

    def sizes(self, k: int) -> tuple[int, int | None]:
        """Return the fewest and the most members of a cluster; None: no limit.

        Verifiers refuse fewer than k and more than 2k - 1, except in anchored clusters.

        Args:
            k: The least members of a cluster by the policy.

        """
        return k, 2 * k - 1

    def fewest_participants(self, k: int) -> int:
        """Return how many must take part in a round.

        Args:
            k: The least members of a cluster by the policy.

        """
        return k


class NoiseSpec(Strategy):
    """What others must know of a noise. The noise itself: `disavow.Noise`.

    Attributes:
        clips: Updates are shortened to the L2 norm `noise.clip` before anything else.
        needs: Keys of `[noise]` that must be set.
        no_figure: Why rounds with it have no differential-privacy figure; "": they have that of `calibrated`.
        may_average: Running statistics may be means over whole clusters (`noise.statistics`).

    """

    clips: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()
    no_figure: ClassVar[str] = "nobody has declared a figure for it"
    may_average: ClassVar[bool] = True

    @classmethod
    def check(cls) -> None:
        """Refuse to need what is no setting, and a figure where updates are not clipped, or averaged."""
        super().check()
        if not isinstance(cls.needs, tuple) or not {*cls.needs} <= {*NOISE_KEYS}:
            raise ConfigError(
                f"noise.mode {cls.name!r} has needs = {cls.needs!r}; allowed: a tuple of some of {NOISE_KEYS}"
            )
        if not cls.no_figure and not (cls.clips and {"clip", "tau"} <= {*cls.needs} and not cls.may_average):
            raise ConfigError(
                f'noise.mode {cls.name!r} has no_figure = ""; allowed with clips = True, may_average = False '
                'and needs = ("clip", "tau") alone: the account counts on clipped updates and one Gaussian of tau'
            )

    @property
    def accounted(self) -> bool:
        """Whether the released models have a differential-privacy figure."""
        return not self.no_figure

    def tau(self, policy: Policy, clusters: Sequence[tuple[float, float]]) -> float:
        """Return the standard deviation τ of the noise on each number of the aggregate.

        Args:
            policy: The promises of the run.
            clusters: Weight and spread of each cluster.

        """
        del policy, clusters
        return 0.0

    def distribution(self, policy: Policy) -> str:
        """Return the name of the distribution that it draws from.

        Args:
            policy: The promises of the run.

        """
        del policy
        return "gaussian"

    def describe(self, policy: Policy) -> str:
        """Return what `disavow status` says about it.

        Args:
            policy: The promises of the run.

        """
        del policy
        return self.name


class DistributionSpec(Strategy):
    """What others must know of a distribution with mean 0 and standard deviation 1: `disavow.Distribution`.

    Attributes:
        variance_of_squares: Variance of the squared difference between two numbers drawn from it.

    """

    variance_of_squares: ClassVar[float]

    @classmethod
    def check(cls) -> None:
        """Refuse one without its variance."""
        if not isinstance(getattr(cls, "variance_of_squares", None), int | float):
            raise ConfigError(f"noise.distribution {cls.name!r} lacks the number variance_of_squares")


class MechanismSpec(Strategy):
    """What others must know of a mechanism. The mechanism itself: `disavow.Mechanism`.

    Attributes:
        exact: Rounds are run again as rounds, so that the result is that of a run which the leavers never joined.
            Where it is not, rounds are rebuilt without clusters and noise, and no account covers them.
        keeps_updates: The run keeps its clients' updates while it trains, every `mechanism.interval` rounds.
        needs_every_survivor: A round cannot be rebuilt while a survivor is away.

    """

    exact: ClassVar[bool] = True
    keeps_updates: ClassVar[bool] = False
    needs_every_survivor: ClassVar[bool] = False


CLUSTERINGS = Registry[ClusteringSpec](
    "clustering.method",
    {
        "mdav": ("disavow.rounds.clustering.mdav:Mdav", "mdav"),
        "constrained-kmeans": (
            "disavow.rounds.clustering.kmeans:ConstrainedKMeans",
            "constrained-kmeans (needs the extra kmeans)",
        ),
        "fixed": ("disavow.rounds.clustering.fixed:Fixed", "fixed: by a hash of ids, anchored"),
    },
)

NOISES = Registry[NoiseSpec](
    "noise.mode",
    {
        "paper": ("disavow.rounds.noise:PaperNoise", "paper: scaled by each cluster's spread"),
        "sensitivity": (
            "disavow.rounds.noise:SensitivityNoise",
            "sensitivity: one on the aggregate, scaled by the most that one exchanged representative moves it",
        ),
        "calibrated": ("disavow.rounds.noise:CalibratedNoise", "calibrated: clip, then fixed tau"),
        "none": ("disavow.rounds.noise:NoNoise", "none"),
    },
)

DISTRIBUTIONS = Registry[DistributionSpec](
    "noise.distribution",
    {
        "gaussian": ("disavow.rounds.noise:Gaussian", "gaussian"),
        "laplace": ("disavow.rounds.noise:Laplace", "laplace"),
    },
)

MECHANISMS = Registry[MechanismSpec](
    "mechanism.name",
    {
        "retrain": (
            "disavow.erasure.mechanisms.retrain:Retrain",
            "retrain: exactly, from the first broken round",
        ),
        "retrain-from-scratch": (
            "disavow.erasure.mechanisms.retrain:RetrainFromScratch",
            "retrain-from-scratch: exactly, from round 1",
        ),
        "federaser": (
            "disavow.erasure.mechanisms.federaser:FedEraser",
            "federaser: approximately, from updates that the run keeps",
        ),
    },
)

ClusteringSpec.registry = CLUSTERINGS
NoiseSpec.registry = NOISES
DistributionSpec.registry = DISTRIBUTIONS
MechanismSpec.registry = MECHANISMS
