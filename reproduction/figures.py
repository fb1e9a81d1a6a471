"""The paper's figures and ours. Each is written as PNG and SVG; `path` is without a suffix.

Curves are means over seeds. At the right of a panel, behind the curves, are Student's 95 % intervals of their ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from disavow.audit.intervals import Interval
from reproduction import drawing, series
from reproduction.accuracy_figure import accuracy_by_k
from reproduction.composed_odds_figure import composed_odds
from reproduction.difference_figure import accuracy, skew
from reproduction.drawing import BASELINES, CLUSTERS, DENIABILITY, METHODS, PANELS, Look
from reproduction.lines import Line, Method, Network, RowName
from reproduction.odds_figure import odds
from reproduction.selection import Selection, select
from reproduction.storage_figure import storage
from reproduction.table import TITLES
from reproduction.trade_off_figure import trade_off
from reproduction.work_figure import work

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "accuracy",
    "accuracy_by_k",
    "accuracy_curves",
    "composed_odds",
    "distance_to_fedavg",
    "odds",
    "skew",
    "storage",
    "trade_off",
    "unlearning_time",
    "work",
]

Written = tuple[Path, Path]
Values = Callable[[Line], Sequence[float] | None]
_Spent = Literal["seconds", "client_epochs"]
_EVERY = 8
"""Rounds between two markers."""
_WHISKERS = "at the right 95 % intervals"
_ENDS_FROM, _ENDS_APART = 3, 2.2
"""Rounds between the last one and the first interval, and between two intervals."""
_EARLY = 0.2
"""Share of the rounds, the first, whose accuracies may lie below their panel: they would flatten all others."""


def accuracy_curves(
    lines: Iterable[Line], path: Path, *, network: Network = "convnet", method: Method = "published"
) -> Written:
    """Test accuracy of the model in use over the rounds: the baselines, and every k and x of one method."""
    selection = select(lines, network, ("fedavg", "federaser", method))
    with drawing.style():
        return drawing.write(_curves(selection, method), path)


def unlearning_time(lines: Iterable[Line], path: Path, *, network: Network = "convnet") -> list[Path]:
    """What the requests had taken up to each round, in seconds and in client-epochs: a figure each.

    They are named `path` with `-seconds` and `-client-epochs`.
    """
    selection = select(lines, network, ("fedavg", "federaser", *METHODS))
    units: tuple[tuple[_Spent, str], ...] = (("seconds", "seconds"), ("client_epochs", "client-epochs"))
    what = "Spent on all requests so far, mean over x; no line: nothing spent"
    written: list[Path] = []
    with drawing.style():
        for on, unit in units:
            drawn = _by_cluster(selection, (what, unit), partial(series.spent, on=on), grows=True)
            written += drawing.write(drawn, path.with_name(f"{path.name}-{unit}"))
    return written


def distance_to_fedavg(lines: Iterable[Line], path: Path, *, network: Network = "convnet") -> Written:
    """L2 distance of the global model to FedAvg's of the same seed, by k, after each standing round."""
    selection = select(lines, network, tuple(METHODS))
    labels = ("Distance to the model of fedAvg, mean over x", "L2 distance")
    with drawing.style():
        return drawing.write(_by_cluster(selection, labels, series.distance), path)


def _curves(selection: Selection, method: Method) -> Figure:
    def draw(panel: Axes, row: RowName) -> bool:
        ends = _Ends(series.served)
        found = _baselines(panel, selection, row, ends)
        for k in CLUSTERS:
            runs = selection.runs(row, method, k)
            for x in DENIABILITY:
                of_x = [line for line in runs if line.x == x]
                found.append(_line(panel, series.mean(of_x, series.served), k, DENIABILITY[x]))
            ends.add(runs, CLUSTERS[k])
        later = [value for one in found for value in one[int(_EARLY * len(one)) :]]
        later += ends.draw(panel, max(map(len, found)))
        if later:
            room = 0.06 * (max(later) - min(later)) + 1e-3
            panel.set_ylim(min(later) - room, max(later) + room)
        return bool(later)

    run = {line.x for line in selection.lines if line.method == method}
    legend = [
        *drawing.baseline_samples(selection),
        *drawing.cluster_samples(selection),
        *(drawing.sample(f"x = {x}", color="0.3", **look) for x, look in DENIABILITY.items() if x in run),
    ]
    title = drawing.made_of(selection, f"Test accuracy of the model in use, {TITLES[method]}", _WHISKERS)
    return drawing.arranged(title, ("rounds trained", "test accuracy"), draw, legend, _rows(selection))


