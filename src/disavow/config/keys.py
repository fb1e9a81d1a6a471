"""Every key in words: the sections that there are, and what a setting may be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from disavow.config.settings import Settings
from disavow.domain.strategies import Registry


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
    """What a setting may be, in words."""
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
