"""What a settings file is refused with."""

from __future__ import annotations

import pytest

from disavow import config
from disavow.errors import ConfigError


def complaints(text: str) -> list[str]:
    """The lines of the error that a TOML text meets, without the name of the file that each begins with."""
    with pytest.raises(ConfigError) as refusal:
        config.parse(text, source="run.toml")
    lines = str(refusal.value).splitlines()
    assert all(line.startswith("run.toml: ") for line in lines)
    return [line.removeprefix("run.toml: ") for line in lines]
