"""Check the arguments of `KIPFedAvg`, and make the settings of its run from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from disavow import config
from disavow.config import Settings
from disavow.domain.strategies import MECHANISMS
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms import build as build_mechanism
from disavow.errors import ConfigError
from disavow.flower.identity import Identity
from disavow.flower.placement import AcceptRequests
from disavow.runs import SET_BY_NODES


def check_reply_rules(identity: str, repeats: int, too_large: float) -> None:
    """Refuse an unknown identity, and rules by which no reply, or every reply, would count.

    An unknown identity must never pass for one of the others: who a client is decides who stays forgotten.

    Raises:
        ConfigError: One of them cannot be used.

    """
    known = get_args(Identity)
    if identity not in known:
        raise ConfigError(f"identity is {identity!r}; allowed: {', '.join(repr(name) for name in known)}")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 0:
        raise ConfigError(f"repeats is {repeats!r}; allowed: a whole number, 0 or more")
    number = isinstance(too_large, int | float) and not isinstance(too_large, bool)
    if not number or not math.isfinite(too_large) or too_large <= 1:
        raise ConfigError(f"too_large is {too_large!r}; allowed: a finite number above 1")


def check_node_requests(accept: str) -> None:
    """Refuse an unknown word for which requests of nodes are placed.

    Raises:
        ConfigError: It is none of those.

    """
    known = get_args(AcceptRequests)
    if accept not in known:
        allowed = ", ".join(repr(name) for name in known)
        raise ConfigError(f"accept_node_requests is {accept!r}; allowed: {allowed}")


def absolute_path(name: str, path: str | Path) -> Path:
    """Expand a folder that must mean the same whoever starts the server app: absolute, or in a home (`~`).

    Raises:
        ConfigError: It is relative, or there is no such home directory.

    """
    try:
        found = Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{name} is {str(path)!r}, and there is no such home directory") from None
    if not found.is_absolute():
        raise ConfigError(
            f"{name} is {str(path)!r}, a relative path: it would lie in the folder in which somebody once started "
            f"Flower's SuperLink, not in that of `flwr run`; allowed: an absolute path, such as '~/{found}'"
        )
    return found


def settings_from(
    arguments: Mapping[str, Any], tables: Mapping[str, Any] | None, mechanism: Mechanism | None
) -> Settings:
    """Make the settings of a Flower run.

    Args:
        arguments: Values by table, from the strategy's own arguments.
        tables: Tables as in config.toml, over those.
        mechanism: A mechanism given as an object; it must be the one that the settings name.

    Raises:
        ConfigError: They do not fit together, or are the nodes' to decide.

    """
    tables = tables or {}
    for name in (*SET_BY_NODES, "engine"):
        if _is_set(tables, name):
            raise ConfigError(
                f"settings name {name}, which the nodes' own app decides; allowed: what the server decides, such "
                "as noise, privacy, clustering, deniability, draws, ledger"
            )
    merged: dict[str, Any] = {**arguments, "engine": {"name": "flower"}}
    if mechanism is not None:  # not past the settings, which say what goes with it, and which the run keeps
        merged["mechanism"] = {"name": getattr(mechanism, "name", None)}
    for name, value in tables.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, Mapping) else value
    settings = config.from_values(merged, source="KIPFedAvg")
    built = build_mechanism(settings.mechanism)
    if built.needs_every_survivor:
        others = ", ".join(f'"{name}"' for name, each in MECHANISMS.items() if not each.needs_every_survivor)
        raise ConfigError(
            f'mechanism.name is "{built.name}", which needs an answer of every survivor in every round; allowed on '
            f"Flower nodes, of which some may be away: {others}"
        )
    if mechanism is not None and (type(mechanism), mechanism) != (type(built), built):
        raise ConfigError(
            f"mechanism is {mechanism!r}, where the settings say {settings.mechanism.name!r}; allowed: "
            "one that settings can name, and that these do not contradict (`disavow erase` rolls back by the "
            "run's settings, and would know nothing of another)"
        )
    return settings


def _is_set(tables: Mapping[str, Any], name: str) -> bool:
    section, _, key = name.partition(".")
    table = tables.get(section)
    return section in tables and (not key or (isinstance(table, Mapping) and key in table))
