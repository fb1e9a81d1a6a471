"""Runs the CUDA kernels on the CPU: the same source, each thread of a block a thread, barriers and all.

Slow, but it finds wrong indices, missing barriers and what is never written, where there is no GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from disavow.engines.fused.nvrtc import Kernel, text_of

COMPILER = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)

_FLAGS = ("-std=c++20", "-O1", "-w", "-fPIC", "-pthread")

_RUNNER = """
#include <barrier>
#include <thread>
#include <vector>
static std::barrier<> *meeting;
extern "C" void meet() { meeting->arrive_and_wait(); }
extern "C" void run_blocks(int blocks, int threads, void (*body)(int, int, void **), void **given) {
  std::barrier<> all(threads);
  meeting = &all;
  auto run = [&](int thread) {
    for (int block = 0; block < blocks; ++block) {
      body(block, thread, given);
      all.arrive_and_wait(); // shared memory belongs to one block at a time
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (auto &other : others) other.join();
}
"""
"""The threads of a block; compiled once, because the headers of threads cost more than any kernel."""

_SHIM = """#pragma once
#include <algorithm>
#include <cmath>
using std::max;
using std::min;
struct Dimension { int x; };
static thread_local Dimension threadIdx, blockIdx;
static Dimension blockDim, gridDim;
extern "C" void meet();
extern "C" void run_blocks(int, int, void (*)(int, int, void **), void **);
#define __global__
#define __device__ static
#define __shared__ static
#define __launch_bounds__(...)
#define __syncthreads() meet()
"""

_CALL = """
static void body(int block, int thread, void **given) {
  threadIdx.x = thread;
  blockIdx.x = block;
  NAME(ARGUMENTS);
}
extern "C" void launch(int blocks, int threads, void **given) {
  blockDim.x = threads;
  gridDim.x = blocks;
  run_blocks(blocks, threads, body, given);
}
"""

_FEW_THREADS = {
    **dict.fromkeys(("conv_forward", "gather", "loss", "loss_of_attributes", "norm_forward", "norm_input"), 1),
    **dict.fromkeys(("direct_forward", "direct_input", "relu_backward", "sgd"), 1),
    **dict.fromkeys(("norm_statistics", "norm_weight"), 4),
}
"""Kernels whose threads share the work in loops, so that fewer of them can do it all."""


class Emulator:
    """`compile_kernel`, on the CPU."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, source: str, name: str, defines: Mapping[str, int] | None = None) -> Kernel:
        """See `compile_kernel`."""
        shape = {**(defines or {}), name.upper(): 1}
        return _emulated(self._folder, source, name, tuple(sorted(shape.items())))


@cache
def _shim(folder: Path) -> Path:
    """What every kernel includes, compiled beforehand: reading those headers takes longer than all the rest."""
    path, runner = folder / "shim.hpp", folder / "runner.cpp"
    path.write_text(_SHIM)
    runner.write_text(_RUNNER)
    if COMPILER is not None:
        target = path.with_name(f"{path.name}.gch")
        subprocess.run([COMPILER, *_FLAGS, "-x", "c++-header", "-o", str(target), str(path)], check=True)
        library = runner.with_suffix(".so")
        subprocess.run([COMPILER, *_FLAGS, "-shared", "-o", str(library), str(runner)], check=True)
    return path


@cache
def _emulated(folder: Path, source: str, name: str, defines: tuple[tuple[str, int], ...]) -> Kernel:
    code = text_of(source, dict(defines))
    signature = re.search(rf"__global__ void (?:__launch_bounds__\(.*?\) )?{name}\((.*?)\) \{{", code, re.DOTALL)
    if signature is None or COMPILER is None:
        raise ValueError(f"{source} has no kernel {name}, or there is no compiler")
    kinds = [re.sub(r"\w+$", "", parameter.strip()) for parameter in signature[1].split(",")]
    values = ", ".join(f"*({kind}*)given[{i}]" for i, kind in enumerate(kinds))
    whole = f'#include "{_shim(folder).name}"\n' + code + _CALL.replace("NAME", name).replace("ARGUMENTS", values)
    path = folder / f"{hashlib.sha256(whole.encode()).hexdigest()[:16]}.so"
    path.with_suffix(".cpp").write_text(whole)
    parts = [str(path.with_suffix(".cpp")), str(folder / "runner.so")]
    subprocess.run([COMPILER, *_FLAGS, "-shared", "-o", str(path), *parts], check=True)
    library = ctypes.CDLL(str(path))

    def launch(blocks: int, threads: int, arguments: Sequence[Tensor | int]) -> None:
        cells = [
            ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_int(a) for a in arguments
        ]
        pointers = [ctypes.cast(ctypes.byref(cell), ctypes.c_void_p) for cell in cells]
        given = (ctypes.c_void_p * len(cells))(*pointers)
        library.launch(blocks, _FEW_THREADS.get(name, threads), given)

    return launch
