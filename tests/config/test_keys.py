"""Every key is listed."""

from __future__ import annotations

from disavow import config
from disavow.config import Settings


def test_sections_list_every_setting_once() -> None:
    keys = [f"{name}.{key}" for name, _, fields in config.sections() for key in fields]
    assert len(keys) == len(set(keys))
    assert {name for name, _, _ in config.sections() if name} | {
        key.removeprefix(".") for key in keys if key.startswith(".")
    } == set(Settings.model_fields)
