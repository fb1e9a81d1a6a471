"""Capturing CUDA graphs while the rest of the process goes on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, **options: Any) -> Iterator[None]:
    """Capture what is launched in here by this thread. Others may use the GPU meanwhile.

    Old graphs and tensors in reference cycles are freed before: freeing them during the capture would spoil it.
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
