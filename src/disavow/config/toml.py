"""Settings as TOML: read once, at the edge; written so that they read back the same; and the digest that binds a
run to those that it keeps from its start. What cannot be used is refused in words.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from disavow.config.declarations import MOST
from disavow.config.settings import CHANGEABLE, UNKEPT, Settings
from disavow.domain import Policy
from disavow.domain.strategies import Registry, broken_plugins
from disavow.errors import ConfigError

_LATER = ("task", "tracking", "witness", "data.validation")
"""Sections and keys that earlier runs do not have: without a comment they are left out where they are not used, so
that the digests of these runs stay what they were.
"""

_LONGEST = 80
"""Characters of a refused value that are repeated."""


def load(path: Path) -> Settings:
    """Read settings from a TOML file.

    Args:
        path: The file.

    Raises:
        ConfigError: It cannot be used; every problem in a line that names its key.

    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; `disavow init {path}` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return parse(text, source=str(path))


def parse(text: str, *, source: str) -> Settings:
    """Read settings from TOML text.

    Args:
        text: The text.
        source: What errors call it.

    Raises:
        ConfigError: It cannot be used.

    """
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, and nesting without end
        raise ConfigError(f"{source}: not TOML: {error}") from None
    return from_values(values, source=source)


def from_values(values: Mapping[str, Any], *, source: str) -> Settings:
    """Check settings given as nested values.

    Args:
        values: The values.
        source: What errors call them.

    Raises:
        ConfigError: They cannot be used.

    """
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        lines = dict.fromkeys(_one_line(detail) for detail in error.errors(include_url=False))
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines)) from None


def with_policy(
    settings: Settings, policy: Policy | None, *, rounds: int | None = None, seed: int | None = None
) -> Settings:
    """Write a policy into settings; everything else stays.

    Args:
        settings: The settings.
        policy: The promises; None for those of the settings.
        rounds: Rounds to train; None for those of the settings.
        seed: What every training draw derives from; None for that of the settings.

    Raises:
        ConfigError: A value cannot be used. Whether the values fit together is checked with the task.

    """
    values: dict[str, Any] = {"rounds": rounds, "seed": seed}
    if policy is not None:
        relative = None if policy.relative_delta is None else f"{policy.relative_delta:g}x"
        values |= {
            "draws": policy.draws,
            "clustering": {
                "k": policy.k,
                "representatives": policy.representatives,
                "method": policy.clustering,
                "sticky": policy.sticky,
                "metric": policy.metric,
            },
            "deniability": {
                "x": policy.x,
                "delta": policy.delta or relative or "adaptive",
                "odds": policy.odds,
            },
            "noise": {
                "mode": policy.noise,
                "distribution": policy.distribution,
                "sigma": policy.sigma,
                "statistics": policy.statistics,
                "clip": policy.clip,
                "tau": policy.tau,
            },
            "mechanism": {**settings.mechanism.model_dump(), "name": policy.mechanism},
        }
    given = {name: value for name, value in values.items() if value is not None}
    # a task of one client more than k: how many there are is known once it is loaded
    checked = from_values({**given, "data": {"clients": MOST}}, source="policy")
    return settings.model_copy(update={name: getattr(checked, name) for name in given})


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
    value = json.dumps(detail["input"], default=str)
    line = f"{key} is {value if len(value) <= _LONGEST else value[:_LONGEST] + '...'}; allowed: {allowed(field)}"
    return "; ".join([line, *(broken_plugins() if _registries(field.metadata) else ())])


def _find(path: list[str]) -> tuple[type[BaseModel], FieldInfo | None]:
    section: type[BaseModel] = Settings
    field = section.model_fields.get(path[0])
    if len(path) > 1 and field is not None and isinstance(field.annotation, type):
        section = field.annotation
        field = section.model_fields.get(path[1])
    return section, field


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


def meaning(field: FieldInfo) -> str:
    """Return what a setting means; where it names a strategy and says no more, what each of these does."""
    if field.description:
        return field.description
    return "; ".join(registry.summary(name) for registry in _registries(field.metadata) for name in registry)


def _registries(metadata: list[Any]) -> list[Registry[Any]]:
    return [item for item in metadata if isinstance(item, Registry)]


def allowed(field: FieldInfo) -> str:
    """Return what a setting may be, in words."""
    if get_origin(field.annotation) is dict:
        return "a table of keyword arguments"
    if get_origin(field.annotation) is list:
        return f"a list, each {_allowed(get_args(field.annotation)[0], [])}"
    names = [json.dumps(name) for registry in _registries(field.metadata) for name in registry]
    return ", ".join(names) or _allowed(field.annotation, field.metadata)


def _allowed(kind: Any, metadata: list[Any]) -> str:
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        for item in more:
            if isinstance(item, FieldInfo) and item.description:
                return item.description
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


def to_toml(settings: Settings, *, comments: bool = True, without: Collection[str] = ()) -> str:
    """Write settings as TOML that reads back as the same settings.

    Sections in `without` are left out, and keys such as `data.dir`.

    Args:
        settings: The settings.
        comments: Whether every key is explained.
        without: Sections to leave out, and keys such as `data.dir`.

    """
    lines = [
        "# Settings of a disavow run. Every key is shown; a key left out has its default.",
        f"# Once a run has started, only {', '.join(CHANGEABLE)} may be edited in its own config.toml.",
    ] * comments
    for name, about, fields in sections():
        if name in without or (not comments and _is_unused(settings, name)):
            continue
        owner: BaseModel = getattr(settings, name) if name else settings
        if name:
            lines += ["", f"[{name}]" + f"  # {about}" * comments]
        for key, field in fields.items():
            if f"{name}.{key}" in without or (not comments and _is_unused(settings, f"{name}.{key}")):
                continue
            value = getattr(owner, key)
            if comments:
                lines.append(f"# {meaning(field)} ({allowed(field)})")
            lines.append(f"{key} = {_toml(value)}" if value is not None else f"# {key} = ")
    return "\n".join(lines) + "\n"


def _is_unused(settings: Settings, name: str) -> bool:
    """Whether a section or key came later than the first runs, and has its default."""
    return name in _LATER and _value(settings, name) == _value(Settings(), name)


def _toml(value: object) -> str:
    if isinstance(value, str):
        # TOML escapes as JSON does, but for characters beyond 16 bits and for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, BaseModel):
        return _toml(value.model_dump())
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, date | time):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, bool) else repr(value)


def settings_digest(settings: Settings) -> str:
    """Hash the settings that a run keeps from its start: all but `CHANGEABLE`, and where its rows are."""
    fixed, defaults = settings, Settings()
    for name in CHANGEABLE:
        fixed = _replaced(fixed, name, _value(defaults, name))
    return hashlib.sha256(to_toml(fixed, comments=False, without=UNKEPT).encode()).hexdigest()


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
