"""The plot of `disavow account`: ε over rounds, one curve for each accountant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours with as many dashes and shapes: told apart by everyone, and in grey
_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "linestyle": "-", "marker": "s"},
    {"color": "#D55E00", "linestyle": "--", "marker": "o"},
    {"color": "#CC79A7", "linestyle": ":", "marker": "v"},
    {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    {"color": "#0072B2", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "D"},
)
_MARKERS = 8
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
