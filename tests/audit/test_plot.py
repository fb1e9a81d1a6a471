"""The picture of ROC curves: what it shows, and that it can be written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from disavow.audit.game import Scores, Stage
from disavow.audit.plot import FORMATS, draw_roc, figure
from disavow.audit.roc import auc
from disavow.errors import ConfigError
from tests.refusals import refuses

BEGINNINGS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


def panel(shift: float, present: int = 40, absent: int = 80) -> dict[Stage, Scores]:
    rng = np.random.default_rng(present)
    shifts = {Stage.BEFORE: shift, Stage.SERVED: 0.2, Stage.RETRAINED: 0.0}
    return {stage: Scores(rng.normal(by, 1, present), rng.normal(0, 1, absent)) for stage, by in shifts.items()}


@pytest.mark.parametrize("suffix", [*FORMATS, ".PNG"])
def test_a_picture_is_written_as_its_name_says(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"roc{suffix}"
    draw_roc({"loss threshold": panel(1.0), "subject level": panel(3.0, 16, 16)}, path, "client 3")
    assert path.read_bytes().startswith(BEGINNINGS[suffix.lower()])


def test_each_attacker_has_a_panel_with_its_stages_and_their_auc() -> None:
    curves = {f"attacker {i}": panel(i / 2) for i in range(5)}
    drawn = figure(curves, "client 3 of a run")
    panels = [axes for axes in drawn.axes if axes.axison]
    assert [axes.get_title() for axes in panels] == list(curves)
    for axes, stages in zip(panels, curves.values(), strict=True):
        legend = axes.get_legend()
        assert legend is not None
        labels = [text.get_text() for text in legend.get_texts()]
        assert labels == [*(f"{stage}: AUC {auc(stages[stage])}" for stage in Stage if stage in stages), "chance"]
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert axes.get_xlim() == (1 / 160, 1)
        assert [text.get_text() for text in axes.texts] == ["too few absent units to say"]
    assert "client 3 of a run" in drawn.get_suptitle()


def test_stages_differ_in_colour_stroke_and_width() -> None:
    lines = figure({"loss threshold": panel(1.0)}, "").axes[0].get_lines()[:3]
    for look in ("get_color", "get_linewidth"):
        assert len({getattr(line, look)() for line in lines}) == 3
    assert len({str(line._unscaled_dash_pattern) for line in lines}) == 3  # type: ignore[attr-defined]


def test_stages_may_go_by_their_names_and_some_may_lack() -> None:
    drawn = figure({"loss threshold": {"served": panel(1.0)[Stage.SERVED]}}, "")
    assert len(drawn.axes[0].get_lines()) == 2


@pytest.mark.parametrize(
    "scores",
    [
        Scores(np.ones(3), np.zeros(4)),
        Scores(np.zeros(3), np.ones(4)),
        Scores(np.zeros(3), np.zeros(4)),
        Scores(np.zeros(1), np.zeros(1)),
    ],
)
def test_curves_of_extreme_attackers_lie_within_the_panel(scores: Scores) -> None:
    axes = figure({"loss threshold": {Stage.SERVED: scores}}, "").axes[0]
    x, y = axes.get_lines()[0].get_data()
    assert np.min(x) >= axes.get_xlim()[0]
    assert np.min(y) >= axes.get_ylim()[0]
    assert (np.max(x), np.max(y)) == (1, 1)


def test_a_tie_bends_in_logarithmic_axes() -> None:
    axes = figure(
        {"loss threshold": {Stage.SERVED: Scores(np.zeros(50), np.r_[np.zeros(50), -np.ones(50)])}}, ""
    ).axes[0]
    x, y = (np.asarray(values) for values in axes.get_lines()[0].get_data())
    sloped = (x > axes.get_xlim()[0]) & (x < 0.5)
    np.testing.assert_allclose(y[sloped], 2 * x[sloped])
    assert sloped.sum() > 10


def test_what_cannot_be_drawn_or_written_is_refused(tmp_path: Path) -> None:
    with refuses(ConfigError, "roc.jpg", ".png, .pdf, .svg"):
        draw_roc({"loss threshold": panel(1.0)}, tmp_path / "roc.jpg", "")
    with refuses(ConfigError, "roc.png"):
        draw_roc({"loss threshold": panel(1.0)}, tmp_path / "missing" / "roc.png", "")
    with refuses(ConfigError, "attacker"):
        draw_roc({}, tmp_path / "roc.png", "")
