"""A table of results: pieces that fit on a page, every value in long form, and where it all comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import pandas as pd

from reproduction.lines import Line, Method, Network
from reproduction.markdown import NOT_RUN, Piece, Remarks
from reproduction.selection import Cell, Selection

Show = Callable[[float], str]

TITLES: dict[Method, str] = {
    "fedavg": "fedAvg",
    "fedavg-sampled": "fedAvg 1/k",
    "federaser": "fedEraser",
    "federaser-1": "fedEraser Δt=1",
    "federaser-plain": "fedEraser Δt=1, plain float32",
    "published": "published",
    "sticky": "sticky",
    "sticky-3": "sticky s=3",
    "retention": "retention",
}
"""What methods are called in tables and figures."""

NETWORKS: dict[Network, str] = {"lenet5": "LeNet5", "resnet-mini": "ResNet-mini", "convnet": "ConvNet"}
"""What networks are called there."""


@dataclass(frozen=True)
class Value:
    """One number of ours beside the paper's; `ours` is none where it was not run."""

    table: str
    row: str
    column: str
    """The paper's: fedavg, federaser, k4, ..."""
    method: Method
    k: int
    quantity: str
    paper: float | None
    ours: float | None
    interval: float | None
    """Half of Student's 95 % interval over seeds."""
    runs: int
    seeds: int
    variant: str = ""
    network: str = ""
    """Where a table has several."""

    @classmethod
    def of(
        cls,
        table: str,
        row: str,
        method: Method,
        k: int,
        quantity: str,
        paper: float | None,
        cell: Cell | None,
        variant: str = "",
        network: str = "",
    ) -> Value:
        """The value of a cell."""
        return cls(
            table=table,
            row=row,
            column=column(method, k),
            method=method,
            k=k,
            quantity=quantity,
            paper=paper,
            ours=None if cell is None else cell.mean,
            interval=None if cell is None else cell.interval,
            runs=0 if cell is None else cell.runs,
            seeds=0 if cell is None else len(cell.seeds),
            variant=variant,
            network=network,
        )


@dataclass(frozen=True)
class Table:
    """A table, ready to be written."""

    name: str
    title: str
    about: tuple[str, ...]
    """What a reader must know: a sentence or two each."""
    pieces: tuple[Piece, ...]
    values: tuple[Value, ...]

    def markdown(self) -> str:
        """All pieces under one heading, with what they were made by."""
        parts = [
            f"## {self.title}\n",
            *(piece.markdown() for piece in self.pieces),
            *(f"{said}\n" for said in self.about),
        ]
        return "\n".join(parts)

    def csv(self) -> str:
        """Long form, one value a line, numbers in full; empty where there is none."""
        frame = pd.DataFrame(self.values, columns=[field.name for field in fields(Value)])
        return str(frame.to_csv(index=False, lineterminator="\n"))


def column(method: Method, k: int) -> str:
    """The paper's name of a column.

    >>> column("fedavg", 1), column("sticky", 4)
    ('fedavg', 'k4')
    """
    return method if k == 1 else f"k{k}"


def text(cell: Cell | None, show: Show, remarks: Remarks, seeds: int, *, interval: bool = True) -> str:
    """A cell in words: mean ± interval, marked where some x, or some of so many seeds, are missing."""
    if cell is None:
        return NOT_RUN
    shown = show(cell.mean)
    if interval and cell.interval is not None:
        shown += f" ± {show(cell.interval).removeprefix('+')}"
    missing = []
    if not cell.whole:
        possible = len(cell.possible)
        missing.append(f"{len(cell.xs)} of {possible} x were run ({', '.join(map(str, cell.xs))})")
    if len(cell.seeds) < seeds:
        missing.append(f"{len(cell.seeds)} of {seeds} seeds were run")
    return shown + (f" {remarks.mark(', '.join(missing))}" if missing else "")


def provenance(selection: Selection, name: str, options: str = "") -> tuple[str, ...]:
    """What the numbers were made on, with, and by; `options` are more of the command."""
    command = f"Made by `python -m reproduction {name}{' --quick' if selection.quick else ''}{options}`"
    if not selection.lines:
        return (f"{command}; nothing has been run yet.",)
    seeds = selection.seeds
    said = [
        f"{command} from {len(selection.lines)} runs; "
        f"{'seed' if len(seeds) == 1 else f'mean over {len(seeds)} seeds:'} {', '.join(map(str, seeds))}. "
        f"Device: {', '.join(selection.distinct(lambda line: line.device))}. "
        f"Versions: {'; '.join(selection.distinct(_versions))}. "
        f"Commit: {', '.join(selection.distinct(lambda line: line.commit[:12]))}."
    ]
    if selection.quick:
        said.append(
            "**These are quick runs**, a small version for a CPU: they show that everything works, and their "
            "numbers are not to be compared with the paper's."
        )
    if selection.left_out:
        said.append(f"{selection.left_out} quick runs were left out.")
    return tuple(said)


def _versions(line: Line) -> str:
    made = line.versions
    return f"disavow {made.disavow}, Python {made.python}, torch {made.torch}, numpy {made.numpy}"
