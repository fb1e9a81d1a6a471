"""Write the reference pages that are made from the code: `python docs/generate.py`. A test keeps them current."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import typer.main

from disavow import errors
from disavow.cli.app import app
from disavow.config import CHANGEABLE, Settings, allowed, sections

HERE = Path(__file__).parent


def configuration() -> str:
    """Every key of a settings file."""
    lines = [
        "# Settings",
        "",
        "A run is described by one TOML file; `disavow init config.toml` writes one with every key. A key left out",
        "has its default. What cannot be used is refused before anything is written, in one line that names the",
        "key, what it was, and what is allowed.",
        "",
        f"Once a run has started, only {', '.join(f'`{name}`' for name in CHANGEABLE)} may be edited in the",
        "`config.toml` of its directory. Everything else is bound by a digest in its ledger, `[training]` too:",
        "rounds that an erasure undoes are trained again exactly as they were.",
        "",
        "*Made from `src/disavow/config/` by `python docs/generate.py`.*",
    ]
    for name, about, fields in sections():
        lines += ["", f"## `[{name}]`" if name else "## Top level", ""]
        lines += [about, ""] if about else []
        lines += ["| key | default | allowed | meaning |", "|---|---|---|---|"]
        owner = getattr(Settings(), name) if name else Settings()
        for key, field in fields.items():
            value = getattr(owner, key)
            default = "not set" if value is None else f"`{value!r}`".replace("'", '"').replace("True", "true")
            lines.append(f"| `{key}` | {default} | {allowed(field)} | {field.description} |")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Every command with its arguments, and every exit code."""
    lines = [
        "# Commands and exit codes",
        "",
        "Results go to stdout, progress to stderr; there are no colours or bars when the output is not a terminal.",
        "`--json` prints a result for machines.",
        "",
        "*Made from `src/disavow/cli/for_*.py` and `src/disavow/errors.py` by `python docs/generate.py`.*",
    ]
    group = typer.main.get_command(app)
    for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]
        usage = " ".join(["disavow", name, *_arguments(command)])
        lines += ["", f"## `{usage}`", "", re.sub(r"\n +", "\n", (command.help or "").strip())]
        options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
        if options:
            lines += ["", "| option | meaning |", "|---|---|"]
            lines += [f"| `{', '.join(o.opts)}` | {o.help} |" for o in options]
    lines += ["", "## Exit codes", "", "| code | error | meaning |", "|---|---|---|", "| 0 | | success |"]
    lines += ["| 1 | | `fsck` or `audit` found something |", "| 3 | | `verify`: valid, but it names nobody |"]
    lines.append("| 16 | | `audit --detect` found nothing, and could not have seen the advantage asked about |")
    for kind in _tree(errors.DisavowError):
        lines.append(f"| {kind.exit_code} | `{kind.__name__}` | {' '.join((kind.__doc__ or '').split())} |")
    lines += ["| 70 | | an internal error: a defect of disavow; `DISAVOW_DEBUG=1` shows where it came from |"]
    lines += ["| 130 | | interrupted from the keyboard |", "| 141 | | whoever read the output has gone |"]
    return "\n".join(lines) + "\n"


def _arguments(command: object) -> list[str]:
    found = []
    for parameter in command.params:  # type: ignore[attr-defined]
        if parameter.param_type_name == "argument":
            shown = parameter.metavar or parameter.name.upper()
            found.append(shown if parameter.required else f"[{shown}]")
    return found


def _tree(kind: type[errors.DisavowError]) -> list[type[errors.DisavowError]]:
    return [kind] + [leaf for child in kind.__subclasses__() for leaf in _tree(child)]


PAGES = {"configuration.md": configuration, "commands.md": commands}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (HERE / page).write_text(make(), encoding="utf-8")
    sys.stdout.write(f"wrote {', '.join(PAGES)}\n")
