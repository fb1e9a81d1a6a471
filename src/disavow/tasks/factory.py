"""Build a task that settings name: import `module:callable` and call it with the options."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disavow.errors import TaskError
from disavow.tasks.task import Task
from disavow.tasks.user_errors import own_code

BUILT_IN = {"adapters": "disavow.adapters.task:AdapterTask"}
"""Tasks that disavow brings, by the names that settings have for them."""


@dataclass(frozen=True)
class Factory:
    """Where a task comes from, so that another process can build it again.

    Args:
        name: `module:callable`, or the name of a built-in task.
        options: Its keyword arguments.
        path: A folder to look for the module in.

    """

    name: str
    options: Mapping[str, Any]
    path: Path | None = None

    def build(self) -> Task:
        """Import the factory and call it: see `build`."""
        return build(self.name, self.options, self.path)


def build(factory: str, options: Mapping[str, Any], path: Path | None = None) -> Task:
    """Import a factory and call it.

    Args:
        factory: `module:callable`, or a name of `BUILT_IN`; the callable may be a function or a subclass of `Task`.
        options: Its keyword arguments.
        path: A folder to look for the module in, before the current one and those that Python searches.

    Returns:
        The task.

    Raises:
        TaskError: There is no such module or callable, it raised, or what it returned is no task.

    """
    module_name, separator, name = BUILT_IN.get(factory, factory).partition(":")
    if not separator or not module_name or not name:
        allowed = f"module:callable, such as hospitals:build, or one of {', '.join(BUILT_IN)}"
        raise TaskError(f"task.factory is {factory!r}; allowed: {allowed}")
    with _searching(path):
        target = _attribute(_import(module_name, path), factory, name)
        if not callable(target):
            raise TaskError(f"{factory} is a {type(target).__name__}; allowed: a callable that returns a Task")
        if factory in BUILT_IN:
            _refuse_unknown(factory, target, options)
        with own_code(factory):
            made = target(**options)
    if not isinstance(made, Task):
        raise TaskError(f"{factory} returned a {type(made).__name__}; allowed: a disavow.Task")
    return made


def _refuse_unknown(factory: str, target: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that a task of disavow's own does not have, and the lack of those that it needs."""
    known = inspect.signature(target).parameters
    unknown = [name for name in options if name not in known]
    missing = [name for name, each in known.items() if each.default is each.empty and name not in options]
    if unknown:
        raise TaskError(f"the task {factory} has no option {unknown[0]}; allowed: {', '.join(known)}")
    if missing:
        raise TaskError(f"the task {factory} needs task.options.{missing[0]}")


@contextmanager
def _searching(path: Path | None) -> Iterator[None]:
    """Put a folder, and the current one, before the folders that Python searches."""
    before = list(sys.path)
    sys.path[:0] = [str(each) for each in (path, Path.cwd()) if each is not None]
    try:
        yield
    finally:
        # behind the others they stay: what was imported may import more from there while it trains
        sys.path[:] = [*before, *(each for each in sys.path if each not in before)]


def _import(module_name: str, path: Path | None) -> Any:
    try:
        with own_code(f"importing {module_name}"):
            return importlib.import_module(module_name)
    except TaskError as error:
        missing = (
            getattr(error.__cause__, "name", None) if isinstance(error.__cause__, ModuleNotFoundError) else None
        )
        if missing is None or not f"{module_name}.".startswith(f"{missing}."):
            raise
        searched = ", ".join(dict.fromkeys(str(each) for each in (path, Path.cwd()) if each is not None))
        raise TaskError(
            f"there is no module {module_name!r}: searched {searched} and what Python searches; task.path may name "
            "its folder"
        ) from None


def _attribute(module: Any, factory: str, name: str) -> Any:
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise TaskError(
                f"there is no {name!r} in the module {module.__name__} ({getattr(module, '__file__', None)}); "
                f"task.factory is {factory!r}"
            )
        found = getattr(found, part)
    return found
