"""Disk that each method needs, as bars."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from reproduction import drawing
from reproduction.drawing import PANELS, Look
from reproduction.grid import packaged
from reproduction.lines import Line, Method, Network, RowName
from reproduction.markdown import NOT_RUN
from reproduction.numbers import amount
from reproduction.quantities import megabytes
from reproduction.selection import Selection, select
from reproduction.table import TITLES

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_LOOKS: dict[Method, Look] = {
    "federaser-plain": {"facecolor": "0.6", "hatch": "xxxx"},
    "federaser-1": {"facecolor": "0.35"},
    "federaser": {"facecolor": "0.75", "hatch": "////"},
    "fedavg": {"facecolor": "white"},
    "published": {"facecolor": "#E69F00", "hatch": "...."},
    "sticky": {"facecolor": "#56B4E9", "hatch": "\\\\\\\\"},
    "retention": {"facecolor": "#0072B2"},
}


def storage(lines: Iterable[Line], path: Path, *, network: Network = "convnet") -> tuple[Path, Path]:
    """Megabytes on disk at the end of a run, means over all k, x and seeds, on a logarithmic axis.

    Its rows are those of the grid, and what else was run.
    """
    selection = select(lines, network)
    asked = {point.row for point in packaged("storage").points()} | {line.row for line in selection.lines}
    rows = [row for row in selection.shown(PANELS, lambda line: line.row) if row in asked]
    with drawing.style():
        drawn = drawing.blank(3.6)
        panel = drawn.subplots()
        drawing.frame(panel)
        panel.grid(axis="x", visible=False)
        methods = [method for method in _LOOKS if selection.has(method)]
        for place, row in enumerate(rows):
            _group(panel, selection, row, place, methods)
        panel.set_xticks(range(len(rows)), [drawing.titled(row).replace(", ", "\n") for row in rows])
        panel.set_ylabel("megabytes on disk")
        panel.set_xlim(-0.5, len(rows) - 0.5)
        if selection.lines:
            sizes = [megabytes(line) for line in selection.lines]
            panel.set_yscale("log")
            panel.set_ylim(min(sizes) / 3, max(sizes) * 4)  # room for the numbers above the bars
        drawn.suptitle(drawing.made_of(selection, "Disk at the end of a run"))
        if methods:
            drawn.legend(handles=_samples(methods), ncols=(len(methods) + 1) // 2, **drawing.LEGEND)
        return drawing.write(drawn, path)


def _group(panel: Axes, selection: Selection, row: RowName, place: int, methods: list[Method]) -> None:
    found = {
        method: fmean(sizes)
        for method in methods
        if (sizes := [megabytes(line) for line in selection.lines if (line.row, line.method) == (row, method)])
    }
    if not found:
        panel.text(
            place,
            0.5,
            NOT_RUN,
            transform=panel.get_xaxis_transform(),
            ha="center",
            va="center",
            color="0.35",
        )
    width = 0.84 / max(1, len(found))
    for at, (method, size) in enumerate(found.items()):
        left = place + width * (at - (len(found) - 1) / 2)
        panel.bar(left, size, 0.92 * width, edgecolor="black", linewidth=0.6, **_LOOKS[method])
        panel.text(left, size * 1.12, amount(size), rotation=90, ha="center", va="bottom")


def _samples(methods: list[Method]) -> list[Artist]:
    from matplotlib.patches import Patch

    return [Patch(label=TITLES[method], edgecolor="black", linewidth=0.6, **_LOOKS[method]) for method in methods]
