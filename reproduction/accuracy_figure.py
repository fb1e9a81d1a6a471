"""What accuracy each size of clusters loses to FedAvg: one panel for each of the paper's rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from reproduction import drawing
from reproduction.difference_figure import METHODS
from reproduction.drawing import ANY, PANELS
from reproduction.lines import Line, Network, RowName
from reproduction.quantities import SETTLED, settled_accuracy
from reproduction.selection import KS, select
from reproduction.table import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_APART = 0.17
"""Between two methods, where sizes are 1 apart."""


def accuracy_by_k(lines: Iterable[Line], path: Path, *, network: Network = "convnet") -> tuple[Path, Path]:
    """Accuracy minus FedAvg's by k, mean of the last rounds and over x, with 95 % intervals over seeds.

    Differences are taken seed by seed.

    Args:
        lines: The runs of the paper's tables.
        path: Without a suffix.
        network: Whose runs.

    """
    selection = select(lines, network, ("fedavg", *METHODS))

    def draw(panel: Axes, row: RowName) -> bool:
        found = [
            (place, at, lost)
            for place, k in enumerate(KS)
            for at, method in enumerate(METHODS)
            if (lost := selection.difference(row, method, k, settled_accuracy)) is not None
        ]
        for place, at, lost in found:
            where = place + _APART * (at - (len(METHODS) - 1) / 2)
            drawing.whisker(panel, where, 100 * lost.mean, lost.interval and 100 * lost.interval, ANY[at])
        if found:
            panel.axhline(0.0, color="black", linewidth=0.8)
        panel.grid(axis="x", visible=False)
        panel.set_xticks(range(len(KS)), [str(k) for k in KS])
        return bool(found)

    what = f"Accuracy minus fedAvg's, mean of the last {SETTLED} rounds and over x"
    title = drawing.made_of(selection, what, "95 % intervals")
    rows = selection.shown(PANELS, lambda line: line.row)
    with drawing.style():
        legend = [
            drawing.sample(TITLES[method], **{**look, "linestyle": "none"})
            for method, look in zip(METHODS, ANY, strict=False)
            if selection.has(method)
        ]
        return drawing.write(drawing.arranged(title, ("k", "points to fedAvg"), draw, legend, rows), path)
