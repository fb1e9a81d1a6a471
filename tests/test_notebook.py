"""The notebook runs from start to end, and what is kept of an earlier run names no machine."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


def _text(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in outputs)


def _images(notebook: Any) -> int:
    return sum("image/png" in o.get("data", {}) for cell in notebook.cells for o in cell.get("outputs", []))


def test_the_notebook_runs_from_start_to_end(tmp_path: Path) -> None:
    notebook = copy.deepcopy(nbformat.read(NOTEBOOK, as_version=4))
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    output = _text(notebook)
    assert "request 1: deniable" in output
    assert "VALID proof about 'hospital-3'" in output
    assert "foreseen: rollback to round" in output
    assert "7 hospitals stay" in output
    assert _images(notebook) == 1


def test_the_outputs_that_are_kept_are_complete_and_name_no_machine() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(output.output_type != "error" for cell in code for output in cell.outputs)
    assert "VALID proof about 'hospital-3'" in _text(notebook)
    assert _images(notebook) == 1
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not any(place in text for place in ("/tmp", "/home", "/root", "/work", "/Users"))
