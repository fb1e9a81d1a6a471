"""Building a task that settings name, and every way in which that can fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from disavow.errors import TaskError
from disavow.tasks import Task, build

MODULE = """
import torch
import disavow

class Mine(disavow.Task):
    def __init__(self, width=2):
        self.width = width
    def model(self):
        return torch.nn.Linear(self.width, 2)
    def clients(self):
        return {"a": (torch.zeros(4, self.width), torch.zeros(4, dtype=torch.long))}

def fails():
    raise KeyError("no such column")

def returns_nothing(): ...

def reads():
    import json
    return json.loads("{")

def ends():
    raise SystemExit(3)

number = 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the module `own_task`, which is forgotten afterwards."""
    (tmp_path / "own_task.py").write_text(MODULE)
    (tmp_path / "broken_task.py").write_text("import surely_not_installed\n")
    (tmp_path / "syntax_task.py").write_text("def (:\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("own_task", "broken_task", "syntax_task"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_class_or_a_function_is_called_with_the_options(folder: Path) -> None:
    task = build("own_task:Mine", {"width": 3}, folder)
    assert isinstance(task, Task)
    assert task.model().weight.shape == (2, 3)


def test_the_current_folder_is_searched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert isinstance(build("own_task:Mine", {}), Task)


@pytest.mark.parametrize(
    ("factory", "options", "named"),
    [
        ("own_task", {}, "module:callable"),
        (":Mine", {}, "module:callable"),
        ("nowhere:build", {}, "nowhere"),
        ("own_task.deeper:build", {}, "own_task.deeper"),
        ("own_task:missing", {}, "missing"),
        ("own_task:number", {}, "int"),
        ("own_task:Mine", {"height": 3}, "height"),
        ("own_task:fails", {}, "no such column"),
        ("own_task:reads", {}, "own_task.py:20 in reads"),
        ("own_task:ends", {}, "SystemExit"),
        ("own_task:returns_nothing", {}, "NoneType"),
        ("broken_task:build", {}, "surely_not_installed"),
        ("syntax_task:build", {}, "SyntaxError"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(
    folder: Path, factory: str, options: dict[str, object], named: str
) -> None:
    with pytest.raises(TaskError) as refused:
        build(factory, options, folder)
    assert refused.value.code == "DSV-105"
    assert named in str(refused.value)


def test_a_module_that_is_not_found_names_where_it_was_searched(folder: Path) -> None:
    with pytest.raises(TaskError) as refused:
        build("nowhere:build", {}, folder)
    assert str(folder) in str(refused.value)


def test_an_exception_of_the_factory_names_its_line(folder: Path) -> None:
    with pytest.raises(TaskError) as refused:
        build("own_task:fails", {}, folder)
    assert "own_task.py:14 in fails" in str(refused.value)
