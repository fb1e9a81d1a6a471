"""Whatever users import says what it takes, returns and raises."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import disavow

SOURCE = Path(disavow.__file__).parent
SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")
BESIDE = {
    "KIPFedAvg": "flower/strategy.py",
    "evidence_mod": "flower/client.py",
    "verify": "proof/verify.py",
    "examine": "proof/verify.py",
}
"""Public names that `disavow` itself does not offer, and where they are: Flower need not be installed."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public() -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Every function and class of docs/api.md, and the methods of these classes, also from bases beside them."""
    for name, path in BESIDE.items():
        yield from documented(name, definition(SOURCE / path, name))
    for name in sorted(set(disavow.__all__) - {"__version__"}):
        found = inspect.unwrap(getattr(disavow, name))
        bases = found.__mro__[1:] if isinstance(found, type) else ()
        for kind in (*reversed(bases), found):  # what a class overrides comes after what it overrides
            if kind.__module__.rpartition(".")[0] == found.__module__.rpartition(".")[0]:
                module = importlib.import_module(kind.__module__)
                yield from documented(name, definition(Path(str(module.__file__)), kind.__name__))


def definition(path: Path, name: str) -> ast.ClassDef | Function:
    [found] = [
        node for node in ast.parse(path.read_text(encoding="utf-8")).body if getattr(node, "name", "") == name
    ]
    assert isinstance(found, ast.ClassDef | ast.FunctionDef)
    return found


def documented(name: str, found: ast.ClassDef | Function) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    yield name, found
    for node in found.body if isinstance(found, ast.ClassDef) else ():
        if isinstance(node, Function) and (node.name == "__init__" or not node.name.startswith("_")):
            yield f"{name}.{node.name}", node


PUBLIC = dict(public())


def docstring(name: str) -> str:
    """What is said of a name; a class may say what making one takes."""
    text = ast.get_docstring(PUBLIC[name]) or ""
    return text or (docstring(name.removesuffix(".__init__")) if name.endswith(".__init__") else "")


def sections(text: str) -> dict[str, str]:
    """The Google-style sections of a docstring."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def decorators(node: Function) -> set[str]:
    return {ast.unparse(each).split("(")[0].rpartition(".")[2] for each in node.decorator_list}


def raised(node: ast.AST) -> bool:
    """Whether the body itself raises an error of its own making, and not one that it caught."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            return ast.unparse(child.exc.func) not in {"NotImplementedError", "AttributeError"}
        if raised(child):
            return True
    return False


@pytest.mark.parametrize("name", PUBLIC)
def test_what_users_import_says_what_it_takes_returns_and_raises(name: str) -> None:
    node = PUBLIC[name]
    text = docstring(name)
    assert text, "no docstring"
    if (
        isinstance(node, ast.ClassDef)
        or text.startswith("See `")
        or decorators(node) & {"property", "cached_property"}
    ):
        return
    found = sections(text)
    inherited = "Takes what `" in text  # beside its own, which are given by name
    given = node.args.kwonlyargs if inherited else [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    taken = [each.arg for each in given if each.arg not in ("self", "cls")]
    missing = [each for each in taken if not re.search(rf"^ +\*?{each}\b.*:", found.get("Args", ""), re.MULTILINE)]
    assert missing == []
    if node.name != "__init__" and ast.unparse(node.returns or ast.Constant(None)) not in ("None", "NoReturn"):
        assert {"Returns", "Yields"} & found.keys()
    if raised(node):
        assert "Raises" in found


@pytest.mark.parametrize("name", [name for name, node in PUBLIC.items() if isinstance(node, ast.ClassDef)])
def test_what_a_class_holds_is_documented(name: str) -> None:
    """Each field by a docstring of its own, in a section of the class, or in its text."""
    node = PUBLIC[name]
    assert isinstance(node, ast.ClassDef)
    text = ast.get_docstring(node) or ""
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        own = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        said = re.search(rf"`{field.target.id}\b|^ +{field.target.id}:", text, re.MULTILINE)
        assert field.target.id.startswith("_") or own or said, field.target.id
