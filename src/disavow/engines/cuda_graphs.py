"""Capturing CUDA graphs while the rest of the process goes on."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, **options: Any) -> Iterator[None]:
    """Capture what is launched in here by this thread. Others may use the GPU meanwhile.

    Old graphs and tensors in reference cycles are freed before: freeing them during the capture would spoil it.

    Args:
        graph: The graph to fill.
        options: For `torch.cuda.graph`, such as a memory pool and a stream.
    """
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local", **options):
            yield
    finally:
        if collecting:
            gc.enable()


def captured(work: Callable[[], None], pool: object) -> torch.cuda.CUDAGraph:
    """Capture work as a CUDA graph. It is done twice on the way there.

    Graphs of one pool share their memory: nothing that one allocates outlives its replay.

    Args:
        work: Launches kernels that read and write tensors which stay where they are.
        pool: A memory pool for graphs.

    Returns:
        The graph, to be replayed.

    Raises:
        torch.OutOfMemoryError: There is no room for what it allocates.
        RuntimeError: Something in it cannot be captured.
    """
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    try:
        side.wait_stream(current)
        with torch.cuda.stream(side):
            # libraries prepare themselves on first use, which must not happen while capturing
            work()
            work()
        current.wait_stream(side)
        with capturing(graph, pool=pool, stream=side):
            work()
    except RuntimeError as error:
        # what goes wrong while capturing may come out as another error
        if "out of memory" in str(error) or "out of memory" in str(error.__context__):
            raise torch.OutOfMemoryError(str(error)) from error
        raise
    finally:
        # a capture that breaks off leaves its own stream behind
        torch.cuda.set_stream(current)
    return graph
