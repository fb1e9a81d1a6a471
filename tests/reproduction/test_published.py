"""The paper's numbers are those of the paper."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from reproduction import published
from reproduction.lines import PaperRow
from tests.data.making import SHARED

TARGETS = SHARED.parent / "paper" / "targets.json"
NAMES: dict[published.TableName, str] = {
    "lenet5-accuracy": "lenet5.accuracy",
    "resnet-accuracy": "resnet_mini.accuracy",
    "lenet5-time": "lenet5.unlearning_seconds",
    "resnet-time": "resnet_mini.unlearning_seconds",
}


@pytest.mark.skipif(not TARGETS.is_file(), reason=f"the paper's tables are not in {TARGETS}")
@pytest.mark.parametrize("table", NAMES)
def test_every_cell_is_the_papers(table: published.TableName) -> None:
    expected: dict[str, dict[str, Any]] = json.loads(TARGETS.read_text(encoding="utf-8"))[NAMES[table]]
    assert list(published.rows(table)) == list(expected)
    for row, columns in expected.items():
        assert list(published.columns(table)) == list(columns)
        for column, value in columns.items():
            found = published.cell(table, row, column)
            assert found is not None
            wanted = (value["mean"], value["std"]) if isinstance(value, dict) else (value, None)
            assert (found.mean, found.std) == wanted


@pytest.mark.parametrize("table", NAMES)
def test_rows_are_those_of_result_lines_and_every_cell_can_be_read(table: published.TableName) -> None:
    assert published.rows(table) == get_args(PaperRow)
    cells = [
        published.cell(table, row, column) for row in published.rows(table) for column in published.columns(table)
    ]
    assert all(cell is not None and cell.mean > 0 for cell in cells)
    assert published.cell(table, "MNIST-iid", "k5") is None


def test_the_claimed_extremes_are_not_in_the_papers_own_tables() -> None:
    found = [ratio for table in ("lenet5-time", "resnet-time") for _, _, ratio in published.ratios(table)]
    assert min(found) < published.CLAIMED_RATIOS[0] < max(found) < published.CLAIMED_RATIOS[1]
