"""Runs the launches of one stack, each in the fastest way that works, without ever waiting for the device.

Launches of one form read and write the same memory each time. That is what lets a CUDA graph replay them: between
two launches only the contents of a few tensors are replaced.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from disavow.engines.stacked.data import Placed, Samples
from disavow.engines.stacked.plan import Form
from disavow.engines.stacked.programs import captured, compiled, many_forms
from disavow.engines.stacked.step import RATES, Advance, Step
from disavow.engines.stacked.ways import WayClosed, Ways

_PREPARED = 32
"""Forms that stay compiled or captured: the commonest of a call."""

_COMPILED = 16
"""Forms that are ever compiled: each takes many seconds."""

Program = Callable[[], None]


@dataclass(frozen=True, eq=False)
class Arena:
    """The memory of a stack. Its last row belongs to no client: rows that pad a launch write there."""

    rows: Tensor
    velocity: Tensor | None
    rates: Tensor
    images: Tensor
    labels: Tensor
    table: Tensor

    @property
    def spare(self) -> int:
        """The row that belongs to no client."""
        return len(self.rows) - 1

    def load(self, rows: Tensor, rates: Tensor) -> None:
        """Begin with these rows. The spare one stands still, so that it stays finite."""
        count = len(rows)
        self.rows[:count] = rows
        self.rows[self.spare] = rows[0]
        self.rates[:count] = rates
        self.rates[self.spare] = 0
        if self.velocity is not None:
            self.velocity.zero_()


class Launcher:
    """One stack's memory and programs."""

    def __init__(self, step: Step, ways: Ways) -> None:
        self._step = step
        self._ways = ways
        self._arena: Arena | None = None
        self._programs: OrderedDict[tuple[Form, bool, bool], Program] = OrderedDict()
        self._pool: Any = None
        self._advance: Advance | None = None
        self._compiled: set[Form] = set()

    def room(self, size: int) -> int:
        """How many rows of batches of that size the arena holds already."""
        if self._arena is None:
            return 0
        return min(self._arena.spare, len(self._arena.labels) // size)

    def reserve(self, rows: int, samples: int, like: Samples, *, momentum: bool) -> Arena:
        """An arena for so many rows, and samples of a launch; the one there is, if it is large enough."""
        arena = self._arena
        enough = arena is not None and rows <= arena.spare and samples <= len(arena.labels)
        if arena is None or not enough or (momentum and arena.velocity is None):
            self.forget()
            self._arena = arena = self._new_arena(rows, samples, like, momentum=momentum)
        return arena

    def forget(self) -> None:
        """Let go of the arena and of the programs that write into it. What was compiled stays compiled."""
        self._programs.clear()
        self._arena = self._pool = None

    def prepare(self, forms: Counter[Form]) -> dict[Form, Program]:
        """A program for each form; the commonest are compiled and captured, if launched often enough to pay."""
        arena = self._held()
        programs = {}
        for rank, (form, launches) in enumerate(forms.most_common()):
            worth = launches if rank < _PREPARED else 0
            programs[form] = self._program(arena, form, worth)
        while len(self._programs) > _PREPARED:
            self._programs.popitem(last=False)
        return programs

    def run(self, programs: dict[Form, Program], blocks: Iterable[tuple[Form, Tensor]], data: Placed) -> None:
        """Take the launches one after the other, in place."""
        arena = self._held()
        with nullcontext() if self._advance is None else many_forms():
            for form, block in blocks:
                samples = form.width * form.size
                numbers, table = block[:samples], block[samples:]
                torch.index_select(data.images, 0, numbers, out=arena.images[:samples])
                torch.index_select(data.labels, 0, numbers, out=arena.labels[:samples])
                arena.table[: 2 * form.width] = table
                programs[form]()

    def _held(self) -> Arena:
        if self._arena is None:
            raise RuntimeError("reserve an arena first")
        return self._arena

    def _program(self, arena: Arena, form: Form, launches: int) -> Program:
        compiles = self._ways.compiles and self._may_compile(form)
        captures = self._ways.captures(launches)
        if not (compiles or captures):
            return _plain(arena, form, self._step)
        key = form, compiles, captures
        if key not in self._programs:
            self._programs[key] = self._made(arena, form, compiles=compiles, captures=captures)
        self._programs.move_to_end(key)
        return self._programs[key]

    def _may_compile(self, form: Form) -> bool:
        return form in self._compiled or len(self._compiled) < _COMPILED

    def _made(self, arena: Arena, form: Form, *, compiles: bool, captures: bool) -> Program:
        """The fastest program that can be made. On the way, it runs on the spare row."""
        which, sizes = arena.table[: form.width], arena.table[form.width : 2 * form.width]
        which.fill_(arena.spare)
        sizes.fill_(form.size)
        program = _plain(arena, form, self._step)
        if compiles:
            with suppress(WayClosed):
                program = self._ways.attempt("compile", "compiling a step", lambda: self._faster(arena, form))
        if captures:
            with suppress(WayClosed):
                return self._ways.attempt("graphs", "capturing a CUDA graph", lambda: self._replay(program))
        return program

    def _faster(self, arena: Arena, form: Form) -> Program:
        """The compiled program, once it has run, which is when it is compiled."""
        if self._advance is None:
            self._advance = compiled(self._step)
        program = _plain(arena, form, self._advance)
        with many_forms():
            program()
        self._compiled.add(form)
        return program

    def _replay(self, program: Program) -> Program:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return captured(program, self._pool)

    def _new_arena(self, rows: int, samples: int, like: Samples, *, momentum: bool) -> Arena:
        columns, device = self._step.network.columns, self._step.network.device
        images, labels = like
        return Arena(
            rows=torch.zeros(rows + 1, columns.size, device=device),
            velocity=torch.zeros(rows + 1, columns.trained_size, device=device) if momentum else None,
            rates=torch.zeros(rows + 1, RATES, device=device),
            images=images.new_zeros(samples, *images.shape[1:], device=device),
            labels=labels.new_zeros(samples, *labels.shape[1:], device=device),
            table=torch.zeros(2 * samples, dtype=torch.int64, device=device),
        )


def _plain(arena: Arena, form: Form, advance: Advance) -> Program:
    """A launch of this form: take the rows out of the arena, advance them, put them back."""
    width, samples = form.width, form.width * form.size
    which, sizes = arena.table[:width], arena.table[width : 2 * width]
    images = arena.images[:samples].unflatten(0, form)
    labels = arena.labels[:samples].unflatten(0, form)

    def program() -> None:
        rows = arena.rows.index_select(0, which)
        velocity = None if arena.velocity is None else arena.velocity.index_select(0, which)
        rows, velocity = advance(rows, velocity, images, labels, sizes, arena.rates.index_select(0, which))
        arena.rows.index_copy_(0, which, rows)
        if arena.velocity is not None and velocity is not None:
            arena.velocity.index_copy_(0, which, velocity)

    return program
