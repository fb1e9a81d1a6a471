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
_SIZE, _LETTER, _LINE = 7.5, 4.3, 9.0
"""Of names, in points: the letters, how wide one is, and how high a line."""

_POINT = 8.0
"""Half of the width of a marker, in pixels."""

_OFFSETS = [
    (side * (8 + abs(up) // 3), up) for up in (0, 9, -9, 18, -18, 27, -27, 36, -36, 45, -45) for side in (1, -1)
]
"""Where a name may stand beside its point, the nearest first."""

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
    if not rows:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no attacker can score the records of this task", ha="center", color=_INK)
        return figure
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
    axes.set_xlim(LEAST_WORK / 2, 6 * max([1.0, *map(_work, rows)]))
    axes.set_ylim(-0.02 * top, top)
    axes.set_xlabel("client-epochs, as a share of a retraining from scratch (no work at all is drawn at 0.001)")
    axes.set_ylabel("advantage of the best attacker,\ndistance from exact retrainings")
    axes.set_title(f"Forgetting {comparison.leaver}: work against what is left", loc="left", fontsize=11)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6, zorder=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if drawn is not None:
        figure.colorbar(drawn, ax=axes, label=f"{shade} on test records", shrink=0.85)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8, labelcolor=_INK)
    _names(figure, axes, rows)
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


def _names(figure: Figure, axes: Axes, rows: list[Row]) -> None:
    """Write each name beside its point, at the nearest place where it covers no other point or name."""
    from matplotlib.patheffects import withStroke

    over_lines = [withStroke(linewidth=2.5, foreground="white")]
    figure.canvas.draw()  # settles where points are
    ahead = sorted(rows, key=lambda row: (-_work(row), row.estimates["best_attacker"].mean))
    at = {
        row.method.name: axes.transData.transform((_work(row), row.estimates["best_attacker"].mean))
        for row in ahead
    }
    taken = [(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y in at.values()]
    scale = figure.dpi / 72  # pixels a point of text
    points = {row.method.name: (_work(row), row.estimates["best_attacker"].mean) for row in ahead}
    for name, (x, y) in at.items():
        wide, high = _LETTER * len(name) * scale, _LINE * scale
        for right, up in _OFFSETS:
            left = x + (right * scale if right >= 0 else right * scale - wide)
            box = (left, y + up * scale - high / 2, left + wide, y + up * scale + high / 2)
            if not any(_overlap(box, other) for other in taken):
                break
        taken.append(box)
        written = axes.annotate(
            name,
            points[name],
            xytext=(right, up),
            textcoords="offset points",
            ha="left" if right >= 0 else "right",
            va="center",
            fontsize=_SIZE,
            color=_INK,
            path_effects=over_lines,
            arrowprops={"arrowstyle": "-", "color": _GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 4},
            zorder=4,
        )
        written.set_in_layout(False)  # or the axes would move, and with them the points that names were put beside


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    """Whether two boxes share a point: left, bottom, right, top."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
