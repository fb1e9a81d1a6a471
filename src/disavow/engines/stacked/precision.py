"""How exactly the device multiplies. Torch's own default for convolutions on CUDA is TF32, ten bits of mantissa."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

Precision = Literal["float32", "tf32", "bf16"]

_Switch = tuple[Callable[[], Any], Callable[[Any], None], Any]


@contextmanager
def multiplication_precision(precision: Precision) -> Iterator[None]:
    """Multiply with a precision, and choose algorithms that repeat themselves; afterwards all is as it was.

    Args:
        precision: How exact products are; `bf16` is left to autocast.
    """
    # all are read before the first is written, and put back in the same order: the old forms write over the new
    readable = list(_read(tf32=precision == "tf32"))
    try:
        for write, value, _ in readable:
            write(value)
        yield
    finally:
        for write, _, before in readable:
            write(before)


def _read(*, tf32: bool) -> Iterator[tuple[Callable[[Any], None], Any, Any]]:
    """How to write each switch, what it shall be, and what it is."""
    for read, write, value in _switches(tf32=tf32):
        try:
            before = read()
        except RuntimeError:
            # torch has an old and a new form of some, and cannot read the one where the other was used
            continue
        yield write, value, before


def _switches(*, tf32: bool) -> Iterator[_Switch]:
    name = "tf32" if tf32 else "ieee"
    backends = torch.backends
    yield torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high" if tf32 else "highest"
    yield _attribute(backends.cudnn, "allow_tf32", tf32)
    yield _attribute(backends.cudnn, "deterministic", True)
    yield _attribute(backends.cudnn, "benchmark", False)
    for holder, part in ((backends.mkldnn, "matmul"), (backends.cuda, "matmul")):
        if hasattr(getattr(holder, part, None), "fp32_precision"):
            yield _attribute(getattr(holder, part), "fp32_precision", name)
    for part in ("conv", "rnn"):
        if hasattr(getattr(backends.cudnn, part, None), "fp32_precision"):
            yield _attribute(getattr(backends.cudnn, part), "fp32_precision", name)


def _attribute(holder: object, name: str, value: object) -> _Switch:
    return lambda: getattr(holder, name), lambda it: setattr(holder, name, it), value
