"""`disavow init`."""

from __future__ import annotations

from pathlib import Path

from disavow.cli.output import progress, results
from disavow.config import Settings, to_toml
from disavow.domain import escaped
from disavow.domain.strategies import broken_plugins
from disavow.errors import ConfigError


def init(path: Path) -> None:
    """Write the defaults, commented; never over a file that is there."""
    text = to_toml(Settings())
    for sentence in broken_plugins():
        progress().print(f"warning: {escaped(sentence)}")
    if str(path) == "-":
        print(text, end="")
        return
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists and is never overwritten; name another file") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    results().print(f"wrote {path}; next: disavow train {path} --run runs/first")
