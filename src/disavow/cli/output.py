"""Results go to stdout, progress to stderr; colours and bars only where a person is looking."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import rich.console
    import rich.progress

_PLAIN_WIDTH = 100
_STEP = 1000


class Console:
    """A stream that people read: plain text, and by Rich where it is a terminal.

    Rich is loaded on a terminal alone: it takes as long to load as a light command takes to work.
    """

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr
        self.is_terminal = self._stream.isatty() or bool(os.environ.get("FORCE_COLOR"))

    def print(self, text: str = "", *, style: str | None = None, heading: str = "") -> None:
        """Print a line.

        Args:
            text: What it says.
            style: How a terminal shows it, in Rich's words.
            heading: What stands before it, bold on a terminal.

        """
        if not self.is_terminal:
            print(f"{heading}{text}", file=self._stream, flush=True)
            return
        from rich.text import Text

        self.rich.print(Text.assemble((heading, "bold"), text) if heading else text, style=style)

    def print_table(
        self, headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()
    ) -> None:
        """Print rows in columns that are as wide as what is in them.

        Args:
            headings: The headings of the columns.
            rows: A text for each column. What a row has beyond them is printed under it, a line each.
            right: The headings of columns that are aligned to the right, as numbers are.

        """
        columns = len(headings)
        widths = [max(len(row[at]) for row in (headings, *rows)) for at in range(columns)]
        for number, row in enumerate((headings, *rows)):
            cells = [
                f"{cell:>{width}}" if heading in right else f"{cell:{width}}"
                for heading, cell, width in zip(headings, row, widths, strict=False)
            ]
            self.print("  ".join(cells).rstrip(), style=None if number else "bold")
            for further in row[columns:]:
                self.print(f"{'':{widths[0]}}  {further}")

    @cached_property
    def rich(self) -> rich.console.Console:
        """The same stream, as Rich writes to it."""
        from rich.console import Console

        # no markup: what is printed holds names of runs and clients, which may look like it
        console = Console(stderr=self._stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)
        if not self.is_terminal:
            console.width, console.no_color = _PLAIN_WIDTH, True
        return console

    @property
    def _stream(self) -> Any:
        return sys.stderr if self._stderr else sys.stdout


def results() -> Console:
    """Where results go."""
    return Console(stderr=False)


def progress() -> Console:
    """Where progress goes."""
    return Console(stderr=True)


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


class Bar:
    """How far some work is, on a terminal; elsewhere nothing is shown. Use it as a context manager.

    Args:
        console: Where it is shown.
        what: What the work is called.
        total: How many steps it has; None where that is not known yet.
        done: How many of them are done.

    """

    def __init__(self, console: Console, what: str, total: int | None, done: int = 0) -> None:
        self.done = done
        self._shown: rich.progress.Progress | None = None
        if not console.is_terminal:
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        # results that go elsewhere must not be caught and shown above the bar
        redirect = sys.stdout.isatty()
        self._shown = Progress(*columns, console=console.rich, transient=True, redirect_stdout=redirect)
        self._shown.add_task(what, total=total, completed=done)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to show it."""
        if self._shown is not None:
            self._shown.start()

    def stop(self) -> None:
        """Take it off the terminal."""
        if self._shown is not None:
            self._shown.stop()

    def update(self, done: int | None = None, *, total: int | None = None, what: str | None = None) -> None:
        """Show how many steps are done, how many there are, and what they are; None leaves each as it is."""
        self.done = self.done if done is None else done
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], completed=self.done, total=total, description=what)

    def advance(self, steps: int = 1) -> None:
        """Move the bar on."""
        self.update(self.done + steps)


@contextmanager
def loading(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar for whatever takes time to load and says how far it is; nothing is shown before its first word."""
    with ExitStack() as open_bars:
        shown: Bar | None = None
        showing = ""

        def on_progress(what: str, done: int, total: int | None) -> None:
            nonlocal shown, showing
            if shown is None or what != showing:
                open_bars.close()
                shown, showing = open_bars.enter_context(Bar(console, what, total)), what
            shown.update(done, total=total)

        yield on_progress


def size(count: int) -> str:
    """Bytes as a person reads them.

    >>> size(999), size(2_345_678)
    ('999 B', '2.3 MB')
    """
    value, units = float(count), ["B", "kB", "MB", "GB"]
    while value >= _STEP and len(units) > 1:
        value, units = value / _STEP, units[1:]
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"
