"""Writing settings as TOML that reads back as the same settings."""

from __future__ import annotations

import json
from collections.abc import Collection

from pydantic import BaseModel

from disavow.config.keys import allowed, meaning, sections
from disavow.config.settings import CHANGEABLE, Settings


def to_toml(settings: Settings, *, comments: bool = True, without: Collection[str] = ()) -> str:
    """Settings as TOML that reads back as the same settings, with every key and what it means.

    Sections in `without` are left out, and keys such as `data.dir`.
    """
    lines = [
        "# Settings of a disavow run. Every key is shown; a key left out has its default.",
        f"# Once a run has started, only {', '.join(CHANGEABLE)} may be edited in its own config.toml.",
    ] * comments
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
                lines.append(f"# {meaning(field)} ({allowed(field)})")
            lines.append(f"{key} = {_toml(value)}" if value is not None else f"# {key} = ")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, str):
        # TOML escapes as JSON does, but for characters beyond 16 bits and for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value) if isinstance(value, bool) else repr(value)
