"""The settings of a run: frozen, read from TOML once, at the edge.

Every key, its default and its meaning is declared here and nowhere else: `disavow init`,
`docs/configuration.md` and the error messages are made from these declarations.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from disavow.domain import Policy
from disavow.errors import ConfigError

CHANGEABLE = ("rounds", "training", "requests", "engine", "data.dir", "ledger.retention")
"""Settings that may be edited in a run's config.toml; the others are its data, its model and its promises."""

LATER = ("mechanism", "privacy", "data.dir", "data.digest", "data.labels_per_client", "ledger")
"""Settings younger than the first runs: left out of a run's digest while they have their defaults."""

PROJECTION_LIMIT = 2000
"""Above this many participants, a random projection decides who is grouped with whom."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class DataSettings(_Section):
    """What the clients hold."""

    name: Literal["digits", "mnist", "fashion-mnist", "cifar10", "celeba"] = Field(
        "digits",
        description="the data set; digits: 1,797 real handwritten digits of 8x8, embedded; the others need the "
        "extra data and come from data.dir or the Hugging Face hub (docs/data.md)",
    )
    clients: Count = Field(20, description="how many clients the training data is partitioned over")
    partition: Literal["iid", "quantity", "dirichlet", "shards", "pathological"] = Field(
        "iid",
        description="iid; quantity: unequal sizes; dirichlet: unequal sizes and labels; shards: a few pieces of "
        "the samples sorted by label; pathological: a few labels each",
    )
    alpha: Annotated[float, Field(gt=0, le=1_000_000)] = Field(
        0.5, description="concentration of quantity and dirichlet partitions; smaller is more unequal"
    )
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2,
        description="share of digits held out to measure accuracy; it plays no part in the other data sets, which "
        "have official test images",
    )
    dir: str | None = Field(
        None,
        description="folder with the data sets as parquet files, such as mnist/train.parquet; not set: the folder "
        "that DISAVOW_DATA_DIR names, or else the Hugging Face hub. A run keeps the full path",
    )
    labels_per_client: Count = Field(
        2, description="labels that a client holds of a pathological partition; pieces of a shards partition"
    )
    digest: str | None = Field(
        None,
        description="which files the data is from, as SHA-256; a run sets it when it starts and refuses others "
        "from then on (not for digits)",
    )


class ModelSettings(_Section):
    """What they train."""

    name: Literal["convnet", "lenet5", "resnet-mini"] = Field("lenet5", description="the network")


class TrainingSettings(_Section):
    """How each client trains locally."""

    epochs: Count = Field(3, description="local epochs in each round")
    batch_size: Count = Field(8, description="samples in a batch; the last one may be shorter")
    learning_rate: Positive = Field(0.1, description="step size of SGD")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="momentum of SGD")
    weight_decay: NotNegative = Field(0.0, description="weight decay of SGD")
    fraction: Fraction = Field(1.0, description="share of the clients that takes part in each round")


class ClusteringSettings(_Section):
    """How the clients of a round are grouped."""

    k: Count = Field(
        4,
        description="every cluster has at least k and fewer than 2k members; 1: everybody is a cluster, which is "
        "plain federated averaging, and nobody is deniable",
    )
    method: Literal["mdav", "constrained-kmeans", "fixed"] = Field(
        "mdav", description="mdav; constrained-kmeans (needs the extra kmeans); fixed: by a hash of ids"
    )
    sticky: bool = Field(
        True, description="keep the last round's clusters, repair only what leavers broke (not with fixed)"
    )
    metric: Literal["l2", "cosine", "published"] = Field(
        "l2",
        description="distance between updates that decides who is grouped; published: for comparison only",
    )


class DeniabilitySettings(_Section):
    """When a request can be answered at once."""

    x: Count = Field(2, description="survivors a cluster must keep for a leaver to be deniable; at most k")
    criterion: Literal["cluster", "neighbourhood"] = Field(
        "cluster",
        description="count survivors in the leaver's clusters, or in the neighbourhood of each slot",
    )
    delta: Positive | Literal["adaptive"] = Field(
        "adaptive",
        description="how near counts as alike: a distance, or adaptive (each round's largest spread)",
    )


class NoiseSettings(_Section):
    """How the representatives are perturbed."""

    mode: Literal["paper", "calibrated", "none"] = Field(
        "paper", description="paper: scaled by each cluster's spread; calibrated: clip, then fixed tau; none"
    )
    distribution: Literal["gaussian", "laplace"] = Field("gaussian", description="of the noise in mode paper")
    sigma: NotNegative = Field(
        0.02,
        description="mode paper: standard deviation per coordinate, as a multiple of the cluster's spread",
    )
    clip: Positive | None = Field(None, description="mode calibrated: largest L2 norm of an update")
    tau: Positive | None = Field(
        None, description="mode calibrated: standard deviation per coordinate, added once to the aggregate"
    )


class PrivacySettings(_Section):
    """What the run may spend, and at which delta its account is taken."""

    epsilon: Positive | None = Field(
        None,
        description="privacy budget: training stops before the round that would exceed it; not set: no budget. "
        "Needs noise.mode calibrated; held to the sampled claim with fixed clusters, else to the unconditional one",
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(1e-5, description="the delta of every figure")


class RequestSettings(_Section):
    """A stream of erasure requests, for experiments."""

    rate: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="probability that after a round one client asks to be forgotten; seeded by seed"
    )


class MechanismSettings(_Section):
    """How a model is rebuilt after a rollback."""

    name: Literal["retrain", "retrain-from-scratch", "federaser"] = Field(
        "retrain",
        description="retrain: exactly, from the first broken round; retrain-from-scratch: exactly, from round 1; "
        "federaser: approximately, from updates that the run keeps",
    )
    calibration: Fraction = Field(
        0.5,
        description="federaser: local epochs of a calibration, as a share of training.epochs, rounded up",
    )
    interval: Count = Field(2, description="federaser: updates are kept every so many rounds, from round 1 on")


class EngineSettings(_Section):
    """What runs the local training."""

    name: Literal["auto", "sequential", "vectorised", "flower"] = Field(
        "auto",
        description="auto: the fastest here; sequential: one client after the other, the reference; vectorised: "
        "all clients at once on a GPU, all cores on a CPU; flower: on Flower nodes, set by runs that a Flower "
        "server app trains (docs/flower.md)",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: a GPU where there is one")
    precision: Literal["float32", "tf32", "bf16"] = Field(
        "float32", description="tf32 and bf16 are faster on a GPU, and further from the reference"
    )
    compile: Literal["auto", "never"] = Field(
        "auto", description="auto: with compiled code where it pays and a compiler is at hand"
    )


class LedgerSettings(_Section):
    """What the run keeps on disk."""

    retention: Count | Literal["all"] = Field(
        "all",
        description="bytes for the models of standing rounds; what does not fit is thinned, and a rollback then "
        "goes to the nearest earlier model that is kept. However small: the initial model and the newest stay, and "
        "what an unfinished erasure has undone comes on top until it is rebuilt",
    )


class Settings(_Section):
    """All settings of a run."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        1, description="every training draw (data split, initial model, batches) derives from it"
    )
    rounds: Count = Field(20, description="rounds to train")
    draws: Literal["fresh", "seeded"] = Field(
        "fresh",
        description="secret draws (representatives, noise): fresh from the operating system and never kept; "
        "seeded: repeatable, so its privacy claims are void",
    )
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    clustering: ClusteringSettings = ClusteringSettings()
    deniability: DeniabilitySettings = DeniabilitySettings()
    noise: NoiseSettings = NoiseSettings()
    requests: RequestSettings = RequestSettings()
    mechanism: MechanismSettings = MechanismSettings()
    engine: EngineSettings = EngineSettings()
    privacy: PrivacySettings = PrivacySettings()
    ledger: LedgerSettings = LedgerSettings()

    @property
    def participants(self) -> int:
        """How many clients take part in a round while nobody has left."""
        return participants_of(self.data.clients, self.training.fraction)

    @property
    def policy(self) -> Policy:
        """The promises these settings make."""
        return Policy(
            k=self.clustering.k,
            x=self.deniability.x,
            criterion=self.deniability.criterion,
            delta=None if self.deniability.delta == "adaptive" else float(self.deniability.delta),
            clustering=self.clustering.method,
            sticky=self.clustering.sticky and self.clustering.method != "fixed",
            metric=self.clustering.metric,
            noise=self.noise.mode,
            distribution=self.noise.distribution,
            sigma=self.noise.sigma,
            clip=self.noise.clip,
            tau=self.noise.tau,
            draws=self.draws,
        )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        k, participants = self.clustering.k, self.participants
        if k > participants and self.engine.name != "flower":  # who takes part there, nobody knows beforehand
            raise ValueError(
                f"clustering.k is {k}; allowed: 1 to {participants}, the participants of a round "
                f"(data.clients {self.data.clients}, training.fraction {self.training.fraction:g})"
            )
        if self.deniability.x > k:
            raise ValueError(f"deniability.x is {self.deniability.x}; allowed: 1 to clustering.k, which is {k}")
        if self.clustering.metric == "published" and participants > PROJECTION_LIMIT:
            raise ValueError(
                f'clustering.metric is "published" with {participants} participants; allowed: up to '
                f"{PROJECTION_LIMIT} (it cannot be projected), or l2, cosine"
            )
        elsewhere = self.engine.device == "cuda" or self.engine.precision != "float32"
        if self.engine.name == "sequential" and elsewhere:
            raise ValueError('engine.name is "sequential", which runs on the CPU in float32; allowed: "vectorised"')
        if self.mechanism.name == "federaser" and self.ledger.retention != "all":
            raise ValueError(
                f'ledger.retention is {self.ledger.retention} with mechanism.name "federaser"; allowed: "all" '
                "(going back further than the broken round, it would only rebuild what was undone)"
            )
        if self.privacy.epsilon is not None and self.noise.mode != "calibrated":
            raise ValueError(
                f'privacy.epsilon is {self.privacy.epsilon:g} with noise.mode "{self.noise.mode}"; allowed: '
                'noise.mode "calibrated", the only one with a figure that a budget could be held to'
            )
        if self.noise.mode == "calibrated":
            self._check_calibrated()
        return self

    def _check_calibrated(self) -> None:
        """The mode with guarantees: its noise is fixed beforehand, and nothing is released without it."""
        for key in ("clip", "tau"):
            if getattr(self.noise, key) is None:
                raise ValueError(
                    f'noise.{key} is not set; noise.mode "calibrated" needs a number above 0{self._how_to(key)}'
                )
        if self.mechanism.name == "federaser":
            raise ValueError(
                'mechanism.name is "federaser" with noise.mode "calibrated"; allowed: "retrain", '
                '"retrain-from-scratch" (federaser releases rounds without noise, which no account covers)'
            )

    def _how_to(self, key: str) -> str:
        """How to find the noise for a budget."""
        if key != "tau" or self.privacy.epsilon is None:
            return ""
        return (
            f": `disavow account --epsilon {self.privacy.epsilon:g} --delta {self.privacy.delta:g} --rounds "
            f"{self.rounds} --clients {self.participants} --k {self.clustering.k} --clip {self.noise.clip:g}` "
            "finds it"
        )


