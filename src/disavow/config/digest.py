"""Which settings a run keeps from its start, and the digest that binds it to them."""

from __future__ import annotations

import hashlib
from typing import Any

from disavow.config.settings import CHANGEABLE, Settings
from disavow.config.writing import to_toml


def settings_digest(settings: Settings) -> str:
    """SHA-256 over the settings that a run keeps from its start: all but `CHANGEABLE`."""
    fixed, defaults = settings, Settings()
    for name in CHANGEABLE:
        fixed = _replaced(fixed, name, _value(defaults, name))
    return hashlib.sha256(to_toml(fixed, comments=False).encode()).hexdigest()


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
