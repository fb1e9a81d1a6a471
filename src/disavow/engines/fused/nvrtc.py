"""The kernels for one layer, compiled on first use by the compiler that comes with PyTorch's CUDA build (NVRTC)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Protocol

import torch
from torch import Tensor

from disavow.engines.compiled.build import NoKernels

_CARVEOUT = 9
"""CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, in per cent."""


class Kernel(Protocol):
    """A compiled kernel: called with its grid, the threads of a block, and its arguments."""

    def __call__(self, blocks: int, threads: int, arguments: Sequence[Tensor | int]) -> None:
        """Queue it on the current stream."""


def compile_kernel(source: str, name: str, defines: Mapping[str, int] | None = None) -> Kernel:
    """Compile a kernel for a shape; the same shape is compiled once in a process.

    Args:
        source: The file.
        name: The kernel in it.
        defines: Its shape, as macros.

    Returns:
        The kernel, ready to be launched.

    Raises:
        NoKernels: PyTorch cannot compile for this GPU.
    """
    shape = {**(defines or {}), name.upper(): 1}
    return _compiled(source, name, tuple(sorted(shape.items())), torch.cuda.current_device())


@cache
def _compiled(source: str, name: str, defines: tuple[tuple[str, int], ...], device: int) -> Kernel:
    code = text_of(source, dict(defines))
    try:
        built = torch.cuda._compile_kernel(code, name)
    except (AttributeError, ImportError, OSError, RuntimeError) as error:
        raise NoKernels(f"PyTorch cannot compile {name} for GPU {device}: {error}") from None

    _prefer_shared_memory(built)

    def launch(blocks: int, threads: int, arguments: Sequence[Tensor | int]) -> None:
        built(grid=(blocks, 1, 1), block=(threads, 1, 1), args=list(arguments))

    return launch


def _prefer_shared_memory(built: Any) -> None:
    """Ask for as much shared memory as there is, so that more blocks fit; without it they are only slower."""
    with contextlib.suppress(AttributeError, OSError):
        utilities = torch.cuda._utils
        find = getattr(utilities, "_get_gpu_runtime_library", None) or utilities._get_cuda_library
        find().cuFuncSetAttribute(built.func, _CARVEOUT, 100)


def text_of(source: str, defines: Mapping[str, int]) -> str:
    """Write a shape above a source.

    Args:
        source: The file.
        defines: The shape, as macros.

    Returns:
        What is compiled.
    """
    code = resources.files("disavow.engines.fused").joinpath(source).read_text()
    return "".join(f"#define {name} {value}\n" for name, value in defines.items()) + code