def settings_digest(settings: Settings) -> str:
    """SHA-256 over the settings that a run keeps from its start: all but `CHANGEABLE`.

    `LATER` settings count only where they say something, so that the digests of older runs stay what they were.
    """
    fixed, defaults = settings, Settings()
    for name in CHANGEABLE:
        fixed = _replaced(fixed, name, _value(defaults, name))
    silent = [name for name in LATER if _value(fixed, name) == _value(defaults, name)]
    return hashlib.sha256(to_toml(fixed, comments=False, without=silent).encode()).hexdigest()


def _value(settings: Settings, name: str) -> Any:
    """The value of a section, or of a key such as `data.dir`."""
    section, _, key = name.partition(".")
    value = getattr(settings, section)
    return getattr(value, key) if key else value


def _replaced(settings: Settings, name: str, value: Any) -> Settings:
    section, _, key = name.partition(".")
    if key:
        value = getattr(settings, section).model_copy(update={key: value})
    return settings.model_copy(update={section: value})


def participants_of(clients: int, fraction: float, at_least: int = 1) -> int:
    """How many of `clients` take part in a round: the fraction, rounded, but so many at least if there are."""
    return max(1, round(clients * fraction), min(clients, at_least))


def load(path: Path) -> Settings:
    """Read settings from a TOML file. Whatever cannot be used is a `ConfigError` that names the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; `disavow init {path}` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return parse(text, source=str(path))


def parse(text: str, *, source: str) -> Settings:
    """Settings from TOML text; `source` names it in errors."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not TOML: {error}") from None
    return from_values(values, source=source)


