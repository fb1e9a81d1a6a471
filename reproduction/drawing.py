"""How every figure looks, and how it is written.

Okabe and Ito's colours, each with a marker and a stroke of its own: told apart by everyone, and in grey. Sizes are
those in print, so that no letter is smaller than 8 points. The same numbers give the same SVG, byte for byte.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disavow.errors import ConfigError
from reproduction.lines import Method, RowName, named
from reproduction.markdown import NOT_RUN
from reproduction.selection import Selection
from reproduction.table import NETWORKS, TITLES

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Look = dict[str, Any]

ARRANGEMENT: tuple[tuple[RowName, ...], ...] = (
    ("MNIST-iid", "FMNIST-iid", "CIFAR10-iid", "CelebA-iid"),
    ("MNIST-noniid", "FMNIST-noniid", "CIFAR10-noniid", "CelebA-noniid"),
)
"""The panels as the paper has them."""
PANELS: tuple[RowName, ...] = tuple(row for names in ARRANGEMENT for row in names)

WIDTH = 7.5
"""Inches, of a page."""
SMALLEST = 8
"""Points, of the smallest letters."""
LEGEND: dict[str, Any] = {"loc": "outside lower center", "frameon": False}
"""Below all panels."""

BASELINES: dict[Method, Look] = {
    "fedavg": {"color": "#000000", "linestyle": "-", "linewidth": 1.8, "zorder": 5},
    "federaser": {"color": "0.5", "linestyle": (0, (6, 1, 1, 1)), "linewidth": 1.6, "zorder": 4},
}
CLUSTERS: dict[int, Look] = {
    4: {"color": "#D55E00", "marker": "o"},
    6: {"color": "#E69F00", "marker": "s"},
    8: {"color": "#009E73", "marker": "^"},
    10: {"color": "#0072B2", "marker": "D"},
}
DENIABILITY: dict[int, Look] = {
    2: {"linestyle": "-"},
    3: {"linestyle": (0, (4, 1.5))},
    4: {"linestyle": (0, (1, 1.2))},
}
METHODS: dict[Method, Look] = {
    "published": {"linestyle": (0, (1, 1.2)), "markerfacecolor": "white"},
    "sticky": {"linestyle": "-"},
}
ANY: tuple[Look, ...] = (
    {"color": "#D55E00", "marker": "o", "linestyle": "-"},
    {"color": "#0072B2", "marker": "D", "linestyle": (0, (4, 1.5))},
    {"color": "#009E73", "marker": "^", "linestyle": (0, (1, 1.2))},
    {"color": "#CC79A7", "marker": "s", "linestyle": (0, (6, 1, 1, 1))},
    {"color": "#E69F00", "marker": "v", "linestyle": (0, (3, 1, 1, 1, 1, 1))},
    {"color": "#56B4E9", "marker": "X", "linestyle": (0, (8, 2))},
)

_STYLE: dict[str, Any] = {
    "font.size": SMALLEST,
    "axes.titlesize": SMALLEST,
    "axes.labelsize": SMALLEST,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
    "legend.fontsize": SMALLEST,
    "figure.titlesize": SMALLEST + 1,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "axes.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "disavow",
}


@contextmanager
def style() -> Iterator[None]:
    """Everything is drawn and written inside of this."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        yield


def write(figure: Figure, path: Path) -> tuple[Path, Path]:
    """Write a figure as PNG and as SVG beside each other; `path` is without a suffix."""
    written = path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.svg")
    options: tuple[dict[str, Any], ...] = ({"dpi": 200}, {"metadata": {"Date": None}})
    for target, more in zip(written, options, strict=True):
        image = io.BytesIO()
        figure.savefig(image, format=target.suffix[1:], **more)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(image.getvalue())
        except OSError as error:
            raise ConfigError(f"the figure {target} cannot be written ({error.strerror})") from None
    return written