def _by_cluster(selection: Selection, labels: tuple[str, str], values: Values, *, grows: bool = False) -> Figure:
    """The baselines, and for each k the mean over x of the paper's method and of ours.

    What `grows` is drawn in steps on a logarithmic axis, from where it is more than nothing.
    """
    steps: Look = {"drawstyle": "steps-post"} if grows else {}

    def draw(panel: Axes, row: RowName) -> bool:
        ends = _Ends(values)
        found = _baselines(panel, selection, row, ends, steps)
        for method, stroke in METHODS.items():
            for k in CLUSTERS:
                runs = selection.runs(row, method, k)
                found.append(_line(panel, series.mean(runs, values), k, {**stroke, **steps}))
                ends.add(runs, {**CLUSTERS[k], **stroke})
        if grows and any(value > 0 for one in found for value in one):
            panel.set_yscale("log", nonpositive="mask")
        elif any(found):
            panel.set_ylim(bottom=0)
        ends.draw(panel, max(map(len, found)), above=panel.get_ylim()[0])
        return any(found)

    legend = [
        *drawing.baseline_samples(selection),
        *drawing.method_samples(selection),
        *drawing.cluster_samples(selection),
    ]
    title = drawing.made_of(selection, labels[0], _WHISKERS)
    return drawing.arranged(title, ("round", labels[1]), draw, legend, _rows(selection))


class _Ends:
    """The intervals over seeds at the ends of curves: whiskers beside each other, at the right of a panel."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self._found: list[tuple[float, Interval, Look]] = []

    def add(self, runs: Sequence[Line], look: Look) -> None:
        """Keep the end of a curve, where several seeds tell of it."""
        found = series.at_the_end(runs, self.values)
        if found is not None and found.interval is not None and any(found.values):
            self._found.append((found.mean, found.interval, look))

    def draw(self, panel: Axes, last: int, *, above: float = -math.inf) -> list[float]:
        """Draw them behind the last round, but nothing below a limit; where they begin and end."""
        for place, (mean, interval, look) in enumerate(self._found):
            low = min(mean, max(interval.low, above))
            panel.errorbar(
                [last + _ENDS_FROM + _ENDS_APART * place],
                [mean],
                yerr=[[mean - low], [interval.high - mean]],
                elinewidth=0.8,
                capsize=1.2,
                **{"marker": "_", **look, "linestyle": "none", "zorder": 6},
            )
        return [limit for _, interval, _ in self._found for limit in (interval.low, interval.high)]


def _rows(selection: Selection) -> tuple[RowName, ...]:
    return selection.shown(PANELS, lambda line: line.row)


def _baselines(
    panel: Axes, selection: Selection, row: RowName, ends: _Ends, more: Look | None = None
) -> list[Sequence[float]]:
    found = []
    for method, look in BASELINES.items():
        runs = selection.runs(row, method)
        found.append(_plot(panel, series.mean(runs, ends.values), {**look, **(more or {})}))
        ends.add(runs, look)
    return found


def _line(panel: Axes, values: Sequence[float], k: int, stroke: Look) -> Sequence[float]:
    """The line of a k: markers of different k stand at different rounds, so that none hides another."""
    first = 2 + list(CLUSTERS).index(k) * _EVERY // len(CLUSTERS)
    return _plot(panel, values, {**CLUSTERS[k], **stroke, "markevery": (first, _EVERY)})


def _plot(panel: Axes, values: Sequence[float], look: Look) -> Sequence[float]:
    """Draw one value a round, from round 1 on; nothing where there are none."""
    if values:
        panel.plot(range(1, len(values) + 1), values, **look)
    return values
