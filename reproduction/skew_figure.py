"""Accuracy where clients hold different labels: one panel for each network, data set and k."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from reproduction import drawing
from reproduction.drawing import ANY
from reproduction.lines import PLAIN, Line, Method, Network
from reproduction.quantities import settled_accuracy
from reproduction.selection import Selection, cell_of, select
from reproduction.table import NETWORKS, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS: tuple[Method, ...] = ("fedavg", "fedavg-sampled", "published", "sticky", "sticky-3")
PARTITIONS = {
    "iid": "iid",
    "dirichlet0.3": "Dirichlet\n0.3",
    "dirichlet0.1": "Dirichlet\n0.1",
    "labels2": "two\nlabels",
}
_DATA, _KS = ("MNIST", "CIFAR10"), (4, 10)
_SHOWN: tuple[Network, ...] = ("lenet5", "resnet-mini")
_APART = 0.15
"""Between two methods, where partitions are 1 apart."""


def skew(lines: Iterable[Line], path: Path) -> tuple[Path, Path]:
    """Mean accuracy of the last rounds by partition, for each method, with Student's 95 % intervals over seeds.

    Args:
        lines: The runs of the study.
        path: Without a suffix.

    """
    lines = list(lines)
    whole = not lines or any(not line.quick for line in lines)  # a small version has few panels
    networks = [each for each in _SHOWN if whole or any(line.network == each for line in lines)]
    data_sets = [each for each in _DATA if whole or any(line.row.startswith(each) for line in lines)]
    with drawing.style():
        drawn = drawing.blank(4.6)
        panels = drawn.subplots(len(networks), len(data_sets) * len(_KS), sharex=True, squeeze=False)
        for above, network in zip(panels, networks, strict=True):
            selection = select(lines, network)
            for panel, (data, k) in zip(above, product(data_sets, _KS), strict=True):
                drawing.frame(panel)
                panel.grid(axis="x", visible=False)
                panel.set_title(f"{NETWORKS[network]}, {data}, k = {k}")
                if not _panel(panel, selection, data, k):
                    drawing.not_run(panel)
                panel.set_xticks(range(len(PARTITIONS)), list(PARTITIONS.values()))
            above[0].set_ylabel("test accuracy")
        run = {line.method for line in lines}
        handles = [
            drawing.sample(TITLES[method], **{**look, "linestyle": "none"})
            for method, look in zip(METHODS, ANY, strict=False)
            if method in run
        ]
        if handles:
            drawn.legend(handles=handles, ncols=len(handles), **drawing.LEGEND)
        drawn.suptitle(
            "Clients with different labels: mean accuracy of the last ten rounds, 95 % intervals over seeds"
        )
        return drawing.write(drawn, path)


def _panel(panel: Axes, selection: Selection, data: str, k: int) -> bool:
    any_drawn = False
    for at, (method, look) in enumerate(zip(METHODS, ANY, strict=False)):
        for place, partition in enumerate(PARTITIONS):
            runs = selection.runs(f"{data}-{partition}", method, 1 if method in PLAIN else k)
            if not runs:
                continue
            cell = cell_of([(line, settled_accuracy(line)) for line in runs], ())
            where = place + _APART * (at - (len(METHODS) - 1) / 2)
            panel.errorbar(
                [where],
                [cell.mean],
                yerr=None if cell.interval is None else [[cell.interval], [cell.interval]],
                elinewidth=0.9,
                capsize=1.5,
                markersize=3.6,
                **{**look, "linestyle": "none"},
            )
            any_drawn = True
    return any_drawn
