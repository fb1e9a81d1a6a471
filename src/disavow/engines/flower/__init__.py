"""Moved: import `disavow.flower` instead. This path gives one warning and works."""

from __future__ import annotations

import warnings
from typing import Any

from disavow import flower

warnings.warn(
    "disavow.engines.flower has moved to disavow.flower; the old path will be removed",
    FutureWarning,
    stacklevel=2,
)


def __getattr__(name: str) -> Any:
    return getattr(flower, name)
