"""What the task `adapters` may be told: the shape of an adapter, and what each option may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disavow.errors import TaskError

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj")
"""The attention projections of Llama and most others; GPT-2 calls them c_attn and c_proj."""


@dataclass(frozen=True)
class LoraOptions:
    """The shape of an adapter.

    Attributes:
        rank: Of the matrices B A that are added to a projection.
        alpha: They are scaled by alpha / rank.
        modules: Names of the projections that get one.
        freeze_a: Train B alone: then the mean of the clients' updates is the update of the mean (FFA-LoRA, Sun et
            al. 2024).

    """

    rank: int = 8
    alpha: float = 16.0
    modules: tuple[str, ...] = MODULES
    freeze_a: bool = False


def refuse_options(given: Mapping[str, Any]) -> None:
    """Refuse options of a wrong kind, which were written by hand.

    Args:
        given: All options, by name.

    Raises:
        TaskError: One of them cannot be what it is.

    """
    for names, allowed, fits in _ALLOWED:
        for name in names:
            if not fits(given[name]):
                raise TaskError(f"task.options.{name} is {given[name]!r}; allowed: {allowed}")


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_names(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and len(value) > 0 and all(isinstance(each, str) for each in value)


_ALLOWED: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool]], ...] = (
    (("model", "data"), "a path", _is_path),
    (("test", "adapter"), "a path", lambda value: value is None or _is_path(value)),
    (("rank",), "a whole number from 1 on", _is_count),
    (("length",), "a whole number from 1 on", lambda value: value is None or _is_count(value)),
    (("alpha",), "a number above 0", lambda value: type(value) in (int, float) and 0 < value < math.inf),
    (("modules",), "a list of names of projections", _is_names),
    (("freeze_a",), "true or false", lambda value: isinstance(value, bool)),
    (("before", "between"), "text", lambda value: isinstance(value, str)),
)
"""Options, what they may be, and a test of it."""
