"""The run of a server app: made when it is started first, taken up again ever after."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from disavow import __version__, config
from disavow.config import Settings
from disavow.domain import Layout, TrainedBy
from disavow.domain.strategies import CLUSTERINGS
from disavow.errors import ConfigError
from disavow.ledger import Ledger
from disavow.ledger.creation import CONFIG
from disavow.ledger.files import PRIVATE_FILE, write_durably
from disavow.proof.notes import Signer
from disavow.rounds.options import now
from disavow.rounds.vectors import Model

_NOT_OURS = (
    "data",
    "model",
    "requests",
    "training.batch_size",
    "training.learning_rate",
    "training.momentum",
    "training.weight_decay",
)
"""Settings that the nodes know, and not the server: refused, and left out of the run's config.toml."""

_ENGINE = ("engine.device", "engine.precision", "engine.compile")
"""Left out as well: the engine is the nodes, and nothing else of it can be set."""


def settings_from(values: Mapping[str, Any], more: Mapping[str, Any] | None) -> Settings:
    """The settings of a Flower run: `values`, and over them the tables of `more`, as in config.toml."""
    for name in (*_NOT_OURS, "engine"):
        if _is_set(more or {}, name):
            raise ConfigError(
                f"settings name {name}, which the nodes' own app decides; allowed: what the server decides, such "
                "as noise, privacy, clustering, deniability, draws, ledger"
            )
    merged: dict[str, Any] = {name: dict(v) if isinstance(v, Mapping) else v for name, v in values.items()}
    for name, value in (more or {}).items():
        if isinstance(value, Mapping):
            merged[name] = {**merged.get(name, {}), **value}
        else:
            merged[name] = value
    merged["engine"] = {"name": "flower"}
    return config.from_values(merged, source="KIPFedAvg")


def _is_set(values: Mapping[str, Any], name: str) -> bool:
    section, _, key = name.partition(".")
    table = values.get(section)
    return section in values and (not key or (isinstance(table, Mapping) and key in table))


def open_run(directory: Path, settings: Settings, initial: Model, signer: Signer | None, keys: Path) -> Ledger:
    """The ledger in this directory, opened for writing; a new one where there is none yet.

    A run that is there goes on where it stands: its own initial model counts, whatever the app starts with.
    """
    CLUSTERINGS[settings.clustering.method].require()
    text = config.to_toml(settings, without=(*_NOT_OURS, *_ENGINE))
    if not directory.exists() or not any(directory.iterdir()):
        return Ledger.create(
            directory,
            policy=settings.policy,
            layout=initial.layout,
            initial=initial.vector.numpy(),
            clients=(),
            config=text,
            created_by=f"disavow {__version__}",
            at=now(),
            settings_digest=config.settings_digest(settings),
            trainer=TrainedBy("flower"),
            signer=signer,
            keys=keys,
        )
    ledger = Ledger.open(directory, write=True, signer=signer, keys=keys)
    try:
        _refuse_another(ledger, settings, initial.layout)
        if (directory / CONFIG).read_text(encoding="utf-8") != text:  # the number of rounds may change
            write_durably(directory / CONFIG, text.encode(), mode=PRIVATE_FILE)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _refuse_another(ledger: Ledger, settings: Settings, layout: Layout) -> None:
    """A run keeps its promises and its model; whoever wants others starts another run."""
    if ledger.layout != layout:
        raise ConfigError(
            f"{ledger.directory} holds a run of another model: its arrays have other names or shapes; "
            "allowed: the same model, or another directory for `ledger`"
        )
    if ledger.settings_digest != config.settings_digest(settings):
        kept = config.load(ledger.directory / CONFIG)
        told = "; ".join(_differences(kept, settings)) or "its config.toml was changed"
        raise ConfigError(
            f"{ledger.directory} holds a run with other promises ({told}); allowed: the same ones, or another "
            "directory for `ledger`"
        )


def _differences(kept: Settings, asked: Settings) -> list[str]:
    old, new = kept.model_dump(), asked.model_dump()
    found = []
    for section, values in old.items():
        pairs = values.items() if isinstance(values, dict) else [("", values)]
        for key, value in pairs:
            now_ = new[section][key] if key else new[section]
            name = f"{section}.{key}" if key else section
            changeable = section in config.CHANGEABLE or name in config.CHANGEABLE
            if value != now_ and not changeable:
                found.append(f"{name} is {value!r} there and {now_!r} here")
    return found
