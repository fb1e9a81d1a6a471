"""Workers that are forked from a process that has imported torch: a start takes no two seconds.

What a worker does, raises or dies of is the same; how it is started, `test_processes` shows.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from disavow.engines.pool import PoolTrainer

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["disavow.engines.pool.worker", "tests.engines.pool.builders"])


class ForkedWorker:
    """A worker process, in so far as the pool uses a `Popen`."""

    def __init__(self, descriptor: int) -> None:
        with closing(socket.socket(fileno=os.dup(descriptor))) as theirs:
            self._process = _CONTEXT.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
        self.pid = self._process.pid

    def kill(self) -> None:
        """See `Popen`."""
        self._process.kill()

    def wait(self, seconds: float | None = None) -> int:
        """See `Popen`."""
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("worker", seconds or 0.0)
        return self._process.exitcode


@contextmanager
def forked_pool() -> Iterator[PoolTrainer]:
    """A pool of two workers; whatever pool starts workers meanwhile forks them too."""
    with pytest.MonkeyPatch.context() as patch, closing(PoolTrainer(2, start_after=0.0)) as trainer:
        patch.setattr("disavow.engines.pool.trainer._launch", ForkedWorker)
        yield trainer


def _serve(theirs: socket.socket) -> None:
    from disavow.engines.pool.worker import serve

    serve(theirs.detach())
