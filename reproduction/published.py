"""The paper's own numbers, as printed: what stands beside ours in every table.

A. K. Varshney and V. Torra, "Efficient Federated Unlearning under Plausible Deniability", ACML 2024.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

CITATION = (
    'A. K. Varshney and V. Torra, "Efficient Federated Unlearning under Plausible Deniability", Asian Conference '
    "on Machine Learning (ACML) 2024"
)

TableName = Literal["lenet5-accuracy", "resnet-accuracy", "lenet5-time", "resnet-time"]

CLAIMED_RATIOS = (1.6, 500_769.0)
"""The least and the largest saving of time that abstract and text claim; the tables hold neither (`ratios`)."""
CLAIMED_STORAGE = 30.0
"""How many times less disk than FedEraser the abstract claims, about."""


@dataclass(frozen=True)
class Cell:
    """A number of a table: for the columns k4 to k10 a mean and a standard deviation over x = 2, 3, 4."""

    mean: float
    std: float | None
    text: str
    """As printed."""


def cell(table: TableName, row: str, column: str) -> Cell | None:
    """What the paper prints there; nothing where it has no such column.

    >>> cell("lenet5-accuracy", "FMNIST-iid", "k4")
    Cell(mean=0.635, std=0.02, text='0.635 ± 0.02')
    >>> cell("lenet5-time", "FMNIST-iid", "federaser")
    """
    held = _tables()[table]
    if column not in held["columns"]:
        return None
    text = held["rows"][row][held["columns"].index(column)]
    mean, sign, std = text.partition(" ± ")
    return Cell(float(mean), float(std) if sign else None, text)


def printed(table: TableName) -> str:
    """Which table of the paper it is.

    >>> printed("resnet-time")
    'Table 5'
    """
    return str(_tables()[table]["printed"])


def rows(table: TableName) -> tuple[str, ...]:
    """The rows, in the paper's order."""
    return tuple(_tables()[table]["rows"])


def columns(table: TableName) -> tuple[str, ...]:
    """The columns, in the paper's order."""
    return tuple(_tables()[table]["columns"])


def ratios(table: Literal["lenet5-time", "resnet-time"]) -> Iterator[tuple[str, str, float]]:
    """How many times faster than FedAvg with retraining each cell is: row, column, ratio.

    Neither of the claimed extremes is among them:

    >>> found = [ratio for table in ("lenet5-time", "resnet-time") for _, _, ratio in ratios(table)]
    >>> f"{min(found):.2f} to {max(found):,.0f}"
    '1.23 to 340,550'
    """
    for row in rows(table):
        base = cell(table, row, "fedavg")
        for column in columns(table)[1:]:
            found = cell(table, row, column)
            if base is not None and found is not None:
                yield row, column, base.mean / found.mean


@cache
def _tables() -> Mapping[str, Any]:
    text = resources.files("reproduction").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
