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
_INK, _GREY = "#222222", "#777777"


def pareto_figure(comparison: Comparison) -> Figure:
    """Draw every method that was attacked.

    On the left is little work, at the bottom little that an attacker can tell. Squares are exact methods. The band is
    what exact retrainings of the run's scheme have when each is held against the others: inside it a method cannot be
    told from a retraining by these attackers. Bars are 95 % intervals over seeds.

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
    _names(axes, rows)
    axes.set_xscale("log")
    axes.set_xlim(LEAST_WORK / 2, 4)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("client-epochs, as a share of a retraining from scratch (no work at all is drawn at 0.001)")
    axes.set_ylabel("advantage of the best attacker,\ndistance from exact retrainings")
    axes.set_title(f"Forgetting {comparison.leaver}: work against what is left", loc="left", fontsize=11)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6, zorder=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if drawn is not None:
        figure.colorbar(drawn, ax=axes, label=f"{shade} on test records", shrink=0.85)
        axes.legend(loc="upper left", frameon=False, fontsize=8, labelcolor=_INK)
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


def _names(axes: Axes, rows: list[Row]) -> None:
    """Write names beside points; those that would lie on each other are listed in one place."""
    placed: list[tuple[float, float]] = []
    top = max((row.estimates["best_attacker"].mean for row in rows), default=1.0) or 1.0
    for row in sorted(rows, key=lambda each: (_work(each), each.estimates["best_attacker"].mean)):
        work, height = _work(row), row.estimates["best_attacker"].mean
        near = sum(1 for at, up in placed if 0.4 < work / at < 2.5 and abs(up - height) < 0.045 * top)  # noqa: PLR2004
        axes.annotate(
            row.method.name,
            (work, height),
            xytext=(7, 4 + 9 * near),
            textcoords="offset points",
            fontsize=7.5,
            color=_INK,
            zorder=4,
        )
        placed.append((work, height))
