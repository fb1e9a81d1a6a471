"""Parameters of which `make test` takes some and `make torture` the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def some_of(values: Iterable[Any], keep: Callable[[Any], bool] | Iterable[Any]) -> list[Any]:
    """Mark as torture whatever is not kept.

    Args:
        values: What `pytest.mark.parametrize` takes: values, or tuples of them.
        keep: The values that `make test` takes, or a function that says of each whether it does.

    Returns:
        The values in their order, for `pytest.mark.parametrize`.

    Raises:
        ValueError: A value that is to be kept is none of the values.
    """
    every = list(values)
    if callable(keep):
        kept = [value for value in every if keep(value)]
    else:
        kept = list(keep)
        if missing := [value for value in kept if value not in every]:
            raise ValueError(f"none of the parameters: {missing}")
    return [
        value
        if value in kept
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.torture)
        for value in every
    ]
