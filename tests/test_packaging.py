"""What an auditor installs is enough for an auditor; whoever needs more is told what to install."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import disavow
from disavow.errors import how_to_install
from disavow.verifier.assemble import assemble
from tests.cli.process import environment

# distribution -> the module it brings
TRAIN = {
    "torch": "torch",
    "numpy": "numpy",
    "scipy": "scipy",
    "scikit-learn": "sklearn",
    "safetensors": "safetensors",
    "zstandard": "zstandard",
    "sqlalchemy": "sqlalchemy",
    "alembic": "alembic",
    "pydantic": "pydantic",
    "matplotlib": "matplotlib",
    "dp-accounting": "dp_accounting",
    "k-means-constrained": "k_means_constrained",
    "threadpoolctl": "threadpoolctl",
    "datasets": "datasets",
    "flwr-datasets": "flwr_datasets",
    "pyarrow": "pyarrow",
    "pillow": "PIL",
    "flwr": "flwr",
}


def _required(name: str, marker: str = "") -> set[str]:
    """What a distribution needs: always, or for one of its extras."""
    wanted = importlib.metadata.requires(name) or []
    chosen = [one for one in wanted if (marker in one if marker else "extra ==" not in one)]
    return {re.split(r"[ <>=!~;\[(]", one)[0].lower().replace("_", "-") for one in chosen}


def _base() -> set[str]:
    """The base install, with all that it brings: typer itself may need pydantic, for one."""
    found: set[str] = set()
    queue = _required("disavow")
    while queue:
        name = queue.pop()
        found.add(name)
        try:
            queue |= _required(name) - found
        except importlib.metadata.PackageNotFoundError:  # for another system than this one
            continue
    return found


BLOCKED = [module for name, module in TRAIN.items() if name not in _base()]

PRELUDE = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def without_extras(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code where only the base install can be imported."""
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return without_extras("from disavow.cli import main; main()", *arguments)


def test_the_block_works_and_covers_the_extras() -> None:
    assert without_extras("import numpy").returncode != 0
    assert {"torch", "numpy", "scipy", "sqlalchemy", "safetensors", "zstandard"} <= set(BLOCKED)
    named = ("ledger", "train", "kmeans", "data", "flower")
    extras = {name for extra in named for name in _required("disavow", f'extra == "{extra}"')}
    assert extras - TRAIN.keys() == {"disavow"}  # extras that need other extras
    assert len(extras) > 5


def test_the_auditors_part_imports_without_the_extras() -> None:
    result = without_extras("import disavow, disavow.proof.commitment; print(disavow.__version__)")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip() == disavow.__version__


def test_the_verify_page_is_written_without_the_extras(tmp_path: Path) -> None:
    result = command("verifier", "-o", str(tmp_path / "verify.html"))
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "verify.html").read_bytes() == assemble()


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_need_no_extras(argument: str) -> None:
    result = command(argument)
    assert (result.returncode, result.stderr) == (0, "")
    assert ("disavow " + disavow.__version__ if argument == "--version" else "Federated") in result.stdout


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("status x", "ledger"),
        ("fsck x", "ledger"),
        ("erase x y", "ledger"),
        ("resume x", "train"),
        ("train c.toml --run x", "train"),
        ("demo", "train"),
    ],
)
def test_a_command_that_needs_an_extra_says_so_in_one_line(arguments: str, extra: str) -> None:
    result = command(*arguments.split())
    assert result.returncode == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert re.fullmatch(rf"error DSV-102: this command needs \w+; {re.escape(how_to_install(extra))}", line)


def test_every_folder_of_code_is_a_package_and_types_are_marked() -> None:
    """Setuptools leaves out a folder without an __init__.py, and nobody notices before the wheel is installed."""
    root = Path(disavow.__file__).parent
    assert (root / "py.typed").is_file()
    folders = {path.parent for path in root.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_public_names_are_there() -> None:
    assert [name for name in disavow.__all__ if not hasattr(disavow, name)] == []


def test_no_data_is_in_the_repository() -> None:
    root = Path(disavow.__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("not in the repository")
    tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    assert [name for name in tracked.splitlines() if name.endswith((".parquet", ".arrow", ".npy", ".npz"))] == []
