"""Where a result comes from: versions, device, and the commit of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import torch

from disavow import __version__
from disavow.config import EngineSettings
from disavow.engines.factory import device_of
from disavow.proof.keys import child_environment
from disavow.rounds.threads import cores
from reproduction.lines import Versions

VARIABLE = "DISAVOW_COMMIT"
"""The environment variable that names the commit where the code is no git checkout, such as in a container."""

_CODE = ("src/disavow", "reproduction")
"""What results depend on, from the root of the repository."""


def versions() -> Versions:
    """What this process runs with."""
    return Versions(
        disavow=__version__, python=platform.python_version(), torch=torch.__version__, numpy=np.__version__
    )


def device(settings: EngineSettings) -> str:
    """The device that trains, by its maker's name; for a CPU with the number of its cores."""
    if device_of(settings).type == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU, {cores()} cores ({processor()})"


def processor() -> str:
    """The processor's name; Linux keeps it where Python does not look."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


@cache
def commit() -> str:
    """The commit of this code; with a plus sign where files were changed since, "unknown" where there is none."""
    if commit_id := os.environ.get(VARIABLE):
        return commit_id
    root = Path(__file__).parents[1]
    head = _git(root, "rev-parse", "HEAD")
    if not head:
        return "unknown"
    return head + "+" if _git(root, "status", "--porcelain", "--", *_CODE) else head


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - words of ours
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - whichever git there is
            env=child_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
