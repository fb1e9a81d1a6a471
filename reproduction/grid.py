"""Which runs an experiment is made of: a grid of rows, networks, methods, k, x and seeds, from a TOML file.

For example::

    rows = ["MNIST-iid"]
    networks = ["lenet5"]
    methods = ["fedavg", "sticky"]
    k = [4, 8]
    x = [2, 3]
    seeds = [1, 2]

    [settings]          # of every run, as in a run's config.toml
    rounds = 50

`study = "name"` keeps its results apart from those of the paper's tables. With tables `[variants.NAME]` each method
with clusters is run once with the settings of each. A table `quick` may replace any of these keys; with it the grid
becomes a small one, for a CPU.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from disavow import config
from disavow.config import Settings
from disavow.errors import ConfigError
from reproduction.lines import EDITION, FORMAT, PLAIN, UNCLUSTERED, Method, Network, PaperRow, RowName

_DATA = {"MNIST": "mnist", "FMNIST": "fashion-mnist", "CIFAR10": "cifar10", "CelebA": "celeba"}

_PARTITIONS: Mapping[str, Mapping[str, Any]] = {
    "iid": {"partition": "iid"},
    # what the paper's scripts called non-iid: unequal sizes only
    "noniid": {"partition": "quantity", "alpha": 1.0},
    "dirichlet0.3": {"partition": "dirichlet", "alpha": 0.3},
    "dirichlet0.1": {"partition": "dirichlet", "alpha": 0.1},
    "labels2": {"partition": "pathological", "labels_per_client": 2},
}

_PLAIN: Mapping[str, Any] = {"clustering": {"k": 1}, "deniability": {"x": 1}}
_STICKY: Mapping[str, Any] = {"clustering": {"sticky": True}}

METHODS: Mapping[Method, Mapping[str, Any]] = {
    "fedavg": {**_PLAIN, "mechanism": {"name": "retrain-from-scratch"}},
    "fedavg-sampled": {**_PLAIN, "mechanism": {"name": "retrain"}},
    "federaser": {**_PLAIN, "mechanism": {"name": "federaser"}},
    "federaser-1": {**_PLAIN, "mechanism": {"name": "federaser", "interval": 1}},
    "federaser-plain": {**_PLAIN, "mechanism": {"name": "federaser", "interval": 1, "compress": False}},
    "published": {"clustering": {"sticky": False}, "noise": {"statistics": "drawn"}},
    "sticky": _STICKY,
    "sticky-3": {"clustering": {"sticky": True, "representatives": 3}},
    "retention": _STICKY,
}
"""The settings of each method. `fedavg-sampled` has the fraction 1/k besides; `retention` is `sticky` with the
budget of bytes that the grid sets."""

_OF_THE_GROUP = ("seed", "draws", "data", "model", "training", "engine", "task")
"""Settings that no variant may change: runs of a group share their data and their training."""

_ELSEWHERE = ("engine", "data.dir", "data.digest")
"""Settings that say where a run is made, not what comes out."""


@dataclass(frozen=True)
class Point:
    """One run of a grid."""

    row: RowName
    network: Network
    method: Method
    k: int
    x: int
    seed: int
    quick: bool
    settings: Settings
    study: str = ""
    """Whose results are kept apart: of runs with other settings than those of the tables."""
    variant: str = ""
    edition: int = EDITION

    @property
    def group(self) -> tuple[str, str, str, int]:
        """Points of one group share their data, their network and their training."""
        return self.study, self.row, self.network, self.seed

    @cached_property
    def key(self) -> str:
        """SHA-256 of what decides the result: two runs of one key come to the same."""
        values = self.settings.model_dump(mode="json", exclude_defaults=True)
        for name in _ELSEWHERE:
            section, _, key = name.partition(".")
            holder = values.get(section, {}) if key else values
            holder.pop(key or section, None)
        document: dict[str, Any] = {"format": FORMAT, "row": self.row, "method": self.method, "settings": values}
        if self.edition > 1:  # the first was not written down
            document["edition"] = self.edition
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        which = "" if self.method in PLAIN else f" k={self.k}"
        which += "" if self.method in UNCLUSTERED else f" x={self.x}"
        which += f" {self.variant}" if self.variant else ""
        return f"{self.row} {self.network} {self.method}{which}, seed {self.seed}"


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    study: Annotated[str, Field(pattern=r"^[a-z0-9]*$")] = ""
    edition: Annotated[int, Field(ge=1, le=EDITION)] = EDITION
    rows: tuple[RowName, ...] = Field(default=get_args(PaperRow), strict=False, min_length=1)
    networks: tuple[Network, ...] = Field(strict=False, min_length=1)
    methods: tuple[Method, ...] = Field(strict=False, min_length=1)
    k: tuple[Annotated[int, Field(ge=2)], ...] = Field(default=(4, 6, 8, 10), strict=False, min_length=1)
    x: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(2, 3, 4), strict=False, min_length=1)
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(1,), strict=False, min_length=1)
    settings: dict[str, Any] = {}
    variants: dict[str, dict[str, Any]] = {"": {}}
    quick: dict[str, Any] = {}


@dataclass(frozen=True)
class Grid:
    """A grid as it was written down. `source` names it in errors."""

    keys: _Keys
    source: str

    @property
    def has_quick(self) -> bool:
        """Whether it says how to be small."""
        return bool(self.keys.quick)

    @property
    def edition(self) -> int:
        """Which edition its runs are of; see `lines.EDITION`."""
        return self.keys.edition

    def points(
        self, *, quick: bool = False, engine: Mapping[str, Any] | None = None, seeds: Sequence[int] = ()
    ) -> list[Point]:
        """Every run, in the order in which they are best made: equal data together, FedAvg first in each group.

        `engine` are settings of the engine, the same for all; `seeds`, if any, take the place of the grid's.
        """
        keys = self._quick() if quick else self.keys
        return [
            point
            for row, network, seed in product(keys.rows, keys.networks, seeds or keys.seeds)
            for point in self._group(keys, row, network, seed, quick, engine or {})
        ]

    def _quick(self) -> _Keys:
        if not self.keys.quick:
            raise ConfigError(f"{self.source} has no table [quick], which says what a small version of it is")
        values = self.keys.model_dump(exclude={"quick"}, exclude_unset=True)
        small = dict(self.keys.quick)
        settings = _merged(values.get("settings", {}), small.pop("settings", {}))
        return _checked({**values, **small, "settings": settings}, f"{self.source}, [quick]")

    def _group(
        self, keys: _Keys, row: RowName, network: Network, seed: int, quick: bool, engine: Mapping[str, Any]
    ) -> Iterator[Point]:
        # FedAvg first: the distances of all others are taken to it. Smaller x after smaller x: these share most.
        for method in sorted(keys.methods, key=list(METHODS).index):
            for variant, k, x in _combinations(keys, method):
                settings = self._settings(keys, row, network, method, k, x, seed, variant, engine)
                if settings is not None:
                    yield Point(
                        row, network, method, k, x, seed, quick, settings, keys.study, variant, keys.edition
                    )

    def _settings(
        self,
        keys: _Keys,
        row: RowName,
        network: Network,
        method: Method,
        k: int,
        x: int,
        seed: int,
        variant: str,
        engine: Mapping[str, Any],
    ) -> Settings | None:
        """The settings of a run; None where no cluster of k could keep the survivors that x asks for."""
        name, partition = row.split("-")
        values: dict[str, Any] = {
            "seed": seed,
            "draws": "seeded",
            "data": {"name": _DATA[name], **_PARTITIONS[partition]},
            "model": {"name": network},
            "clustering": {"k": k},
            "deniability": {"x": x},
        }
        common = dict(keys.settings)
        if method != "retention":
            common.pop("ledger", None)
        sampled = {"training": {"fraction": 1 / k}} if method == "fedavg-sampled" else {}
        changed = keys.variants.get(variant, {})  # baselines have none
        if fixed := [section for section in _OF_THE_GROUP if section in changed]:
            raise ConfigError(f"{self.source}: variants.{variant}.{fixed[0]} cannot be changed by a variant")
        for more in (common, METHODS[method], sampled, changed, {"engine": dict(engine)}):
            values = _merged(values, more)
        drawn = values["clustering"].get("representatives", 1)
        if method not in UNCLUSTERED and x + drawn - 1 > k:
            return None
        return config.from_values(values, source=self.source)


def _combinations(keys: _Keys, method: Method) -> list[tuple[str, int, int]]:
    """The variants, k and x of a method; what it does not have is empty, or 1."""
    if method in PLAIN:
        return [("", 1, 1)]
    if method in UNCLUSTERED:
        return [("", k, 1) for k in keys.k]
    return list(product(keys.variants, keys.k, keys.x))


def load(path: Path) -> Grid:
    """The grid in a file; whatever cannot be used is a `ConfigError` that names it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file; docs/reproduction-details.md says what is in a grid"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return _parse(text, str(path))


def packaged(name: str) -> Grid:
    """One of the grids of the paper's experiments."""
    text = resources.files("reproduction").joinpath("grids", f"{name}.toml").read_text(encoding="utf-8")
    return _parse(text, f"the grid {name}")


def _parse(text: str, source: str) -> Grid:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not TOML: {error}") from None
    grid = Grid(_checked(values, source), source)
    grid.points()  # so that a setting that cannot be used is said at once
    if grid.has_quick:
        grid.points(quick=True)
    return grid


def _checked(values: Mapping[str, Any], source: str) -> _Keys:
    try:
        return _Keys.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(step) for step in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigError(
                f"{source}: {key} is not a key of a grid; allowed: {', '.join(_Keys.model_fields)}"
            ) from None
        raise ConfigError(f"{source}: {key}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None


def _merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values, the later ones winning.

    >>> _merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": 4})
    {'a': {'b': 3, 'c': 2}, 'd': 4}
    """
    merged = dict(values)
    for key, value in more.items():
        inside = merged.get(key)
        merged[key] = _merged(inside, value) if isinstance(inside, dict) and isinstance(value, dict) else value
    return merged
