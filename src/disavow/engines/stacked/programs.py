"""Faster forms of a step: compiled by Inductor, and captured as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from disavow.engines.graphs import capturing
from disavow.engines.stacked.step import Advance, Step

_FORMS = 64
"""Torch gives up on a function after 8 shapes; the launcher bounds how many it asks for."""


def compiled(step: Step) -> Advance:
    """The step as one compiled program for each form.

    One for any number of rows is not to be had: `vmap` fixes the length of its axis when it is traced.
    """
    return torch.compile(step.__call__, fullgraph=True, dynamic=False)


def many_forms() -> AbstractContextManager[object]:
    """Where compiled steps run, so that torch does not give up on them."""
    context: AbstractContextManager[object] = torch._dynamo.config.patch(recompile_limit=_FORMS)
    return context


def captured(work: Callable[[], None], pool: Any) -> Callable[[], None]:
    """The work as a CUDA graph, which the returned function replays. It is done a few times on the way there.

    Graphs of one pool share their memory: nothing that one allocates outlives its replay.
    """
    current, beside = torch.cuda.current_stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    try:
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            # libraries prepare themselves on first use, which must not happen while capturing
            work()
            work()
        current.wait_stream(beside)
        with capturing(graph, pool=pool, stream=beside):
            work()
    except RuntimeError as error:
        # what goes wrong while capturing may come out as another error
        if "out of memory" in str(error) or "out of memory" in str(error.__context__):
            raise torch.OutOfMemoryError(str(error)) from error
        raise
    finally:
        # a capture that breaks off leaves its own stream behind
        torch.cuda.set_stream(current)
    return graph.replay
