"""Reading settings: from TOML, once, at the edge. What cannot be used is refused in words."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from disavow.config.keys import allowed
from disavow.config.settings import Settings
from disavow.errors import ConfigError

_LONGEST = 80
"""Characters of a refused value that are repeated."""


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
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, and nesting without end
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
    told = json.dumps(detail["input"], default=str)
    return f"{key} is {told if len(told) <= _LONGEST else told[:_LONGEST] + '...'}; allowed: {allowed(field)}"


def _find(path: list[str]) -> tuple[type[BaseModel], FieldInfo | None]:
    section: type[BaseModel] = Settings
    field = section.model_fields.get(path[0])
    if len(path) > 1 and field is not None and isinstance(field.annotation, type):
        section = field.annotation
        field = section.model_fields.get(path[1])
    return section, field
