"""Run one of our own modules in a process of its own, so that what takes long or much memory takes none of ours."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from disavow.errors import TooManyRequests
from disavow.proof.keys import child_environment


def run_module(
    module: str, arguments: Sequence[str], data: bytes, *, at_once: threading.Semaphore, busy: str, seconds: float
) -> dict[str, Any] | None:
    """Run a module with data on its standard input, and read the JSON that it prints.

    Args:
        module: Its full name.
        arguments: On its command line.
        data: What it reads.
        at_once: How many of its kind may run.
        busy: What is said where so many do.
        seconds: How long it may take.

    Returns:
        What it printed; None where it failed, or took too long.

    Raises:
        TooManyRequests: So many run already.

    """
    if not at_once.acquire(blocking=False):
        raise TooManyRequests(busy)
    try:
        done = subprocess.run(  # noqa: S603 - ourselves, and paths that the operator gave
            [sys.executable, "-m", module, *arguments],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
            timeout=seconds,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
    finally:
        at_once.release()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
