"""The Pareto figure: work against what the best attacker still has, with accuracy as colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from disavow.compare.report import Comparison, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_WORK = 1e-3
"""Where methods are drawn that let no client train: a logarithm has no 0."""

_MARKERS = {True: "s", False: "o"}
_NEAR = 2.0
"""Points whose work differs by less are named in one column."""

_INK, _GREY = "#222222", "#777777"


def pareto_figure(comparison: Comparison) -> Figure:
    """Draw every method that was attacked.

    On the left is little work, at the bottom little that an attacker can tell. Squares are exact methods. The band
    is what exact retrainings of the run's scheme have when each is held against the others: inside it a method
    cannot be told from a retraining by these attackers. Bars are 95 % intervals over seeds.

    Args:
        comparison: What was found.

    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 5.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    rows = [row for row in comparison.rows if "best_attacker" in row.estimates]
    shade = "accuracy" if all("accuracy" in row.estimates for row in rows) else "loss"
    _band(axes, comparison)
    drawn = None
    for exact, marker in _MARKERS.items():
        some = [row for row in rows if row.method.exact == exact]
        if not some:
            continue
        drawn = axes.scatter(
            [_work(row) for row in some],
            [row.estimates["best_attacker"].mean for row in some],
            c=[row.estimates[shade].mean for row in some],
            vmin=min(row.estimates[shade].mean for row in rows),
            vmax=max(row.estimates[shade].mean for row in rows),
            cmap="viridis",
            marker=marker,
            s=64,
            edgecolors=_INK,
            linewidths=0.8,
            zorder=3,
            label="exact" if exact else "not exact",
        )
    for row in rows:
        _bar(axes, row)
    top = 1.15 * max([axes.dataLim.ymax, 1e-3])
    axes.set_xscale("log")
    axes.set_xlim(LEAST_WORK / 2, 8 * max([1.0, *map(_work, rows)]))
    axes.set_ylim(-0.02 * top, top)
    _names(axes, rows, top)
    axes.set_xlabel("client-epochs, as a share of a retraining from scratch (no work at all is drawn at 0.001)")
    axes.set_ylabel("advantage of the best attacker,\ndistance from exact retrainings")
    axes.set_title(f"Forgetting {comparison.leaver}: work against what is left", loc="left", fontsize=11)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6, zorder=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if drawn is not None:
        figure.colorbar(drawn, ax=axes, label=f"{shade} on test records", shrink=0.85)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8, labelcolor=_INK)
    return figure


def _work(row: Row) -> float:
    return max(LEAST_WORK, row.estimates["work"].mean)


def _band(axes: Axes, comparison: Comparison) -> None:
    scheme = comparison.schemes.get("run") or next(iter(comparison.schemes.values()))
    scatter = scheme.references.get("best_attacker")
    if scatter is not None:
        axes.axhspan(0, max(scatter.values), color="#0072B2", alpha=0.12, zorder=1, label="exact retrainings")
    before = scheme.before.get("best_attacker")
    if before is not None:
        axes.axhline(before.mean, color="#D55E00", linestyle=(0, (4, 3)), linewidth=1.2, label="before the erasure")


def _bar(axes: Axes, row: Row) -> None:
    interval = row.estimates["best_attacker"].interval
    if interval is not None:
        axes.vlines(_work(row), max(0.0, interval.low), interval.high, color=_GREY, linewidth=1.0, zorder=2)


def _names(axes: Axes, rows: list[Row], top: float) -> None:
    """Write names beside points, moved apart where points lie close, with a line from each to its point."""
    ahead = sorted(rows, key=lambda row: (_work(row), row.estimates["best_attacker"].mean))
    groups: list[list[Row]] = []
    for row in ahead:
        if groups and _work(row) < _NEAR * _work(groups[-1][-1]):
            groups[-1].append(row)
        else:
            groups.append([row])
    for group in groups:
        group.sort(key=lambda row: row.estimates["best_attacker"].mean)
        right = max(map(_work, group)) * 1.25
        for row, height in zip(group, _apart([r.estimates["best_attacker"].mean for r in group], top), strict=True):
            axes.annotate(
                row.method.name,
                (_work(row), row.estimates["best_attacker"].mean),
                xytext=(right, height),
                fontsize=7.5,
                color=_INK,
                va="center",
                arrowprops={"arrowstyle": "-", "color": _GREY, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 4},
                zorder=4,
            )


def _apart(heights: list[float], top: float) -> list[float]:
    """Move sorted heights apart by the height of a line of text, as little as possible from the bottom up."""
    least, found = 0.038 * top, list[float]()
    for height in heights:
        found.append(max(height, found[-1] + least) if found else max(height, least / 2))
    over = found[-1] - 0.98 * top
    if over > 0:  # the same from the top down
        found[-1] -= over
        for at in range(len(found) - 2, -1, -1):
            found[at] = min(found[at], found[at + 1] - least)
    return found
