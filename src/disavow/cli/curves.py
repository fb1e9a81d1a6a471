"""The plots of `disavow account`, ε over rounds, and of `disavow status`, every metric over rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from disavow.domain import escaped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from disavow.ledger import RoundSummary

# Okabe and Ito's colours with as many dashes and shapes: told apart by everyone, and in grey
_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "linestyle": "-", "marker": "s"},
    {"color": "#D55E00", "linestyle": "--", "marker": "o"},
    {"color": "#CC79A7", "linestyle": ":", "marker": "v"},
    {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    {"color": "#0072B2", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "D"},
)
_MARKERS = 8
_PANELS = 3
"""Panels beside each other."""
_WIDE = 20.0
"""Where the largest figure is this many times the smallest last one, the axis is logarithmic."""


@dataclass(frozen=True)
class Curve:
    """ε after each of these numbers of rounds; NaN where there is none."""

    name: str
    rounds: Sequence[int]
    epsilons: Sequence[float]


def figure(curves: Sequence[Curve], title: str, budget: float | None = None) -> Figure:
    """One panel; names stand at the ends of the curves, in the order in which these end."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    drawn = Figure(figsize=(8, 4.6), dpi=150, layout="constrained")
    panel = drawn.subplots()
    shown = [curve for curve in curves if any(math.isfinite(value) for value in curve.epsilons)]
    for curve, look in zip(shown, _LOOKS, strict=False):
        every = max(1, len(curve.rounds) // _MARKERS)
        panel.plot(curve.rounds, curve.epsilons, label=curve.name, markevery=every, markersize=5, **look)
    if budget is not None:
        panel.axhline(budget, color="0.35", linewidth=1)
        panel.annotate(f"budget {budget:g}", (0.01, budget), xycoords=("axes fraction", "data"), va="bottom")
    lasts = [curve.epsilons[-1] for curve in shown if curve.epsilons[-1] > 0]
    if lasts and max(lasts) > _WIDE * min(lasts):
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        panel.set_ylim(bottom=0)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("executed rounds, superseded ones too")
    panel.set_ylabel("ε")
    panel.set_title(title, fontsize="medium")
    panel.grid(color="0.88")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    drawn.legend(loc="outside right upper", frameon=False, handlelength=4)
    return drawn


def metrics_figure(rounds: Sequence[RoundSummary], title: str) -> Figure | None:
    """Draw every metric over the executed rounds, one panel each; what a rollback undid is grey and dashed.

    Args:
        rounds: All rounds of a run in the order in which they were executed.
        title: What stands above.

    Returns:
        The figure; None where nothing was measured.

    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    measured = [each.evaluation.metrics if each.evaluation else {} for each in rounds]
    names = list(dict.fromkeys(name for each in measured for name, value in each.items() if math.isfinite(value)))
    if not names:
        return None
    columns = min(len(names), _PANELS)
    lines = math.ceil(len(names) / columns)
    drawn = Figure(figsize=(max(5.0, 3.6 * columns), 0.9 + 2.7 * lines), dpi=150, layout="constrained")
    panels = list(drawn.subplots(lines, columns, squeeze=False, sharex=True).flat)
    executed = range(1, len(rounds) + 1)
    back = [i for i, (one, next_one) in enumerate(pairwise(rounds), start=1) if next_one.number <= one.number]
    for panel, name in zip(panels, names, strict=False):
        values = [each.get(name, math.nan) for each in measured]
        superseded = [math.nan if each.standing else value for each, value in zip(rounds, values, strict=True)]
        standing = [i for i, each in zip(executed, rounds, strict=True) if each.standing]
        panel.plot(executed, superseded, color="0.6", linestyle="--", marker="o", markersize=3, label="superseded")
        panel.plot(
            standing, [values[i - 1] for i in standing], color="#0072B2", marker="o", markersize=3, label="standing"
        )
        for place in back:
            panel.axvline(place + 0.5, color="#D55E00", linewidth=1, linestyle=":", label="rollback")
        panel.set_title(escaped(name).replace("$", r"\$"), fontsize="medium")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(color="0.88")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[len(names) :]:
        panel.remove()
    for panel in panels[max(0, len(names) - columns) : len(names)]:
        panel.tick_params(labelbottom=True)
        panel.set_xlabel("executed rounds, superseded ones too")
    drawn.suptitle(title.replace("$", r"\$"), fontsize="medium")
    if back:
        named = {label: line for line, label in zip(*panels[0].get_legend_handles_labels(), strict=True)}
        drawn.legend(named.values(), named.keys(), loc="outside lower center", ncols=3, frameon=False)
    return drawn