def from_values(values: Mapping[str, Any], *, source: str) -> Settings:
    """Settings from nested values, checked; `source` names them in errors."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        lines = dict.fromkeys(_one_line(detail) for detail in error.errors(include_url=False))
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines)) from None


def _one_line(detail: ErrorDetails) -> str:
    """One complaint in the form *key, what it was, what is allowed*."""
    if not detail["loc"]:
        return str(detail["ctx"]["error"]) if "ctx" in detail else detail["msg"]
    # A union adds the name of its member as a further step; the key ends before it.
    path = [str(step) for step in detail["loc"]][:2]
    section, field = _find(path)
    key = ".".join(path)
    if detail["type"] == "extra_forbidden" or field is None:
        return f"{key} is not a setting; allowed: {', '.join(section.model_fields)}"
    return f"{key} is {json.dumps(detail['input'], default=str)}; allowed: {allowed(field)}"


def _find(path: list[str]) -> tuple[type[BaseModel], FieldInfo | None]:
    section: type[BaseModel] = Settings
    field = section.model_fields.get(path[0])
    if len(path) > 1 and field is not None and isinstance(field.annotation, type):
        section = field.annotation
        field = section.model_fields.get(path[1])
    return section, field


def allowed(field: FieldInfo) -> str:
    """What a setting may be, in words."""
    return _allowed(field.annotation, field.metadata)


def _allowed(kind: Any, metadata: list[Any]) -> str:
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        flat = [m for item in more for m in (item.metadata if isinstance(item, FieldInfo) else [item])]
        return _allowed(inner, flat)
    if get_origin(kind) is Literal:
        return ", ".join(json.dumps(value) for value in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"a table with {', '.join(kind.model_fields)}"
    if kind in (int, float, bool, str):
        name = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]
        return " ".join([name, *_bounds(metadata)])
    return " or ".join(_allowed(part, metadata) for part in get_args(kind) if part is not type(None))


def _bounds(metadata: list[Any]) -> Iterator[str]:
    words = {"gt": "above", "ge": "of at least", "lt": "below", "le": "of at most"}
    found = [(w, getattr(m, key)) for key, w in words.items() for m in metadata if hasattr(m, key)]
    if found:
        yield " and ".join(f"{word} {bound:,}" for word, bound in found)


def sections() -> Iterator[tuple[str, str, dict[str, FieldInfo]]]:
    """Every section: its name ("" for the top), what it is about, and its fields."""
    top = {name: field for name, field in Settings.model_fields.items() if not _is_section(field)}
    yield "", "", top
    for name, field in Settings.model_fields.items():
        if _is_section(field):
            section = field.annotation
            yield name, (section.__doc__ or "").strip(), section.model_fields  # type: ignore[union-attr]


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def to_toml(settings: Settings, *, comments: bool = True, without: Collection[str] = ()) -> str:
    """Settings as TOML that reads back as the same settings, with every key and what it means.

    Sections in `without` are left out, and keys such as `data.dir`.
    """
    lines = ["# Settings of a disavow run. Every key is shown; a key left out has its default."] * comments
    for name, about, fields in sections():
        if name in without:
            continue
        owner: BaseModel = getattr(settings, name) if name else settings
        if name:
            lines += ["", f"[{name}]" + f"  # {about}" * comments]
        for key, field in fields.items():
            if f"{name}.{key}" in without:
                continue
            value = getattr(owner, key)
            if comments:
                lines.append(f"# {field.description} ({allowed(field)})")
            lines.append(f"{key} = {_toml(value)}" if value is not None else f"# {key} = ")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, str):
        # TOML escapes as JSON does, but for characters beyond 16 bits and for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value) if isinstance(value, bool) else repr(value)
