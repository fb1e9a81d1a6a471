"""ROC curves as a picture: what an attacker makes of the model before, as served after, and retrained."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from disavow.audit.game import Floats, Scores, Stage
from disavow.audit.roc import Roc, auc, roc
from disavow.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".pdf", ".svg")
"""What a plot can be written as."""

Curves = Mapping[str, Mapping[Stage, Scores] | Mapping[str, Scores]]
"""For each attacker, its scores at each stage."""

_ABREAST = 3
# vermillion, green, black and blue of Okabe and Ito's palette, four strokes and widths: told apart by everyone, and
# in grey; the widest is drawn first, so that curves that coincide still show
_LOOKS: dict[Stage, dict[str, Any]] = {
    Stage.BEFORE: {"color": "#D55E00", "linestyle": (0, (1, 1.2)), "linewidth": 2.4, "zorder": 3},
    Stage.ANSWERED: {"color": "#009E73", "linestyle": (0, (3, 1, 1, 1)), "linewidth": 2.1, "zorder": 3.5},
    Stage.RETRAINED: {"color": "#000000", "linestyle": "-", "linewidth": 1.1, "zorder": 4},
    Stage.SERVED: {"color": "#0072B2", "linestyle": (0, (5, 2)), "linewidth": 1.9, "zorder": 5},
}


def draw_roc(curves: Curves, path: Path, title: str) -> None:
    """Write one panel for each attacker, as the suffix says: .png, .pdf or .svg.

    Both axes are logarithmic, because an attacker who is sure of a few counts for more than one who is right about
    most. Below one absent unit the curve says nothing, and that part is shaded. AUCs are given with 95 % intervals.

    Args:
        curves: Those of each attacker.
        path: The file.
        title: Above the panels.

    Raises:
        ConfigError: The file cannot be written, or there is no curve.

    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"a plot cannot be written to {path}; allowed: a name that ends in {', '.join(FORMATS)}")
    image = io.BytesIO()
    figure(curves, title).savefig(image, format=path.suffix[1:].lower())
    try:
        path.write_bytes(image.getvalue())
    except OSError as error:
        raise ConfigError(f"a plot cannot be written to {path} ({error.strerror})") from None


def figure(curves: Curves, title: str) -> Figure:
    """Draw the picture itself: panels of equal size, at most three abreast.

    Args:
        curves: Those of each attacker.
        title: Above the panels.

    """
    from matplotlib.figure import Figure

    if not curves:
        raise ConfigError("a plot needs the scores of at least one attacker, there are none")
    columns = min(_ABREAST, len(curves))
    rows = -(-len(curves) // columns)
    drawn = Figure(figsize=(0.4 + 3.5 * columns, 0.4 + 4.1 * rows), dpi=150, layout="constrained")
    panels = drawn.subplots(rows, columns, squeeze=False).ravel()
    for panel, (attacker, stages) in zip(panels, curves.items(), strict=False):
        _panel(panel, attacker, {Stage(stage): scores for stage, scores in stages.items()})
    for panel in panels[len(curves) :]:
        panel.set_axis_off()
    drawn.suptitle(f"{title}; AUC with its 95 % interval", fontsize="medium", wrap=True)
    return drawn


def _panel(panel: Axes, attacker: str, stages: Mapping[Stage, Scores]) -> None:
    absent = min(len(scores.absent) for scores in stages.values())
    least = 1 / (2 * absent)
    _shade(panel, least, absent)
    for stage in Stage:
        if stage in stages:
            x, y = _points(roc(stages[stage]), least)
            panel.plot(x, y, label=f"{stage}: AUC {auc(stages[stage])}", **_LOOKS[stage])
    panel.plot([least, 1], [least, 1], color="0.45", linewidth=0.9, linestyle=(0, (1, 3)), label="chance")
    panel.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1.12))
    panel.set_title(attacker, fontsize="medium")
    panel.set_xlabel("false-positive rate", fontsize="small")
    panel.set_ylabel("true-positive rate", fontsize="small")
    panel.tick_params(labelsize="small")
    panel.grid(color="0.88", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        frameon=False,
        fontsize="small",
        handlelength=3,
    )


def _shade(panel: Axes, least: float, absent: int) -> None:
    """Mark what `absent` units cannot show: a rate of false positives of less than one of them."""
    panel.axvspan(least, 1 / absent, color="0.9", zorder=0)
    panel.text(
        least * 2**0.5,
        0.5,
        "too few absent units to say",
        transform=panel.get_xaxis_transform(),
        rotation=90,
        ha="center",
        va="center",
        fontsize="x-small",
        color="0.35",
    )


def _points(curve: Roc, least: float) -> tuple[Floats, Floats]:
    """The curve in logarithmic axes: rates below `least` lie on the edge; ties, straight in linear axes, bend."""
    x, y = [curve.fpr[:1]], [curve.tpr[:1]]
    along = np.geomspace(1e-4, 1, 40)
    rises, runs = np.diff(curve.tpr), np.diff(curve.fpr)
    for start, (rise, run) in enumerate(zip(rises, runs, strict=True)):
        steps = along if rise > 0 and run > 0 else along[-1:]
        x.append(curve.fpr[start] + run * steps)
        y.append(curve.tpr[start] + rise * steps)
    return np.maximum(np.concatenate(x), least), np.maximum(np.concatenate(y), least)
