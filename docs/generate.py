"""Write the reference pages that are made from the code: `python docs/generate.py`. A test keeps them current."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import typer.main

import disavow
from disavow import errors
from disavow.cli import INTERNAL, INTERNAL_CODE
from disavow.cli.app import app
from disavow.cli.requests import OVERDUE
from disavow.config import CHANGEABLE, Settings, allowed, meaning, sections
from disavow.server import access

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
            lines.append(f"| `{key}` | {default} | {allowed(field)} | {meaning(field)} |")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Every command with its arguments, and every exit code."""
    lines = [
        "# Commands and exit codes",
        "",
        "Results go to stdout, progress to stderr; there are no colours or bars when the output is not a terminal.",
        "`--json` prints a result for machines.",
        "",
        "*Made from `src/disavow/cli/*_commands.py` and `src/disavow/errors.py` by `python docs/generate.py`.*",
    ]
    group = typer.main.get_command(app)
    for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]
        lines += _command(f"disavow {name}", command, "##")
        for further, part in getattr(command, "commands", {}).items():
            lines += _command(f"disavow {name} {further}", part, "###")
    lines += ["", "## Exit codes", "", "| code | error | meaning |", "|---|---|---|", "| 0 | | success |"]
    lines += ["| 1 | | `fsck` or `audit` found something |", "| 3 | | `verify`: valid, but it names nobody |"]
    lines.append("| 16 | | `audit --detect` found nothing, and could not have seen the advantage asked about |")
    lines.append(f"| {OVERDUE} | | `due`: a request is overdue |")
    for kind in _tree(errors.DisavowError):
        lines.append(f"| {kind.exit_code} | `{kind.__name__}` | {_text(kind)} |")
    lines += ["| 70 | | an internal error: a defect of disavow; `DISAVOW_DEBUG=1` shows where it came from |"]
    lines += ["| 130 | | interrupted from the keyboard |", "| 141 | | whoever read the output has gone |"]
    return "\n".join(lines) + "\n"


def _command(called: str, command: Any, heading: str) -> list[str]:
    """A command with its options; those that are hidden are for disavow itself."""
    usage = " ".join([called, *_arguments(command)])
    lines = ["", f"{heading} `{usage}`", "", re.sub(r"\n +", "\n", (command.help or "").strip())]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help" and not p.hidden]
    if options:
        lines += ["", "| option | meaning |", "|---|---|"]
        lines += [f"| `{', '.join(o.opts)}` | {o.help} |" for o in options]
    return lines


def _arguments(command: object) -> list[str]:
    found = []
    for parameter in command.params:  # type: ignore[attr-defined]
        if parameter.param_type_name == "argument":
            shown = parameter.metavar or parameter.name.upper()
            found.append(shown if parameter.required else f"[{shown}]")
    return found


def _tree(kind: type[errors.DisavowError]) -> list[type[errors.DisavowError]]:
    own = [child for child in kind.__subclasses__() if child.__module__ == kind.__module__]  # tests declare others
    return [kind] + [leaf for child in own for leaf in _tree(child)]


def error_codes() -> str:
    """Every error with its code."""
    lines = [
        "# Errors",
        "",
        "A command that refuses prints one line on stderr, with a code that does not change between versions:",
        "",
        "```",
        "error DSV-203: runs/first holds no run; `disavow train CONFIG.toml --run runs/first` starts one",
        "```",
        "",
        "From Python the same error is an exception with the attributes `code` and `exit_code`. All of them derive",
        "from `disavow.DisavowError`.",
        "",
        "*Made from `src/disavow/errors.py` by `python docs/generate.py`.*",
        "",
        "| code | error | exit code | meaning |",
        "|---|---|---|---|",
    ]
    kinds = sorted(_tree(errors.DisavowError), key=lambda kind: kind.code)
    lines += [f"| {kind.code} | `{kind.__name__}` | {kind.exit_code} | {_text(kind)} |" for kind in kinds]
    defect = "A defect of disavow; `DISAVOW_DEBUG=1` shows where it came from."
    lines.append(f"| {INTERNAL_CODE} | | {INTERNAL} | {defect} |")
    return "\n".join(lines) + "\n"


def api() -> str:
    """Every public name, from its docstring."""
    lines = [
        "# Python API",
        "",
        "What `import disavow` offers. Everything else is internal and may change.",
        "",
        "*Made from the docstrings by `python docs/generate.py`.*",
    ]
    for name in sorted(set(disavow.__all__) - {"__version__"}):
        found = getattr(disavow, name)
        lines += ["", f"## `disavow.{name}`", "", *_documented(name, found)]
        if name == "Federation":
            members = [each for kind in found.__mro__[:-1] for each in vars(kind).items()]
            for method, member in members:
                private = method.startswith("_") or method in found.__dataclass_fields__
                if not private and (documented := _member(method, member)):
                    lines += ["", *documented]
    return "\n".join(lines) + "\n"


def _member(name: str, member: object) -> list[str]:
    if isinstance(member, property):
        return [f"### `{name}`", "", *_docstring(member)]
    function = getattr(member, "__func__", member)
    return [f"### `{name}{_signature(function)}`", "", *_docstring(function)] if callable(function) else []


def _documented(name: str, found: object) -> list[str]:
    shown = isinstance(found, type) and not issubclass(found, Exception | str)
    signature = [f"`{name}{_signature(found)}`", ""] if shown or inspect.isfunction(found) else []
    return [*signature, *_docstring(found)]


def _signature(found: object) -> str:
    """Names and defaults of the arguments; where they are many, on lines of their own they would be no shorter."""
    parameters = [p for p in inspect.signature(found).parameters.values() if p.name not in ("self", "cls")]  # type: ignore[arg-type]
    return f"({', '.join(p.name for p in parameters if not p.name.startswith('_'))})"


def _docstring(found: object) -> list[str]:
    """A docstring as Markdown: sections in Google style become lists."""
    lines: list[str] = []
    for line in (inspect.getdoc(found) or "").splitlines():
        if line in ("Args:", "Raises:", "Returns:"):
            lines += [f"*{line[:-1]}*", ""]
        elif line.startswith("    ") and not line.startswith("     ") and re.match(r" {4}\w+: ", line):
            name, about = line.strip().split(": ", 1)
            lines.append(f"* `{name}`: {about}")
        elif line.startswith("        ") and lines and lines[-1].startswith("* "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return lines


def _text(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def server() -> str:
    """The page about the service, with its table of routes and roles."""
    text = (HERE / "server.md").read_text(encoding="utf-8")
    before, mark, rest = text.partition("<!-- routes -->\n")
    _, end, after = rest.partition("<!-- end of routes -->")
    return f"{before}{mark}{access.markdown()}{end}{after}"


PAGES = {
    "configuration.md": configuration,
    "commands.md": commands,
    "errors.md": error_codes,
    "api.md": api,
    "server.md": server,
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (HERE / page).write_text(make(), encoding="utf-8")
    sys.stdout.write(f"wrote {', '.join(PAGES)}\n")
