"""Put the verify page together: a template, a style and modules of JavaScript become one file."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib.metadata import version
from importlib.resources import files

_FOLDER = files(__package__) / "page"
_MAIN = "main"
_IMPORT = re.compile(r'^import (\{[^}]*\}|\* as \w+) from "\./(\w+)\.mjs";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)

_NEEDED = (
    ("proof", "Proof", "The server’s answer. A receipt can be checked in its place."),
    (
        "keys",
        "Server’s public key",
        "Or its list of keys. Get it from somewhere you trust, and not from whoever sent you the proof.",
    ),
)
_OPTIONAL = (
    ("opening", "Opening", "The client’s own file. It says whom the proof is about, so keep it to yourself."),
    ("checkpoint", "Older checkpoint", "Kept by somebody from before. Shows whether history was rewritten."),
    ("receipts", "Receipts", "What the client kept of its rounds. Shows whether one is left out."),
    ("word", "Client’s word", "Where single records were erased: the client’s signed word that it deleted them."),
    (
        "witnesses",
        "Keys of witnesses",
        "One a line. Shows whether others, whom you trust and the server does not run, saw the same log.",
    ),
    (
        "serving",
        "Serving statement",
        "What the server signed of the model that it serves. Shows whether the proof is about that one.",
    ),
    ("model", "Model in use", "Shows whether the proof is about this model. It is read, and goes nowhere."),
)


def assemble() -> bytes:
    """Put the verify page together.

    Returns:
        The page. Its policy allows no network, and no script or style but the ones in it.

    """
    script, style = f"\n{_script()}", f"\n{_read('style.css')}"
    policy = {
        "default-src": "'none'",
        "script-src": hash_source(script),
        "style-src": hash_source(style),
        "worker-src": "blob:",  # the worker is made of the script itself, and has the same policy
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    parts = {
        "policy": "; ".join(f"{name} {allowed}" for name, allowed in policy.items()),
        "style": style,
        "version": html.escape(version("disavow")),
        "needed": "\n".join(_row(*each) for each in _NEEDED),
        "optional": "\n".join(_row(*each) for each in _OPTIONAL),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("page.html")).encode()


@cache
def _script() -> str:
    """All modules, each in a function of its own, those that it imports before it."""
    found: dict[str, str] = {}

    def add(name: str) -> None:
        source = _read(f"{name}.mjs")
        for _, imported in _IMPORT.findall(source):
            if imported not in found:
                add(imported)
        found[name] = _as_function(name, source)

    add(_MAIN)
    script = '"use strict";\n{\nconst modules = {};\n' + "".join(found.values()) + "}\n"
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise ValueError("a script in a page cannot hold what ends it")
    return script


def _as_function(name: str, source: str) -> str:
    """A module as a function that gives its exports; browsers load no modules from a file without a server."""
    body = _IMPORT.sub(_constant, source)
    exports = _EXPORT.findall(body)
    body = _EXPORT.sub("", body)
    if re.search(r"^(?:import|export) ", body, re.MULTILINE):
        raise ValueError(f"{name}.mjs imports or exports in another form than is read here")
    return f"modules.{name} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();\n"


def _constant(found: re.Match[str]) -> str:
    names, module = found[1].removeprefix("* as "), found[2]
    return f"const {names} = modules.{module};\n"


def _row(role: str, name: str, about: str) -> str:
    several = " multiple" if role == "receipts" else ""
    return (
        f'<li class="role" id="row-{role}"><div class="about"><span class="name">{name}</span>'
        f'<p class="help" id="help-{role}">{about}</p></div><div class="choice"><output id="name-{role}"></output>'
        f'<input type="file" id="file-{role}" class="hidden" aria-describedby="help-{role}"{several}>'
        f'<label for="file-{role}" class="button">Choose<span class="hidden"> the file: {name}</span></label>'
        f'<button type="button" id="remove-{role}" hidden>Remove</button></div></li>'
    )


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def hash_source(text: str) -> str:
    """Name a script or style in a Content-Security-Policy by its hash.

    Args:
        text: All that stands between its tags.

    """
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
