"""What each method keeps on disk, measured, and what a budget of bytes costs in rounds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import product
from statistics import fmean
from typing import get_args

from reproduction.lines import Line, Method, Network, RowName
from reproduction.markdown import NOT_RUN, Piece
from reproduction.numbers import amount, times
from reproduction.published import CLAIMED_STORAGE
from reproduction.quantities import megabytes, retrained_rounds
from reproduction.selection import Selection, select
from reproduction.table import NETWORKS, TITLES, Table, Value, provenance

METHODS: tuple[Method, ...] = (
    "fedavg",
    "federaser",
    "federaser-1",
    "federaser-plain",
    "sticky",
    "retention",
)
OURS: tuple[Method, ...] = ("sticky", "retention")
ERASERS: tuple[Method, ...] = ("federaser-plain", "federaser-1", "federaser")
PARTS = ("models", "updates", "database", "other", "total")


def storage(lines: Iterable[Line], network: Network) -> Table:
    """Bytes on disk at the end of a run. They hardly depend on k and x: the text has means over all of them."""
    selection = select(lines, network)
    rows = tuple(row for row in get_args(RowName) if any(line.row == row for line in selection.lines))
    pieces = [_totals(selection, rows), _parts(selection), _savings(selection, rows)]
    if selection.has("retention"):
        pieces.append(_retention(selection))
    return Table(
        name="storage",
        title=f"Disk, {NETWORKS[network]}",
        about=(
            "Megabytes (10⁶ bytes) on disk at the end of a run, measured; means over every k, x and seed that was "
            "run. *sticky*: ours, which keeps what the paper's method does; *retention*: with a budget of bytes. "
            "fedEraser keeps the updates of every second round, with Δt=1 of every round. Models and updates are "
            "compressed, but for updates in *plain float32*. The paper has no table of this, only "
            f'"about {CLAIMED_STORAGE:.0f} times" less than fedEraser.',
            *provenance(selection, "storage"),
        ),
        pieces=tuple(pieces),
        values=tuple(_values(selection, rows)),
    )


def _mean(selection: Selection, method: Method, row: str | None = None, part: str = "total") -> float | None:
    found = [line for line in selection.lines if line.method == method and row in (None, line.row)]
    return fmean(_bytes(part, line) for line in found) / 1e6 if found else None


def _bytes(part: str, line: Line) -> float:
    return float(getattr(line.bytes, part))


def _shown(value: float | None) -> str:
    return NOT_RUN if value is None else amount(value)


def _totals(selection: Selection, rows: tuple[RowName, ...]) -> Piece:
    body = tuple((row, *(_shown(_mean(selection, method, row)) for method in METHODS)) for row in rows)
    return Piece("Megabytes on disk", ("", *(TITLES[method] for method in METHODS)), body, {})


def _parts(selection: Selection) -> Piece:
    body = tuple(
        (TITLES[method], *(_shown(_mean(selection, method, part=part)) for part in PARTS)) for method in METHODS
    )
    return Piece("What they are: megabytes, mean over all rows", ("", *PARTS), body, {})


def _saving(selection: Selection, eraser: Method, method: Method, row: str) -> float | None:
    much, little = _mean(selection, eraser, row), _mean(selection, method, row)
    return much / little if much is not None and little else None


def _savings(selection: Selection, rows: tuple[RowName, ...]) -> Piece:
    body = []
    for row, eraser in product(rows, ERASERS):
        found = [_saving(selection, eraser, method, row) for method in OURS]
        body.append((f"{row}, {TITLES[eraser]}", *(NOT_RUN if ratio is None else times(ratio) for ratio in found)))
    return Piece("Times less than fedEraser", ("", *(TITLES[method] for method in OURS)), tuple(body), {})


def _retention(selection: Selection) -> Piece:
    """Rounds retrained with a budget of bytes, beside those of the equal run without one."""
    without = {_place(line): line for line in selection.lines if line.method == "sticky"}
    body = []
    for line in selection.lines:
        if line.method == "retention":
            base = without.get(_place(line))
            body.append((_named(line), *_compared(base, line)))
    headings = ("MB", "MB with budget", "rounds retrained", "with budget", "more")
    return Piece("What a budget of bytes costs", ("", *headings), tuple(body), {})


def _compared(base: Line | None, line: Line) -> tuple[str, ...]:
    rounds = retrained_rounds(line)
    if base is None:
        return (NOT_RUN, amount(megabytes(line)), NOT_RUN, f"{rounds:.0f}", NOT_RUN)
    before = retrained_rounds(base)
    more = f"{100 * (rounds / before - 1):+.1f} %" if before else ("0 %" if rounds == 0 else "-")
    return amount(megabytes(base)), amount(megabytes(line)), f"{before:.0f}", f"{rounds:.0f}", more


def _place(line: Line) -> tuple[str, int, int, int]:
    return line.row, line.k, line.x, line.seed


def _named(line: Line) -> str:
    return f"{line.row}, k={line.k}, x={line.x}, seed {line.seed}"


def _values(selection: Selection, rows: tuple[RowName, ...]) -> Iterable[Value]:
    for row in rows:
        for method in METHODS:
            for k in sorted({line.k for line in selection.lines if (line.row, line.method) == (row, method)}):
                for part in PARTS:
                    cell = selection.cell(row, method, k, partial(_bytes, part))
                    yield Value.of("storage", row, method, k, f"bytes-{part}", None, cell)
                cell = selection.cell(row, method, k, retrained_rounds)
                yield Value.of("storage", row, method, k, "retrained-rounds", None, cell)
