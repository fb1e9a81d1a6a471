"""Accuracy against the odds: what hiding a client among others costs, by the number of clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from disavow.proof.bounds import NO_PROTECTION
from reproduction import drawing
from reproduction.drawing import Look
from reproduction.odds_lines import OddsLine
from reproduction.table import NETWORKS

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_Gamma = Callable[[OddsLine], float | None]
_Height = Callable[[OddsLine], float]


@dataclass(frozen=True)
class _Point:
    """Mean and range over the seeds of one number of clients and one σ."""

    x: float
    y: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    sigma: float


def odds(lines: Iterable[OddsLine], path: Path) -> tuple[Path, Path]:
    """Two panels above, accuracy with FedAvg's as a level; two below, the points lost; per round and composed.

    Of the paper's noise with one representative; what changes either is in the figure of composed odds.
    """
    of_the_paper = (line for line in lines if line.noise == "paper" and line.representatives == 1)
    held = list({line.key: line for line in of_the_paper}.values())
    rounds = max((line.rounds for line in held), default=0)
    gammas: tuple[_Gamma, _Gamma] = _of_a_round, partial(_composed, rounds=rounds)
    with drawing.style():
        drawn = drawing.blank(5.4)
        panels = drawn.subplots(2, 2, sharex="col", sharey="row")
        for side, gamma in enumerate(gammas):
            _panel(panels[0][side], held, gamma, lambda line: line.accuracy, levels=True)
            _panel(panels[1][side], held, gamma, lambda line: 100 * (line.accuracy - line.fedavg_accuracy))
            panels[0][side].set_title(("odds of a round", "odds composed over all rounds")[side])
            panels[1][side].set_xlabel("log10 γ (further left: better hidden)")
        if held:
            _few_points(panels[1][0])
        panels[0][0].set_ylabel("test accuracy")
        panels[1][0].set_ylabel("accuracy minus fedAvg's, points")
        drawn.suptitle(_title(held))
        if held:
            drawn.legend(handles=_samples(held), ncols=3, handlelength=3.5, **drawing.LEGEND)
        return drawing.write(drawn, path)


def _panel(panel: Axes, lines: Sequence[OddsLine], gamma: _Gamma, height: _Height, *, levels: bool = False) -> None:
    drawing.frame(panel)
    drawn = False
    for clients, look in _looks(lines).items():
        runs = [line for line in lines if line.clients == clients]
        if levels and runs:
            level = fmean(line.fedavg_accuracy for line in runs)
            panel.axhline(level, color=look["color"], linestyle=look["linestyle"], linewidth=0.7, alpha=0.8)
        points = _points(runs, gamma, height)
        if points:
            _draw(panel, points, look)
            drawn = True
    if not drawn:
        drawing.not_run(panel)
        return
    if not levels:
        panel.axhline(0, color="black", linewidth=0.8)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    left, right = panel.get_xlim()
    if right > NO_PROTECTION:
        panel.axvspan(max(NO_PROTECTION, left), right, color="0.93", zorder=0)
        said: Look = {"transform": panel.get_xaxis_transform(), "ha": "right", "color": "0.35"}
        panel.text(right, 0.02, "no protection by noise ", **said)
        panel.set_xlim(left, right)


def _few_points(panel: Axes) -> None:
    """Linear within one point, logarithmic beyond: a few points matter, a ruined model is only ruined."""
    low, high = panel.get_ylim()
    panel.set_yscale("symlog", linthresh=1, linscale=1)
    panel.set_ylim(min(-1.0, 1.4 * low), max(1.0, 1.4 * high))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _of_a_round(line: OddsLine) -> float | None:
    return line.log10_gamma_round


def _composed(line: OddsLine, rounds: int) -> float | None:
    """None for a run that noise destroyed before its last round: its odds are composed over fewer."""
    return line.log10_gamma_composed if line.rounds == rounds else None


def _points(lines: Sequence[OddsLine], gamma: _Gamma, height: _Height) -> list[_Point]:
    """One point for each σ, from the best hidden on; runs without noise have no odds and no point."""
    found = []
    for sigma in {line.sigma for line in lines}:
        pairs = [(x, height(line)) for line in lines if line.sigma == sigma and (x := gamma(line))]
        if pairs:
            xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
            found.append(_Point(fmean(xs), fmean(ys), (min(xs), max(xs)), (min(ys), max(ys)), sigma))
    return sorted(found, key=lambda point: point.x)


def _draw(panel: Axes, points: Sequence[_Point], look: Look) -> None:
    panel.errorbar(
        [point.x for point in points],
        [point.y for point in points],
        xerr=_whiskers([(point.x, point.x_range) for point in points]),
        yerr=_whiskers([(point.y, point.y_range) for point in points]),
        elinewidth=0.8,
        capsize=1.8,
        **look,
    )


def _whiskers(found: Sequence[tuple[float, tuple[float, float]]]) -> list[list[float]]:
    return [[mean - low for mean, (low, _) in found], [high - mean for mean, (_, high) in found]]


def _looks(lines: Sequence[OddsLine]) -> dict[int, Look]:
    numbers = sorted({line.clients for line in lines})
    return {clients: drawing.ANY[at % len(drawing.ANY)] for at, clients in enumerate(numbers)}


def _samples(lines: Sequence[OddsLine]) -> list[Artist]:
    found = []
    for clients, look in _looks(lines).items():
        of = sorted({round(line.samples_per_client) for line in lines if line.clients == clients})
        found.append(drawing.sample(f"{clients:,} clients of {' or '.join(f'{one:,}' for one in of)}", **look))
    return [*found, drawing.sample("fedAvg: level of the same stroke", color="0.3", linewidth=0.7)]


def _title(lines: Sequence[OddsLine]) -> str:
    if not lines:
        return "Accuracy against the odds"
    seeds = drawing.number_of_seeds(
        {line.seed for line in lines if line.clients == clients} for clients in {line.clients for line in lines}
    )
    networks = ", ".join(dict.fromkeys(NETWORKS[line.network] for line in lines))
    ks = ", ".join(str(k) for k in sorted({line.k for line in lines}))
    rounds = max(line.rounds for line in lines)  # fewer stand where noise destroyed the model
    devices = ", ".join(dict.fromkeys(line.device for line in lines))
    spread = "1 seed" if seeds == "1" else f"mean and range over {seeds} seeds"
    sigmas = ", ".join(f"{sigma:g}" for sigma in sorted({line.sigma for line in lines if line.sigma}, reverse=True))
    return (
        f"Accuracy against the odds; {networks}, k = {ks}, {rounds} rounds\n{spread}; {devices}\n"
        f"along each line from left to right: σ = {sigmas}"
    )
