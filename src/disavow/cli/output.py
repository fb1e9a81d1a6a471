"""Results go to stdout, progress to stderr; colours and bars only where a person is looking."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress

_PLAIN_WIDTH = 100
_STEP = 1000


def results() -> Console:
    """Where results go."""
    return _console(stderr=False)


def progress() -> Console:
    """Where progress goes."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    # no markup: what is printed holds names of runs and clients, which may look like it
    console = Console(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)
    if not console.is_terminal:
        console.width, console.no_color = _PLAIN_WIDTH, True
    return console


def print_json(value: Any) -> None:
    """Print a value as JSON; what is not a finite number becomes null, and what is not printable is escaped."""
    written = json.dumps(_plain(value), indent=2, ensure_ascii=False)
    # inside strings, JSON itself escapes only what is below a space: the line ends that are left are its own
    print("".join(each if each.isprintable() or each == "\n" else _units(each) for each in written))


def _units(character: str) -> str:
    """A character as JSON escapes it: by its UTF-16 code units."""
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def bar(console: Console, what: str, total: int | None, done: int = 0) -> Progress:
    """A progress bar with one task, on a terminal; elsewhere nothing. Use it as a context manager."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(f"[bold]{what}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    shown.add_task(what, total=total, completed=done)
    return shown


def advance(shown: Progress, steps: int = 1) -> None:
    """Move the bar on."""
    shown.advance(shown.task_ids[0], steps)


@contextmanager
def loading(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar for whatever takes time to load and says how far it is; nothing is shown before its first word."""
    shown: Progress | None = None
    showing = ""

    def on_progress(what: str, done: int, total: int | None) -> None:
        nonlocal shown, showing
        if shown is None or what != showing:
            if shown is not None:
                shown.stop()
            shown, showing = bar(console, what, total), what
            shown.start()
        shown.update(shown.task_ids[0], completed=done, total=total)

    try:
        yield on_progress
    finally:
        if shown is not None:
            shown.stop()


def size(count: int) -> str:
    """Bytes as a person reads them.

    >>> size(999), size(2_345_678)
    ('999 B', '2.3 MB')
    """
    value, units = float(count), ["B", "kB", "MB", "GB"]
    while value >= _STEP and len(units) > 1:
        value, units = value / _STEP, units[1:]
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"
