"""What Δ and s trade: accuracy, rollbacks and odds against a relative Δ, a fixed Δ, and s."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from reproduction import drawing
from reproduction.drawing import ANY, Look
from reproduction.lines import Line, RowName, named
from reproduction.quantities import median_odds, rollbacks_per_request, settled_accuracy, worst_odds
from reproduction.selection import Cell, Quantity, Selection, cell_of, select

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Parameter = Literal["relative", "fixed", "representatives"]

PARAMETERS: dict[Parameter, str] = {
    "relative": "Δ, times the median update",
    "fixed": "Δ, fixed",
    "representatives": "s, representatives of a cluster",
}
"""What is changed, a column each."""
ADAPTIVE = "s=1"
"""The variant with adaptive Δ, which excludes nobody, and one representative: what both Δ are compared with."""
_APART = 0.12
"""Between two rows of the grid, where values are 1 apart."""
_WORST: Look = {"markerfacecolor": "white"}


class Measure(NamedTuple):
    """What a line of panels shows: one quantity of each run, or several, and between what they can be.

    Of that range, finite ends are always in view.
    """

    label: str
    quantities: tuple[tuple[Quantity, Look], ...]
    range_of_values: tuple[float, float]
    reference: float | None = None
    """A value with a line of its own, such as that of FedAvg."""


class Setting(NamedTuple):
    """What a variant changes, and to what."""

    parameter: Parameter
    value: float


def trade_off(lines: Iterable[Line], path: Path) -> tuple[Path, Path]:
    """Draw accuracy, rollbacks and odds, each against Δ and s: a line for each row of the grid.

    Intervals are Student's, of 95 %, over seeds. Adaptive Δ stands to the right of all others, unconnected.

    Args:
        lines: The runs of the study, with the grid's names of variants.
        path: Without a suffix.

    """
    selection = select(lines, "lenet5")
    rows = selection.distinct(lambda line: line.row)

    def points_gained(line: Line) -> float | None:
        fedavg = selection.baseline(line)
        return None if fedavg is None else 100 * (settled_accuracy(line) - settled_accuracy(fedavg))

    measures = (
        Measure("accuracy minus fedAvg's,\npoints", ((points_gained, {}),), (-math.inf, math.inf), 0.0),
        Measure("rollbacks a request", ((rollbacks_per_request, {}),), (0.0, 1.0)),
        Measure("log10 γ over all rounds", ((median_odds, {}), (worst_odds, _WORST)), (0.0, math.inf)),
    )
    with drawing.style():
        drawn = drawing.blank(6.0)
        panels = drawn.subplots(len(measures), len(PARAMETERS), sharex="col")
        for across, measure in zip(panels, measures, strict=True):
            for panel, parameter in zip(across, PARAMETERS, strict=True):
                _panel(panel, selection, rows, measure, _variants(selection, parameter))
            filled = [panel for panel in across if panel.containers]
            _align(filled)
            across[0].set_ylabel(measure.label)
        for panel, label in zip(panels[-1], PARAMETERS.values(), strict=True):
            panel.set_xlabel(label)
        if rows:
            drawn.legend(handles=_samples(rows), ncols=len(rows) + 2, **drawing.LEGEND)
        intervals = "; 95 % intervals over seeds" if len(selection.seeds) > 1 else ""
        drawn.suptitle(drawing.made_of(selection, f"What Δ and s trade{intervals}"))
        return drawing.write(drawn, path)


def setting_of(variant: str) -> Setting | None:
    """What a variant of the grid changes, by its name; None where it is no such name.

    >>> setting_of("s=3"), setting_of("Δ=0.5")
    (Setting(parameter='representatives', value=3.0), Setting(parameter='fixed', value=0.5))
    >>> setting_of("Δ=0.9x"), setting_of("")
    (Setting(parameter='relative', value=0.9), None)

    Args:
        variant: Its name.

    """
    name, _, value = variant.partition("=")
    if name == "s":
        return Setting("representatives", float(value))
    if name == "Δ":
        return Setting("relative" if value.endswith("x") else "fixed", float(value.removesuffix("x")))
    return None


def _variants(selection: Selection, parameter: Parameter) -> dict[str, str]:
    """The variants that change a parameter, by its value, each with its label; of Δ, adaptive comes last."""
    settings = {variant: setting_of(variant) for variant in selection.distinct(lambda line: line.variant)}
    values = {variant: each.value for variant, each in settings.items() if each and each.parameter == parameter}
    labels = {variant: f"{values[variant]:g}" for variant in sorted(values, key=values.__getitem__)}
    if labels and parameter != "representatives" and ADAPTIVE in settings:
        labels[ADAPTIVE] = "adaptive"
    return labels


def _panel(
    panel: Axes,
    selection: Selection,
    rows: Sequence[RowName],
    measure: Measure,
    variants: Mapping[str, str],
) -> None:
    drawing.frame(panel)
    panel.grid(axis="x", visible=False)
    for number, row in enumerate(rows):
        shift = _APART * (number - (len(rows) - 1) / 2)
        for quantity, changed in measure.quantities:
            cells = [
                (position + shift, cell, label == "adaptive")
                for position, (variant, label) in enumerate(variants.items())
                if (cell := _cell(selection, row, variant, quantity))
            ]
            look = {**ANY[number % len(ANY)], **changed}
            for apart in (False, True):
                drawn = [(at, cell) for at, cell, adaptive in cells if adaptive == apart]
                _draw(panel, drawn, look, measure.range_of_values)
    if panel.containers:
        panel.update_datalim(
            [(0.0, bound) for bound in measure.range_of_values if math.isfinite(bound)], updatex=False
        )
        panel.autoscale_view(scalex=False)
        if measure.reference is not None:
            panel.axhline(measure.reference, color="black", linewidth=0.8)
        panel.set_xticks(range(len(variants)), list(variants.values()))
        panel.set_xlim(-0.5, len(variants) - 0.5)
    else:
        drawing.not_run(panel)


def _cell(selection: Selection, row: RowName, variant: str, quantity: Quantity) -> Cell | None:
    runs = [line for line in selection.lines if (line.row, line.variant) == (row, variant)]
    found = [(line, value) for line in runs if (value := quantity(line)) is not None]
    return cell_of(found, ()) if found else None


def _draw(
    panel: Axes, cells: Sequence[tuple[float, Cell]], look: Look, range_of_values: tuple[float, float]
) -> None:
    """Draw means with their intervals, as far as these are within what a value can be."""
    if not cells:
        return
    means, halves = [cell.mean for _, cell in cells], [cell.interval or 0.0 for _, cell in cells]
    low, high = range_of_values
    panel.errorbar(
        [at for at, _ in cells],
        means,
        yerr=[
            [min(half, mean - low) for mean, half in zip(means, halves, strict=True)],
            [min(half, high - mean) for mean, half in zip(means, halves, strict=True)],
        ],
        elinewidth=0.9,
        capsize=1.8,
        markersize=3.8,
        **look,
    )


def _align(panels: Sequence[Axes]) -> None:
    """Give panels of one quantity the same heights, so that Δ and s can be compared."""
    if panels:
        lows, highs = zip(*(panel.get_ylim() for panel in panels), strict=True)
        for panel in panels:
            panel.set_ylim(min(lows), max(highs))


def _samples(rows: Sequence[RowName]) -> list[Artist]:
    """For the legend: the rows of the grid, and how the median client is told from the one that is worst off."""
    clients: dict[str, Look] = {"median client": {}, "client that is worst off": _WORST}
    return [
        *(drawing.sample(named(row), **look) for row, look in zip(rows, ANY, strict=False)),
        *(
            drawing.sample(title, color="0.3", marker="o", linestyle="none", **look)
            for title, look in clients.items()
        ),
    ]
