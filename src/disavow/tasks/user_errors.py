"""Run the user's own code, and say of what it raises whose it is: which part of the task, and which lines."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from disavow.errors import DisavowError, TaskError
from disavow.tasks.task import PartsTask, Task

_FRAMES = 3
"""Innermost lines of the user's own code that an error shows."""

_NEVER_OWN = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(torch.__file__).parent))
_LIBRARIES = (
    *(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<frozen ",
)
"""Where code lies that is rarely the user's own; a task may be installed there, too."""


@contextmanager
def own_code(what: str) -> Iterator[None]:
    """Raise what the user's own code raises in here as an error of the task.

    Args:
        what: What is called, such as `Hospitals.model()`.

    Raises:
        TaskError: The code raised; it says what and where.

    """
    try:
        yield
    except DisavowError:
        raise
    except (Exception, SystemExit) as error:  # a script without a main guard may end the program when imported
        raise TaskError(f"{what} raised {described(error)}") from error


def described(error: BaseException) -> str:
    """Say what an exception is, and name the lines of the user's own code that it came through.

    Args:
        error: The exception, as it was caught.

    Returns:
        Its type and message, and below them a line for each of the innermost lines of code.

    """
    found = traceback.extract_tb(error.__traceback__)
    frames = [each for each in found if not each.filename.startswith(_NEVER_OWN)]
    own = [each for each in frames if not each.filename.startswith(_LIBRARIES)] or frames
    where = "".join(f"\n  {frame.filename}:{frame.lineno} in {frame.name}" for frame in own[-_FRAMES:])
    return f"{type(error).__name__}: {error}{where}"


def name_of(task: Task, method: str) -> str:
    """Name a part of a task as its user wrote it.

    Args:
        task: The task.
        method: What the part is called in `Task`.

    Returns:
        An argument of `disavow.task`, or a method of a class.

    """
    if not isinstance(task, PartsTask):
        return f"{type(task).__name__}.{method}()"
    if method == "evaluate":
        return "the evaluation of disavow.task(test=..., metrics=...)"
    return f"disavow.task({'test' if method == 'test_data' else method}=...)"
