"""What accuracy is lost where clients hold different labels: one panel for each k, network and data set."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from reproduction import drawing
from reproduction.drawing import ANY, Look
from reproduction.lines import Line, Method, Network
from reproduction.quantities import settled_accuracy
from reproduction.selection import Cell, Selection, select
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

    Differences are taken seed by seed. What lacks a seed that others have is not drawn, and there is no panel of a
    network and data set of which nothing is drawn: the table says what was not run.

    Args:
        lines: The runs of the study.
        path: Without a suffix.

    """
    lines = list(lines)
    of_networks = {network: select(lines, network) for network in _SHOWN}
    found = {
        (network, data): [_differences(of_networks[network], data, k) for k in _KS]
        for network, data in product(_SHOWN, _DATA)
    }
    shown = {pair: of_ks for pair, of_ks in found.items() if any(of_ks)} or found
    with drawing.style():
        drawn = drawing.blank(4.6)
        panels = drawn.subplots(len(_KS), len(shown), sharex=True, sharey=True, squeeze=False)
        for at, (above, k) in enumerate(zip(panels, _KS, strict=True)):
            for panel, ((network, data), of_ks) in zip(above, shown.items(), strict=True):
                drawing.frame(panel)
                panel.grid(axis="x", visible=False)
                panel.set_title(f"{NETWORKS[network]}, {data}")
                if of_ks[at]:
                    _panel(panel, of_ks[at])
                else:
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


_Difference = tuple[float, Cell, Look]
"""Where it is drawn, what, and how."""


def _differences(selection: Selection, data: str, k: int) -> list[_Difference]:
    """Of each method and partition that has all seeds."""
    return [
        (place + _APART * (at - (len(METHODS) - 1) / 2), lost, look)
        for at, (method, look) in enumerate(zip(METHODS, ANY, strict=False))
        for place, partition in enumerate(PARTITIONS)
        if (lost := selection.difference(f"{data}-{partition}", method, k, settled_accuracy)) is not None
        and lost.seeds == selection.seeds
    ]


def _panel(panel: Axes, differences: list[_Difference]) -> None:
    for where, lost, look in differences:
        drawing.whisker(panel, where, 100 * lost.mean, lost.interval and 100 * lost.interval, look)
    panel.axhline(0.0, color="black", linewidth=0.8)
