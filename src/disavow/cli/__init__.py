"""The command line: parse, call, print. Heavy imports stay inside commands."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
from collections.abc import Callable

from disavow.errors import NO_ROOM, REFUSED, ConfigError, DisavowError, StorageError, StorageFull, StrategyError

DEBUG = "DISAVOW_DEBUG"
"""Set to anything, it makes an internal error, or that of a registered strategy, show where it came from."""

INTERNAL_CODE = "DSV-900"
"""Code of an error that nobody foresaw."""

INTERNAL = 70
"""Exit code of an error that nobody foresaw (EX_SOFTWARE): never one that is also a verdict."""

BROKEN_PIPE = 141
"""Exit code where the reader of our output has gone, as of a program that SIGPIPE ends."""

INTERRUPTED = 130

_GARBAGE_AFTER = 50_000
"""New objects before garbage is looked for; Python's own 700 are for programs that import less."""


def main() -> None:
    """Run `disavow`."""
    # imports make many objects that stay: to look for garbage among them takes a seventh of a light command
    gc.set_threshold(_GARBAGE_AFTER)
    atexit.register(gc.freeze)  # and what is left at the end needs no search
    from disavow.cli.app import app_for

    run(app_for(sys.argv[1:]))


def run(command: Callable[[], object]) -> None:
    """Run a command line and end the process as `disavow` ends.

    Every refusal is one line on stderr and an exit code of its own; see `errors`.

    Args:
        command: A typer application, or a function that imports and calls one.

    Raises:
        SystemExit: With the exit code of what went wrong, or with that of the application.

    """
    try:
        try:
            command()
        finally:
            sys.stdout.flush()
    except DisavowError as error:
        _refuse(error)
    except BrokenPipeError:
        _end_broken_pipe()
    except SystemExit as ended:
        _end(ended)
    except OSError as error:
        _refuse(_error_of(error))
    except Exception as error:
        _report_internal_error(error)


def _refuse(error: DisavowError) -> None:
    from disavow.domain import escaped

    if isinstance(error, StrategyError) and os.environ.get(DEBUG):
        traceback.print_exception(error)
    for line in str(error).splitlines():
        print(f"error {error.code}: {escaped(line)}", file=sys.stderr)
    sys.exit(error.exit_code)


def _error_of(error: OSError) -> DisavowError:
    """What the operating system refused, as an error of ours: it is no defect of disavow."""
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    what = f"{where}{error.strerror or error}"
    if error.errno in NO_ROOM:
        return StorageFull(what)
    return StorageError(what) if error.errno in REFUSED else ConfigError(what)


def _end(ended: SystemExit) -> None:
    """End as the library of the command line wants to; but it takes some ends for 1, which is a verdict here."""
    import click

    match ended.__context__:
        case BrokenPipeError():
            _end_broken_pipe()
        case click.Abort():  # an end of input where a question was asked
            sys.exit(INTERRUPTED)
    raise ended


def _end_broken_pipe() -> None:
    # there is nobody to tell; and what is still in the buffer must not be tried again when Python ends
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(BROKEN_PIPE)


def _report_internal_error(error: Exception) -> None:
    """Say that this is a defect of disavow, and how to show more of it."""
    from disavow.domain import escaped

    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    what = escaped(" ".join(f"{type(error).__name__}: {error}".split()))
    print(
        f"internal error {INTERNAL_CODE}: {what}; this is a defect of disavow: please report it, with what "
        f"{DEBUG}=1 shows before this line",
        file=sys.stderr,
    )
    sys.exit(INTERNAL)
