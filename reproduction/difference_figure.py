"""What accuracy is lost to FedAvg when nobody leaves: a column of panels for each network, one for each k."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from reproduction import drawing
from reproduction.drawing import ANY, Look
from reproduction.lines import Line, Method, Network
from reproduction.quantities import SETTLED, settled_accuracy
from reproduction.selection import Cell, Selection, select
from reproduction.table import NETWORKS, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS: tuple[Method, ...] = ("fedavg-sampled", "published", "sticky", "sticky-3")
PARTITIONS = {
    "iid": "iid",
    "dirichlet0.3": "Dir.\n0.3",
    "dirichlet0.1": "Dir.\n0.1",
    "labels2": "two\nlabels",
}
_DATA_SETS = {"MNIST": "MNIST", "FMNIST": "Fashion\nMNIST", "CIFAR10": "CIFAR10", "CelebA": "CelebA"}
_KS = (4, 10)
_APART = 0.17
"""Between two methods, where rows are 1 apart."""


@dataclass(frozen=True)
class _Column:
    """The panels of a network: their rows, from left to right."""

    title: str
    network: Network
    rows: Sequence[str]


def skew(lines: Iterable[Line], path: Path) -> tuple[Path, Path]:
    """Accuracy minus FedAvg's where clients hold different labels, by partition.

    Args:
        lines: The runs of the study.
        path: Without a suffix.

    """
    networks: tuple[Network, ...] = ("lenet5", "resnet-mini")
    columns = [
        _Column(f"{NETWORKS[network]}, {data}", network, [f"{data}-{partition}" for partition in PARTITIONS])
        for network, data in product(networks, ("MNIST", "CIFAR10"))
    ]
    return _differences(lines, path, columns, list(PARTITIONS.values()), "Clients with different labels: accuracy")


def accuracy(lines: Iterable[Line], path: Path) -> list[Path]:
    """Accuracy minus FedAvg's on the paper's rows, by data set: a figure for equal and one for unequal sizes.

    Args:
        lines: The runs of the study.
        path: Without a suffix; of unequal sizes with `-unequal-sizes`.

    """
    networks: tuple[Network, ...] = ("lenet5", "resnet-mini", "convnet")
    lines = list(lines)
    written: list[Path] = []
    for sizes, said, place in (
        ("iid", "Iid clients", path),
        ("noniid", "Clients of unequal sizes", path.with_name(f"{path.name}-unequal-sizes")),
    ):
        columns = [
            _Column(NETWORKS[network], network, [f"{data}-{sizes}" for data in _DATA_SETS]) for network in networks
        ]
        written += _differences(lines, place, columns, list(_DATA_SETS.values()), f"{said}: accuracy")
    return written


def _differences(
    lines: Iterable[Line], path: Path, columns: Sequence[_Column], ticks: Sequence[str], what: str
) -> tuple[Path, Path]:
    """Draw means of the last rounds, with Student's 95 % intervals over seeds.

    Differences are taken seed by seed. What lacks a seed that others have is not drawn, and there is no column of
    which nothing is drawn: the table says what was not run.
    """
    lines = list(lines)
    of_networks = {column.network: select(lines, column.network) for column in columns}
    found = {column.title: [_found(of_networks[column.network], column.rows, k) for k in _KS] for column in columns}
    shown = {title: of_ks for title, of_ks in found.items() if any(of_ks)} or found
    with drawing.style():
        return drawing.write(_drawn(shown, ticks, what, {line.method for line in lines}), path)


_Difference = tuple[float, Cell, Look]
"""Where it is drawn, what, and how."""


def _found(selection: Selection, rows: Sequence[str], k: int) -> list[_Difference]:
    """Of each method and row that has all seeds."""
    return [
        (place + _APART * (at - (len(METHODS) - 1) / 2), lost, look)
        for at, (method, look) in enumerate(zip(METHODS, ANY, strict=False))
        for place, row in enumerate(rows)
        if (lost := selection.difference(row, method, k, settled_accuracy)) is not None
        and lost.seeds == selection.seeds
    ]


def _drawn(
    shown: Mapping[str, list[list[_Difference]]], ticks: Sequence[str], what: str, run: set[Method]
) -> Figure:
    drawn = drawing.blank(4.6)
    panels = drawn.subplots(len(_KS), len(shown), sharex=True, sharey=True, squeeze=False)
    for at, (above, k) in enumerate(zip(panels, _KS, strict=True)):
        for panel, (title, of_ks) in zip(above, shown.items(), strict=True):
            drawing.frame(panel)
            panel.grid(axis="x", visible=False)
            panel.set_title(title)
            if of_ks[at]:
                _panel(panel, of_ks[at])
            else:
                drawing.not_run(panel, shared_axis=True)
        above[0].set_ylabel(f"k = {k}: points to fedAvg")
    panels[0, 0].set_xticks(range(len(ticks)), ticks)
    handles = [
        drawing.sample(TITLES[method], **{**look, "linestyle": "none"})
        for method, look in zip(METHODS, ANY, strict=False)
        if method in run
    ]
    if handles:
        drawn.legend(handles=handles, ncols=len(handles), **drawing.LEGEND)
    drawn.suptitle(f"{what} minus fedAvg's, mean of the last {SETTLED} rounds, 95 % intervals over seeds")
    return drawn


def _panel(panel: Axes, differences: list[_Difference]) -> None:
    for where, lost, look in differences:
        drawing.whisker(panel, where, 100 * lost.mean, lost.interval and 100 * lost.interval, look)
    panel.axhline(0.0, color="black", linewidth=0.8)
