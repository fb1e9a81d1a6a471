"""What several commands check before their work: values of options, files for plots, and installed extras."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from disavow.errors import ConfigError, MissingExtra, how_to_install

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OURS = ("disavow", "reproduction", "benchmarks")

PLOT_FORMATS = (".png", ".pdf", ".svg")
"""What a plot can be written as."""


def require(condition: bool, option: str, value: object, allowed: str) -> None:
    """Refuse an option in the form that all refusals have."""
    if not condition:
        raise ConfigError(f"--{option} is {value}; allowed: {allowed}")


def check_file(option: str, path: Path) -> None:
    """Find out before the work, not after it, that a file cannot be written."""
    require(path.parent.is_dir(), option, path, f"a file in a directory that exists; {path.parent} does not")
    require(not path.is_dir(), option, path, "a file; this is a directory")


def check_plot(path: Path) -> None:
    """The same for a plot, which also needs a known format and something to draw with."""
    named = f"a file name that ends in {', '.join(PLOT_FORMATS)}"
    require(path.suffix.lower() in PLOT_FORMATS, "plot", path, named)
    check_file("plot", path)
    with needs("train"):
        import matplotlib.figure  # noqa: F401


def write_plot(path: Path, figure: Figure, option: str = "plot") -> None:
    """Write a figure as the file's suffix says; the option is the one that named the file, or its folder."""
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix[1:].lower())
    try:
        path.write_bytes(image.getvalue())
    except OSError as error:
        raise ConfigError(f"--{option} is {path}; allowed: a file that can be written ({error.strerror})") from None


def needs(extra: str) -> AbstractContextManager[None]:
    """Turn a failed import of a third-party package into the command that installs an extra."""
    return _installed_by(how_to_install(extra))


def needs_requirements(file: str) -> AbstractContextManager[None]:
    """Turn a failed import of a third-party package into the command that installs a file of requirements."""
    return _installed_by(f"in a clone of disavow: pip install --constraint constraints.txt --requirement {file}")


@contextmanager
def _installed_by(command: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OURS:
            raise
        raise MissingExtra(f"this command needs {error.name}; {command}") from None
