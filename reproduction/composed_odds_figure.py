"""Accuracy against the odds over all rounds of the client that is worst off, before and after they were chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from reproduction import drawing
from reproduction.composed_odds import Scheme, by_scheme, points_lost
from reproduction.drawing import Look
from reproduction.odds_lines import OddsLine
from reproduction.table import NETWORKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TARGET_ODDS, TARGET_POINTS = 10.0, -2.0
"""What was to be reached."""
_CLIENTS = (200, 1000, 3000)


def composed_odds(lines: Iterable[OddsLine], path: Path) -> tuple[Path, Path]:
    """A panel for each number of clients: points lost against FedAvg of the same rounds, over the worst odds."""
    schemes = by_scheme(lines)
    held = [line for runs in schemes.values() for line in runs]
    numbers = [clients for clients in _CLIENTS if any(line.clients == clients for line in held)]
    numbers = numbers or sorted({line.clients for line in held})[-3:] or list(_CLIENTS)
    with drawing.style():
        drawn = drawing.blank(3.0)
        panels = drawn.subplots(1, len(numbers), sharex=True, sharey=True, squeeze=False)[0]
        for panel, clients in zip(panels, numbers, strict=True):
            _panel(panel, {scheme: _of(runs, clients) for scheme, runs in schemes.items()})
            panel.set_title(f"{clients:,} clients")
            panel.set_xlabel("odds over all rounds, worst client")
        panels[0].set_ylabel("accuracy minus fedAvg's, points")
        if held:
            panels[0].set_yscale("symlog", linthresh=1, linscale=1)
            panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            samples = [drawing.sample(str(scheme), **look) for scheme, look in _looks(list(schemes)).items()]
            goal = drawing.sample("odds of 10 for two points", color="0.3", linewidth=0.7, linestyle="--")
            drawn.legend(handles=[*samples, goal], ncols=2, handlelength=3.5, **drawing.LEGEND)
        drawn.suptitle(_title(schemes))
        return drawing.write(drawn, path)


def _of(lines: Sequence[OddsLine], clients: int) -> list[OddsLine]:
    return [line for line in lines if line.clients == clients]


def _panel(panel: Axes, schemes: Mapping[Scheme, Sequence[OddsLine]]) -> None:
    drawing.frame(panel)
    if not any(schemes.values()):
        drawing.not_run(panel)
        return
    for scheme, look in _looks(list(schemes)).items():
        mine = schemes[scheme]
        points = sorted(_point([line for line in mine if line.sigma == sigma]) for sigma in {m.sigma for m in mine})
        if points:
            xs, ys, low, high = zip(*points, strict=True)
            panel.errorbar(xs, ys, yerr=(low, high), elinewidth=0.8, capsize=1.8, **look)
    panel.axvline(math.log10(TARGET_ODDS), color="0.3", linewidth=0.7, linestyle="--")
    panel.axhline(TARGET_POINTS, color="0.3", linewidth=0.7, linestyle="--")
    panel.axhline(0, color="black", linewidth=0.8)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(lambda exponent, _: f"$10^{{{exponent:g}}}$")


def _point(lines: Sequence[OddsLine]) -> tuple[float, float, float, float]:
    """Mean odds, mean points lost, and how far below and above the mean the seeds are."""
    lost = [points_lost(line) for line in lines]
    mean = fmean(lost)
    return fmean(line.worst_composed or 0.0 for line in lines), mean, mean - min(lost), max(lost) - mean


def _looks(schemes: Sequence[Scheme]) -> dict[Scheme, Look]:
    return {scheme: drawing.ANY[at % len(drawing.ANY)] for at, scheme in enumerate(schemes)}


def _title(schemes: Mapping[Scheme, Sequence[OddsLine]]) -> str:
    what = "Accuracy against the odds over all rounds"
    lines = [line for runs in schemes.values() for line in runs]
    if not lines:
        return what
    networks = ", ".join(dict.fromkeys(NETWORKS[line.network] for line in lines))
    groups: dict[tuple[object, ...], set[int]] = {}
    for scheme, runs in schemes.items():
        for line in runs:
            groups.setdefault((scheme, line.clients, line.sigma), set()).add(line.seed)
    ks = ", ".join(str(k) for k in sorted({line.k for line in lines}))
    devices = ", ".join(dict.fromkeys(line.device for line in lines))
    seeds = drawing.number_of_seeds(groups.values())
    return f"{what}; {networks}, k = {ks}\nmean and range, seeds: {seeds}; {devices}"