def blank(height: float) -> Figure:
    """A figure as wide as a page."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


def arranged(
    title: str,
    axes: tuple[str, str],
    draw: Callable[[Axes, RowName], bool],
    legend: Sequence[Artist],
    rows: Collection[RowName],
) -> Figure:
    """Arrange panels of some rows as in the paper, iid above.

    `draw` draws one, and says whether there was anything to draw.
    """
    columns = [at for at, both in enumerate(zip(*ARRANGEMENT, strict=True)) if any(row in rows for row in both)]
    arrangement = [[names[at] for at in columns] for names in ARRANGEMENT if any(row in rows for row in names)]
    drawn = blank(4.9)
    panels = drawn.subplots(len(arrangement), len(columns), sharex=True, squeeze=False)
    for above, names in zip(panels, arrangement, strict=True):
        for panel, row in zip(above, names, strict=True):
            frame(panel)
            panel.set_title(titled(row))
            if not draw(panel, row):
                not_run(panel)
    for panel in panels[-1]:
        panel.set_xlabel(axes[0])
    for panel in panels[:, 0]:
        panel.set_ylabel(axes[1])
    drawn.suptitle(title)
    if legend:
        drawn.legend(handles=list(legend), ncols=5, handlelength=3, columnspacing=1.4, **LEGEND)
    return drawn


def whisker(panel: Axes, where: float, mean: float, interval: float | None, look: Look) -> None:
    """Draw a mean with its interval, half of which is given; none with one seed."""
    panel.errorbar(
        [where],
        [mean],
        yerr=None if interval is None else [[interval], [interval]],
        elinewidth=0.9,
        capsize=1.5,
        markersize=3.6,
        **{**look, "linestyle": "none"},
    )


def frame(panel: Axes) -> None:
    """No box, a light grid behind."""
    panel.grid(color="0.9", linewidth=0.5)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def not_run(panel: Axes, *, shared_axis: bool = False) -> None:
    """Say that there is nothing, where a reader would look for something; an axis shared with others stays."""
    panel.text(0.5, 0.5, NOT_RUN, transform=panel.transAxes, ha="center", va="center", color="0.35")
    panel.grid(visible=False)
    if not shared_axis:
        panel.set_yticks([])


def titled(row: RowName) -> str:
    """What a row is called above a panel.

    >>> titled("FMNIST-noniid")
    'FashionMNIST, unequal sizes'
    """
    data, spread = named(row).split(", ")
    return f"{'FashionMNIST' if data == 'FMNIST' else data}, {spread}"


def number_of_seeds(groups: Iterable[Collection[int]]) -> str:
    """How many seeds groups of runs have.

    >>> number_of_seeds([{1, 2}, {1, 2}]), number_of_seeds([{1, 2, 3}, {1}])
    ('2', '1 to 3')
    """
    counts = sorted({len(group) for group in groups})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


_TITLE = 100
"""Characters that fit above a figure."""


def made_of(selection: Selection, what: str, intervals: str = "") -> str:
    """The title of a figure: what it shows, of which network, from how many seeds, on which device.

    Args:
        selection: The runs that it is made of.
        what: It shows.
        intervals: How those over seeds are drawn.

    """
    if not selection.lines:
        return what
    rows = selection.distinct(lambda line: line.row)
    seeds = number_of_seeds({line.seed for line in selection.lines if line.row == row} for row in rows)
    over_seeds = ", ".join(filter(None, (f"mean over {seeds} seeds", intervals)))
    said = [
        NETWORKS[selection.lines[0].network],
        f"seed {selection.seeds[0]}" if len(selection.seeds) == 1 else over_seeds,
        ", ".join(selection.distinct(lambda line: line.device)),
    ]
    rest = "; ".join([*said, "quick runs"] if selection.quick else said)
    return f"{what}; {rest}" if len(what) + len(rest) < _TITLE else f"{what}\n{rest}"


def sample(label: str, **look: Any) -> Artist:
    """A line for the legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def baseline_samples(selection: Selection) -> list[Artist]:
    """For the legend: the baselines that were run."""
    return [sample(TITLES[method], **look) for method, look in BASELINES.items() if selection.has(method)]


def cluster_samples(selection: Selection) -> list[Artist]:
    """For the legend: the sizes of clusters that were run, without a stroke of their own."""
    run = {line.k for line in selection.lines}
    return [sample(f"k = {k}", linestyle="none", **look) for k, look in CLUSTERS.items() if k in run]


def method_samples(selection: Selection) -> list[Artist]:
    """For the legend: the paper's method and ours, by their strokes and by how their markers are filled."""
    found = [(TITLES[method], look) for method, look in METHODS.items() if selection.has(method)]
    return [sample(title, color="0.3", marker="o", **look) for title, look in found]
