"""What accuracy is lost where clients hold different labels: one panel for each k, network and data set."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from reproduction import drawing
from reproduction.drawing import ANY
from reproduction.lines import Line, Method, Network
from reproduction.quantities import settled_accuracy
from reproduction.selection import Selection, select
from reproduction.table import NETWORKS, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS: tuple[Method, ...] = ("fedavg-sampled", "published", "sticky", "sticky-3")
PARTITIONS = {
    "iid": "iid",
    "dirichlet0.3": "Dir.\n0.3",
    "dirichlet0.1": "Dir.\n0.1",
    "labels2": "two\nlabels",
}
_DATA, _KS = ("MNIST", "CIFAR10"), (4, 10)
_SHOWN: tuple[Network, ...] = ("lenet5", "resnet-mini")
_APART = 0.17
"""Between two methods, where partitions are 1 apart."""


def skew(lines: Iterable[Line], path: Path) -> tuple[Path, Path]:
    """Accuracy minus FedAvg's by partition, mean of the last rounds, with Student's 95 % intervals over seeds.

    Differences are taken seed by seed. What lacks a seed that others have is not drawn: the table has it.

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
        panels = drawn.subplots(len(_KS), len(networks) * len(data_sets), sharex=True, sharey=True, squeeze=False)
        for above, k in zip(panels, _KS, strict=True):
            for panel, (network, data) in zip(above, product(networks, data_sets), strict=True):
                drawing.frame(panel)
                panel.grid(axis="x", visible=False)
                panel.set_title(f"{NETWORKS[network]}, {data}")
                if not _panel(panel, select(lines, network), data, k):
                    drawing.not_run(panel, shared_axis=True)
            above[0].set_ylabel(f"k = {k}: points to fedAvg")
        panels[0, 0].set_xticks(range(len(PARTITIONS)), list(PARTITIONS.values()))
        run = {line.method for line in lines}
        handles = [
            drawing.sample(TITLES[method], **{**look, "linestyle": "none"})
            for method, look in zip(METHODS, ANY, strict=False)
            if method in run
        ]
        if handles:
            drawn.legend(handles=handles, ncols=len(handles), **drawing.LEGEND)
        drawn.suptitle(
            "Clients with different labels: accuracy minus fedAvg's, mean of the last ten rounds, "
            "95 % intervals over seeds"
        )
        return drawing.write(drawn, path)


def _panel(panel: Axes, selection: Selection, data: str, k: int) -> bool:
    any_drawn = False
    for at, (method, look) in enumerate(zip(METHODS, ANY, strict=False)):
        for place, partition in enumerate(PARTITIONS):
            lost = selection.difference(f"{data}-{partition}", method, k, settled_accuracy)
            if lost is None or lost.seeds != selection.seeds:
                continue
            where = place + _APART * (at - (len(METHODS) - 1) / 2)
            drawing.whisker(panel, where, 100 * lost.mean, lost.interval and 100 * lost.interval, look)
            any_drawn = True
    if any_drawn:
        panel.axhline(0.0, color="black", linewidth=0.8)
    return any_drawn
