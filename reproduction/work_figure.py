"""Client-epochs per request by k and x, with intervals: to answer it, and of whole runs that delete everybody."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reproduction import drawing
from reproduction.drawing import Look
from reproduction.lines import PLAIN, UNCLUSTERED, Method
from reproduction.table import TITLES
from reproduction.work_report import Interval, WorkCell, WorkReport

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

_PANELS = {
    "answering": "Trained again to answer a request at once (no mark: nothing in any stream, or x + s - 1 > k)",
    "deleting": "Whole runs, training included, and everybody deleted by one retraining at the end",
}
"""What is drawn, by the name of its field."""

Place = tuple[int, int]


def work(report: WorkReport, path: Path) -> tuple[Path, Path]:
    """Above, what is trained again to answer a request; below, whole runs in which everybody is deleted at the end.

    Both are logarithmic, so that where no stream needed any training there is nothing to draw.
    """
    pairs = sorted({(cell.k, cell.x) for cell in report.cells if cell.method not in UNCLUSTERED})
    with drawing.style():
        drawn = drawing.blank(4.8)
        panels = drawn.subplots(2, 1, sharex=True)
        for panel, (name, title) in zip(panels, _PANELS.items(), strict=True):
            drawing.frame(panel)
            panel.grid(axis="x", visible=False)
            panel.set_title(title)
            panel.set_ylabel("client-epochs per request")
            if pairs:
                _panel(panel, report, pairs, name)
            else:
                drawing.not_run(panel)
        if pairs:
            panels[-1].set_xticks(range(len(pairs)), [f"k={k}\nx={x}" for k, x in pairs])
            handles = [
                drawing.sample(TITLES[method], linestyle="none", **look)
                for method, look in _LOOKS.items()
                if any(cell.method == method for cell in report.cells)
            ]
            drawn.legend(handles=handles, ncols=len(handles), **drawing.LEGEND)
        drawn.suptitle(f"Work; mean over {report.streams:,} streams of requests, 95 % intervals")
        return drawing.write(drawn, path)


def _panel(panel: Axes, report: WorkReport, pairs: list[Place], name: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    shown = [method for method in _LOOKS if any(cell.method == method for cell in report.cells)]
    for at, method in enumerate(shown):
        cells = [(place, cell) for place, where in enumerate(pairs) if (cell := _cell(report, method, where))]
        found: list[tuple[int, Interval]] = [(place, getattr(cell, name)) for place, cell in cells]
        drawn = [(place, each) for place, each in found if each.mean > 0]
        panel.errorbar(
            [place + _APART * (at - (len(shown) - 1) / 2) for place, _ in drawn],
            [each.mean for _, each in drawn],
            yerr=[[each.mean - each.low for _, each in drawn], [each.high - each.mean for _, each in drawn]],
            linestyle="none",
            elinewidth=1.0,
            capsize=2.2,
            markersize=4.2,
            **_LOOKS[method],
        )
    panel.set_yscale("log", nonpositive="clip")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    panel.yaxis.set_minor_formatter(NullFormatter())
    low, high = panel.get_ylim()
    if high < 100 * low:
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for edge in range(1, len(pairs)):  # a new k begins
        if pairs[edge][0] != pairs[edge - 1][0]:
            panel.axvline(edge - 0.5, color="0.8", linewidth=0.6)


def _cell(report: WorkReport, method: Method, place: Place) -> WorkCell | None:
    """The cell of a method at one k and x; one without x, or without both, stands at all of them."""
    k, x = 1 if method in PLAIN else place[0], 1 if method in UNCLUSTERED else place[1]
    return next((cell for cell in report.cells if (cell.method, cell.k, cell.x) == (method, k, x)), None)
