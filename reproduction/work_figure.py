"""Client-epochs per request by k and x, with intervals, and how many times less than FedAvg's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reproduction import drawing
from reproduction.drawing import Look
from reproduction.lines import PLAIN, UNCLUSTERED, Method
from reproduction.table import TITLES
from reproduction.work_report import WorkCell, WorkReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOOKS: dict[Method, Look] = {
    "fedavg": {"color": "#000000", "marker": "s"},
    "fedavg-sampled": {"color": "#CC79A7", "marker": "v"},
    "published": {"color": "#D55E00", "marker": "o", "markerfacecolor": "white"},
    "sticky": {"color": "#0072B2", "marker": "D"},
    "sticky-3": {"color": "#009E73", "marker": "^"},
}

_APART = 0.17
"""Between two methods, where cells are 1 apart."""

Place = tuple[int, int]


def work(report: WorkReport, path: Path) -> tuple[Path, Path]:
    """Above, client-epochs per request; below, the ratio to FedAvg with retraining; both logarithmic.

    Where no stream needed any training there is nothing to draw.
    """
    pairs = sorted({(cell.k, cell.x) for cell in report.cells if cell.method not in UNCLUSTERED})
    with drawing.style():
        drawn = drawing.blank(4.6)
        above, below = drawn.subplots(2, 1, sharex=True)
        for panel in (above, below):
            drawing.frame(panel)
            panel.grid(axis="x", visible=False)
        if pairs:
            _panel(above, report, pairs, "mean", "low", "high", tuple(_LOOKS))
            _panel(below, report, pairs, "ratio", "ratio_low", "ratio_high", tuple(_LOOKS)[1:])
            below.axhline(1, color="black", linewidth=0.8)
            below.set_xticks(range(len(pairs)), [f"k={k}\nx={x}" for k, x in pairs])
            handles = [
                drawing.sample(TITLES[method], linestyle="none", **look)
                for method, look in _LOOKS.items()
                if any(cell.method == method for cell in report.cells)
            ]
            drawn.legend(handles=handles, ncols=len(handles), **drawing.LEGEND)
        else:
            drawing.not_run(above)
            drawing.not_run(below)
        above.set_ylabel("client-epochs per request")
        below.set_ylabel("times less than fedAvg")
        drawn.suptitle(
            f"Work per request; mean over {report.streams:,} streams of requests, 95 % intervals;\n"
            "no mark: no stream needed any training"
        )
        return drawing.write(drawn, path)


def _panel(
    panel: Axes,
    report: WorkReport,
    pairs: list[Place],
    mean: str,
    low: str,
    high: str,
    methods: tuple[Method, ...],
) -> None:
    shown = [method for method in methods if any(cell.method == method for cell in report.cells)]
    for at, method in enumerate(shown):
        cells = [(place, cell) for place, where in enumerate(pairs) if (cell := _cell(report, method, where))]
        drawn = [(place, cell, middle) for place, cell in cells if (middle := getattr(cell, mean))]
        panel.errorbar(
            [place + _APART * (at - (len(shown) - 1) / 2) for place, _, _ in drawn],
            [middle for _, _, middle in drawn],
            yerr=[
                [middle - _bound(cell, low, middle) for _, cell, middle in drawn],
                [_bound(cell, high, middle) - middle for _, cell, middle in drawn],
            ],
            linestyle="none",
            elinewidth=1.0,
            capsize=2.2,
            markersize=4.2,
            **_LOOKS[method],
        )
    panel.set_yscale("log", nonpositive="clip")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    for edge in range(1, len(pairs)):  # a new k begins
        if pairs[edge][0] != pairs[edge - 1][0]:
            panel.axvline(edge - 0.5, color="0.8", linewidth=0.6)


def _bound(cell: WorkCell, name: str, middle: float) -> float:
    """A bound of an interval; where it is not known, the mean itself, so that no whisker is drawn."""
    bound: float | None = getattr(cell, name)
    return middle if bound is None else bound


def _cell(report: WorkReport, method: Method, place: Place) -> WorkCell | None:
    """The cell of a method at one k and x; one without x, or without both, stands at all of them."""
    k, x = 1 if method in PLAIN else place[0], 1 if method in UNCLUSTERED else place[1]
    return next((cell for cell in report.cells if (cell.method, cell.k, cell.x) == (method, k, x)), None)
