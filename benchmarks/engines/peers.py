"""The peers' environments: built on demand, kept in a cache folder, sharing the PyTorch that runs this.

All contestants then use the same build of PyTorch, and its gigabytes are not installed again.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from disavow.proof.keys import child_environment

CACHE = Path("~/.cache/disavow/bench")
"""Where environments and data are kept unless told otherwise."""

CONTESTANTS = Path(__file__).parent
"""The folder that holds the package `contestants`."""

_MADE = "disavow-bench.json"
_MINUTES = 20
_LAST_LINES = 3

Command = Sequence[str | Path]
RunCommand = Callable[[Command], None]
OnBuild = Callable[[Path], None]


class PeerUnavailable(Exception):
    """A peer's environment cannot be built here; the message says why."""


@dataclass(frozen=True)
class Peer:
    """Somebody to be compared with: what pip installs, and the launcher its documentation tells to use."""

    name: str
    requirement: str | None
    launcher: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name with the version, which also names the environment.

        >>> PEERS["flower"].label
        'flower-1.41.0'
        """
        return f"{self.name}-{self.requirement.partition('==')[2]}" if self.requirement else self.name


PEERS = {
    "flower": Peer("flower", "flwr[simulation]==1.41.0"),
    "pfl": Peer(
        "pfl",
        "pfl==0.6.0",
        ("-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--nproc-per-node={workers}"),
    ),
    "plain": Peer("plain", None),
}


def run_command(command: Command) -> None:
    """Run a command to its end; one that fails raises `PeerUnavailable` with the last it said."""
    try:
        done = subprocess.run(
            list(command),
            env=child_environment(),
            capture_output=True,
            text=True,
            timeout=60 * _MINUTES,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"{_shown(command)} took more than {_MINUTES} minutes") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise PeerUnavailable(f"{_shown(command)} failed: {' / '.join(said[-_LAST_LINES:]) or 'it said nothing'}")


def interpreter(
    peer: Peer, cache: Path, *, run: RunCommand = run_command, on_build: OnBuild = lambda folder: None
) -> Path:
    """The Python of a peer's environment, which is built unless it is there and fits."""
    if peer.requirement is None:
        return Path(sys.executable)
    folder = cache.expanduser() / peer.label
    python = folder / "bin" / "python"
    made = {"requirement": peer.requirement, **_shared()}
    if not (python.exists() and _read(folder / _MADE) == made):
        on_build(folder)
        _build(peer.requirement, folder, run)
        (folder / _MADE).write_text(json.dumps(made, indent=2), encoding="utf-8")
    return python


def command(peer: Peer, python: Path, workers: int) -> list[str]:
    """How a peer is started, up to what is asked of it."""
    launcher = [part.format(workers=workers) for part in peer.launcher]
    return [str(python), *launcher, "-m", f"contestants.{peer.name}"]


def _shared() -> dict[str, str]:
    """What an environment takes from the interpreter that runs this; when it changes, it no longer fits."""
    return {
        "python": platform.python_version(),
        "interpreter": sys.prefix,
        "torch": str(torch.__version__),
        "packages": str(Path(torch.__file__).parent.parent),
    }


def _build(requirement: str, folder: Path, run: RunCommand) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    run([sys.executable, "-m", "venv", folder])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    (packages / "shared_torch.pth").write_text(_shared()["packages"] + "\n", encoding="utf-8")
    # What is shared counts as installed. Should a peer ask for another version, pip refuses rather than fetch
    # a PyTorch for CUDA.
    constraints = folder / "constraints.txt"
    constraints.write_text(f"torch=={torch.__version__}\nnumpy=={np.__version__}\n", encoding="utf-8")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--constraint", str(constraints), requirement])


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _shown(command: Command) -> str:
    """The command without the folder of its interpreter."""
    return " ".join([Path(command[0]).name, *map(str, command[1:])])
