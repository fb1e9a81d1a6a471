"""Runs the CUDA kernels on the CPU: the same source, barriers and products of tensor cores included.

Slow, but it finds wrong indices and what is never written, where there is no GPU. A missing barrier shows
only where a thread reads what a later one has yet to write.
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

_FLAGS = ("-std=c++20", "-O1", "-w", "-fPIC")

_RUNNER = """
#include <setjmp.h>
#include <ucontext.h>
#include <vector>
enum Wait { FINISHED, BLOCK, WARP };
struct Thread {
  jmp_buf here;
  ucontext_t start;
  Wait wait;
};
static std::vector<Thread> all;
static jmp_buf scheduler;
static int running, number_of_blocks;
static void (*work)(int, int, void **);
static void **arguments;
static void pause_for(Wait wait) {
  all[running].wait = wait;
  if (!_setjmp(all[running].here)) _longjmp(scheduler, 1);
}
extern "C" void meet() { pause_for(BLOCK); }
extern "C" void meet_warp() { pause_for(WARP); }
static void begin() {
  for (int block = 0; block < number_of_blocks; ++block) {
    work(block, running, arguments);
    pause_for(BLOCK); // shared memory belongs to one block at a time
  }
  all[running].wait = FINISHED;
  _longjmp(scheduler, 1);
}
static Wait go_on(int thread, bool first) {
  running = thread;
  if (!_setjmp(scheduler)) {
    if (first) setcontext(&all[thread].start);
    _longjmp(all[thread].here, 1);
  }
  return all[running].wait;
}
// Threads of a warp run one after the other up to where they wait; a warp waits for its own threads before all
// warps wait for each other.
extern "C" void run_blocks(int blocks, int threads, int *number, void (*body)(int, int, void **), void **given) {
  constexpr int STACK = 1 << 15;
  std::vector<char> stacks((size_t)threads * STACK);
  work = body;
  arguments = given;
  number_of_blocks = blocks;
  all = std::vector<Thread>(threads);
  for (int thread = 0; thread < threads; ++thread) {
    getcontext(&all[thread].start);
    all[thread].start.uc_stack.ss_sp = &stacks[(size_t)thread * STACK];
    all[thread].start.uc_stack.ss_size = STACK;
    makecontext(&all[thread].start, begin, 0);
  }
  for (bool first = true;; first = false) {
    bool finished = true;
    for (int warp = 0; warp < threads; warp += 32) {
      bool begins = first, again = true;
      for (; again; begins = false) {
        again = false;
        for (int thread = warp; thread < warp + 32 && thread < threads; ++thread) {
          *number = thread;
          const Wait wait = go_on(thread, begins);
          again |= wait == WARP;
          finished &= wait == FINISHED;
        }
      }
    }
    if (finished) return;
  }
}
"""
"""The threads of a block, one after the other between barriers; compiled once."""

_SHIM = """#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
using std::max;
using std::min;
struct Dimension { int x; };
static Dimension threadIdx, blockIdx, blockDim, gridDim;
extern "C" void meet();
extern "C" void meet_warp();
extern "C" void run_blocks(int, int, int *, void (*)(int, int, void **), void **);
#define __global__
#define __device__ static
#define __shared__ static
#define __launch_bounds__(...)
#define __syncthreads() meet()
static float __uint_as_float(unsigned bits) {
  float number;
  std::memcpy(&number, &bits, 4);
  return number;
}
static unsigned __float_as_uint(float number) {
  unsigned bits;
  std::memcpy(&bits, &number, 4);
  return bits;
}
// What tensor cores do (products.cu): numbers of eleven bits, rounded to nearest.
static unsigned leading(float number) {
  return std::isfinite(number) ? (__float_as_uint(number) + 0x1000u) & 0xffffe000u : __float_as_uint(number);
}
static void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  static float rows[16][8], columns[8][8];
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i) rows[g + i % 2 * 8][t + i / 2 * 4] = __uint_as_float(a[i]);
  for (int i = 0; i < 2; ++i) columns[t + i * 4][g] = __uint_as_float(b[i]);
  meet_warp();
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 8; ++k) sum[i] += rows[g + i / 2 * 8][k] * columns[k][2 * t + i % 2];
  meet_warp();
}
"""

_CALL = """
static void body(int block, int thread, void **given) {
  blockIdx.x = block;
  NAME(ARGUMENTS);
}
extern "C" void launch(int blocks, int threads, void **given) {
  blockDim.x = threads;
  gridDim.x = blocks;
  run_blocks(blocks, threads, &threadIdx.x, body, given);
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
