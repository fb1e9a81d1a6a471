"""The figures: what they show, that everyone can read them, and that they are written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from disavow.errors import ConfigError
from reproduction import drawing, figures, series
from reproduction.composed_odds import composed_odds_table
from reproduction.difference_figure import METHODS
from reproduction.grid import packaged
from reproduction.lines import Hidden, Line, Method, RowName
from reproduction.odds_lines import OddsLine
from reproduction.quantities import rollbacks_per_request, settled_accuracy
from reproduction.trade_off_figure import setting_of
from tests.cli.process import environment
from tests.refusals import refuses
from tests.reproduction.making import grid, line, odds_lines, work_cell, work_report

Make = Callable[[Path], object]
RUNS = [replace(one, network="convnet") for one in grid(rows=("MNIST-iid", "CIFAR10-noniid"))]
STORED = [
    *RUNS,
    line(method="federaser-1", network="convnet"),
    line(method="federaser-plain", network="convnet"),
    line(method="retention", k=8, network="convnet"),
]
ODDS = odds_lines()


def without_requests(*rows: RowName) -> list[Line]:
    return [
        line(row, method, k, seed=seed)
        for row in rows
        for method in ("fedavg", *METHODS)
        for k in (4, 10)
        for seed in (1, 2, 3)
    ]


SKEW = without_requests("MNIST-dirichlet0.3", "MNIST-dirichlet0.1", "MNIST-labels2")
ACCURACY = without_requests("MNIST-iid", "MNIST-noniid")
TRADE_OFF_VARIANTS = tuple(dict.fromkeys(point.variant for point in packaged("trade-off").points()))
TRADE_OFF = [
    line(
        row,
        "sticky" if variant else "fedavg",
        10,
        seed=seed,
        variant=variant,
        hidden=Hidden(median_composed=20.0 + seed, worst_composed=40.0) if variant else None,
    )
    for row in ("MNIST-iid", "MNIST-dirichlet0.3")
    for variant in TRADE_OFF_VARIANTS
    for seed in (1, 2, 3)
]

MAKES: dict[str, Make] = {
    "accuracy-by-k": lambda path: figures.accuracy_by_k(RUNS, path),
    "accuracy-curves": lambda path: figures.accuracy_curves(RUNS, path),
    "unlearning-time": lambda path: figures.unlearning_time(RUNS, path),
    "distance-to-fedavg": lambda path: figures.distance_to_fedavg(RUNS, path),
    "storage": lambda path: figures.storage(STORED, path),
    "odds": lambda path: figures.odds(ODDS, path),
    "composed odds": lambda path: figures.composed_odds(ODDS, path),
    "work": lambda path: figures.work(work_report(), path),
    "accuracy": lambda path: figures.accuracy(ACCURACY, path),
    "skew": lambda path: figures.skew(SKEW, path),
    "trade-off": lambda path: figures.trade_off(TRADE_OFF, path),
}
EMPTY: dict[str, Make] = {
    "accuracy-by-k": lambda path: figures.accuracy_by_k([], path),
    "accuracy-curves": lambda path: figures.accuracy_curves([], path),
    "unlearning-time": lambda path: figures.unlearning_time([], path),
    "distance-to-fedavg": lambda path: figures.distance_to_fedavg([], path),
    "storage": lambda path: figures.storage([], path),
    "odds": lambda path: figures.odds([], path),
    "composed odds": lambda path: figures.composed_odds([], path),
    "work": lambda path: figures.work(replace(work_report(1), cells=()), path),
    "accuracy": lambda path: figures.accuracy([], path),
    "skew": lambda path: figures.skew([], path),
    "trade-off": lambda path: figures.trade_off([], path),
}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that a test writes, as matplotlib has them."""
    found: list[Figure] = []
    write = drawing.write

    def kept(figure: Figure, path: Path) -> tuple[Path, Path]:
        found.append(figure)
        return write(figure, path)

    monkeypatch.setattr(drawing, "write", kept)
    return found


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that a test draws, laid out but not written, which takes most of the time."""
    found: list[Figure] = []

    def kept(figure: Figure, path: Path) -> tuple[Path, Path]:
        found.append(figure)
        figure.draw_without_rendering()
        return path, path

    monkeypatch.setattr(drawing, "write", kept)
    return found


def panel(figure: Figure, title: str) -> Axes:
    [found] = [axes for axes in figure.axes if axes.get_title() == title]
    return found


def heights(drawn_line: Line2D) -> list[float]:
    return [float(value) for value in np.asarray(drawn_line.get_ydata(), dtype=float)]


def texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]


def labels(figure: Figure) -> list[str]:
    [legend] = figure.legends
    return [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize("name", MAKES)
def test_a_figure_is_written_as_png_and_svg_and_no_letter_is_too_small(
    name: str, tmp_path: Path, written: list[Figure]
) -> None:
    MAKES[name](tmp_path / "new" / name)
    files = sorted(path.name for path in (tmp_path / "new").iterdir())
    several = {
        "unlearning-time": ["unlearning-time-client-epochs", "unlearning-time-seconds"],
        "accuracy": ["accuracy", "accuracy-unequal-sizes"],
    }
    names = several.get(name, [name])
    assert files == sorted(f"{one}.{suffix}" for one in names for suffix in ("png", "svg"))
    for path in (tmp_path / "new").iterdir():
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
    for figure in written:
        assert figure.get_size_inches()[0] == drawing.WIDTH
        assert min(float(text.get_fontsize()) for text in texts(figure)) >= drawing.SMALLEST


@pytest.mark.parametrize("name", EMPTY)
def test_a_figure_of_nothing_says_not_run(name: str, tmp_path: Path, drawn: list[Figure]) -> None:
    EMPTY[name](tmp_path / name)
    for figure in drawn:
        assert sum(text.get_text() == "not run" for text in texts(figure)) in (2, 3, 4, 6, 8, 9)
        assert figure.legends == []


SMALL: dict[str, Make] = {
    "accuracy-by-k": lambda path: figures.accuracy_by_k(quick(RUNS), path),
    "accuracy-curves": lambda path: figures.accuracy_curves(quick(RUNS), path),
    "unlearning-time": lambda path: figures.unlearning_time(quick(RUNS), path),
    "distance-to-fedavg": lambda path: figures.distance_to_fedavg(quick(RUNS), path),
    "storage": lambda path: figures.storage(quick(STORED), path),
    "accuracy": lambda path: figures.accuracy(quick(ACCURACY), path),
    "skew": lambda path: figures.skew(quick(SKEW), path),
    "trade-off": lambda path: figures.trade_off(quick(TRADE_OFF), path),
}


def quick(lines: list[Line]) -> list[Line]:
    return [replace(one, quick=True) for one in lines if one.row.startswith("MNIST")]


@pytest.mark.parametrize("name", SMALL)
def test_a_figure_of_quick_runs_has_panels_for_what_the_small_version_has(
    name: str, tmp_path: Path, drawn: list[Figure]
) -> None:
    SMALL[name](tmp_path / name)
    for figure in drawn:
        assert "not run" not in {text.get_text() for text in texts(figure)}
        assert figure.legends


AGAIN = """
import sys
from pathlib import Path
from tests.reproduction.test_figures import twice
twice(Path(sys.argv[1]))
"""


def twice(folder: Path) -> None:
    """A figure of bars with hatches, and one of lines with whiskers."""
    for name in ("storage", "odds"):
        MAKES[name](folder / name)


def test_the_same_numbers_give_the_same_files_in_another_process(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    twice(one)
    other = environment(PYTHONHASHSEED="7")
    subprocess.run([sys.executable, "-c", AGAIN, str(two)], env=other, check=True, timeout=200)
    names = sorted(path.name for path in one.iterdir())
    assert len(names) == 4
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    assert b"<dc:date>" not in (one / "odds.svg").read_bytes()


def test_curves_are_in_the_papers_arrangement_and_hold_what_was_run(tmp_path: Path, drawn: list[Figure]) -> None:
    figures.accuracy_curves(RUNS, tmp_path / "curves", method="sticky")
    [figure] = drawn
    titles = [axes.get_title() for axes in figure.axes]
    data = ("MNIST", "FashionMNIST", "CIFAR10", "CelebA")
    assert titles == [f"{name}, {spread}" for spread in ("iid", "unequal sizes") for name in data]
    lines = panel(figure, "MNIST, iid").get_lines()
    assert len(lines) == 2 + 4 * 3
    [fedavg] = [one for one in RUNS if (one.row, one.method) == ("MNIST-iid", "fedavg")]
    assert heights(lines[0]) == series.served(fedavg)
    empty = panel(figure, "CelebA, iid")
    assert [text.get_text() for text in empty.texts] == ["not run"]
    assert labels(figure) == [
        "fedAvg",
        "fedEraser",
        *(f"k = {k}" for k in (4, 6, 8, 10)),
        "x = 2",
        "x = 3",
        "x = 4",
    ]
    for said in ("sticky", "ConvNet", "seed 1", "NVIDIA H200"):
        assert said in figure.get_suptitle()


def test_curves_have_the_intervals_of_their_ends_over_seeds_beside_them(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    seeds = grid(network="convnet", seeds=(1, 2, 3), rows=("MNIST-iid",))
    figures.accuracy_curves(seeds, tmp_path / "curves")
    axes = panel(drawn[0], "MNIST, iid")
    fedavg, _, of_four, *_ = axes.containers
    assert len(axes.containers) == 2 + 4, "baselines, and every k"
    for container, (method, k) in ((fedavg, ("fedavg", 1)), (of_four, ("published", 4))):
        by_seed = [
            fmean(series.served(one)[-1] for one in seeds if (one.method, one.k, one.seed) == (method, k, seed))
            for seed in (1, 2, 3)
        ]
        half = 4.302652729911275 * stdev(by_seed) / 3**0.5  # Student's, with two degrees of freedom
        assert heights(container[0]) == [pytest.approx(fmean(by_seed))]
        assert whiskers(container) == pytest.approx([fmean(by_seed) - half, fmean(by_seed) + half])
    assert "3 seeds, at the right 95 % intervals" in drawn[0].get_suptitle()


def test_curves_of_one_seed_have_no_intervals(tmp_path: Path, drawn: list[Figure]) -> None:
    figures.accuracy_curves(RUNS, tmp_path / "curves")
    figures.distance_to_fedavg(RUNS, tmp_path / "distance")
    for figure in drawn:
        assert not any(axes.containers for axes in figure.axes)
        assert "interval" not in figure.get_suptitle()


def test_intervals_of_what_was_spent_stay_on_a_logarithmic_axis(tmp_path: Path, drawn: list[Figure]) -> None:
    seeds = grid(network="convnet", seeds=(1, 2, 3), rows=("MNIST-iid",))
    figures.unlearning_time(seeds, tmp_path / "time")
    axes = panel(drawn[1], "MNIST, iid")
    assert axes.containers
    assert all(low > 0 for low, _ in map(whiskers, axes.containers))


def whiskers(container: Container) -> list[float]:
    """Where a whisker begins and ends."""
    [[bar]] = [drawn_bars.get_segments() for drawn_bars in container[2]]
    return [float(end[1]) for end in bar]


def test_everything_after_the_first_rounds_is_in_view(tmp_path: Path, drawn: list[Figure]) -> None:
    figures.accuracy_curves(RUNS, tmp_path / "curves")
    axes = panel(drawn[0], "CIFAR10, unequal sizes")
    low, high = axes.get_ylim()
    for one in axes.get_lines():
        values = heights(one)[10:]
        assert low < min(values) <= max(values) < high


def test_lines_are_told_apart_without_colour(tmp_path: Path, drawn: list[Figure]) -> None:
    figures.accuracy_curves(RUNS, tmp_path / "curves")
    figures.unlearning_time(RUNS, tmp_path / "time")
    for figure in drawn:
        lines = panel(figure, "MNIST, iid").get_lines()
        looks = {
            (str(one.get_marker()), str(one._unscaled_dash_pattern), one.get_linewidth())  # type: ignore[attr-defined]
            for one in lines
        }
        assert len(looks) == len(lines)


def test_odds_are_composed_only_of_runs_that_reached_the_last_round(tmp_path: Path, drawn: list[Figure]) -> None:
    torn = [replace(one, rounds=4) if (one.clients, one.sigma) == (50, 1.0) else one for one in ODDS]
    figures.odds(torn, tmp_path / "odds")
    of_a_round, composed = (drawn[0].axes[at].containers[0][0].get_xdata() for at in (0, 1))
    assert (len(of_a_round), len(composed)) == (4, 3)


def test_odds_show_mean_and_range_over_seeds_and_pass_over_runs_without_noise(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    quiet = replace(ODDS[0], key="0" * 64, sigma=0.0, log10_gamma_round=None, log10_gamma_composed=None)
    five_drawn = replace(ODDS[0], key="5" * 64, representatives=5, accuracy=0.0)
    figures.odds([*ODDS, quiet, five_drawn], tmp_path / "odds")
    above = drawn[0].axes[0]
    [first, *_] = above.containers
    points = sorted(_means(50), key=lambda point: point[0])
    drawn_points = list(zip(*(map(float, values) for values in first[0].get_data()), strict=True))
    assert drawn_points == [pytest.approx(point) for point in points]
    assert len(above.containers) == 4
    assert labels(drawn[0])[0] == "50 clients of 1,200"
    assert "mean and range over 3 seeds" in drawn[0].get_suptitle()
    fewer = [line for line in ODDS if (line.clients, line.seed) != (50, 3)]
    figures.odds(fewer, tmp_path / "fewer")
    assert "mean and range over 2 to 3 seeds" in drawn[1].get_suptitle()


def test_composed_odds_have_a_panel_for_each_number_of_clients_and_a_line_for_each_scheme(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    after = [
        replace(one, key=one.key[::-1], noise="sensitivity", representatives=5, rounds=10, epochs=15)
        for one in ODDS
    ]
    torn = replace(ODDS[0], key="0" * 64, clients=200, rounds=4, sigma=5.0)
    figures.composed_odds([*ODDS, *after, torn], tmp_path / "composed")
    assert [panel.get_title() for panel in drawn[0].axes] == ["200 clients", "1,000 clients"]
    for panel in drawn[0].axes:
        assert [len(one[0].get_xdata()) for one in panel.containers] == [4, 4]
    assert labels(drawn[0])[:2] == [
        "the paper's noise, 1 drawn, 50 rounds of 3 epochs",
        "noise by sensitivity, 5 drawn, 10 rounds of 15 epochs",
    ]
    table = composed_odds_table([*ODDS, *after, torn])
    rows = [line for line in table.splitlines() if line.startswith("| 1,000")]
    assert len(rows) == 8
    assert sum("**" in line for line in table.splitlines()) == 2


def test_seeds_that_noise_destroyed_are_counted_and_not_averaged() -> None:
    runs = [one for one in ODDS if (one.clients, one.sigma) == (1_000, 1.0)]
    torn = replace(runs[0], rounds=4, accuracy=0.1)
    [row] = [line for line in composed_odds_table([*runs[1:], torn]).splitlines() if line.startswith("| 1,000")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2] == f"{(runs[1].accuracy + runs[2].accuracy) / 2:.3f}"
    assert cells[5] == "2 of 3"
    whole = composed_odds_table(runs)
    assert " of 3 |" not in whole
    assert "destroyed" in whole


def _means(clients: int) -> list[tuple[float, float]]:
    runs: dict[float, list[OddsLine]] = {}
    for one in ODDS:
        if one.clients == clients:
            runs.setdefault(one.sigma, []).append(one)
    return [
        (sum(one.log10_gamma_round or 0 for one in same) / 3, sum(one.accuracy for one in same) / 3)
        for same in runs.values()
    ]


def test_work_has_a_place_for_each_k_and_x_and_the_baselines_at_all_of_them(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    report = replace(
        work_report(60),
        cells=(
            work_cell("fedavg", 1, 1, 3_000.0),
            work_cell("fedavg-sampled", 4, 1, 600.0),
            work_cell("fedavg-sampled", 8, 1, 300.0),
            work_cell("sticky", 4, 2, 100.0),
            work_cell("sticky", 8, 4, 10.0),
        ),
    )
    figures.work(report, tmp_path / "work")
    above, below = drawn[0].axes
    assert [list(container[0].get_ydata()) for container in above.containers] == [
        [3_000.0, 3_000.0],
        [600.0, 300.0],
        [100.0, 10.0],
    ]
    assert [list(container[0].get_ydata()) for container in below.containers] == [
        [4_300.0, 4_300.0],
        [1_900.0, 1_600.0],
        [1_400.0, 1_310.0],
    ]
    assert [text.get_text() for text in below.get_xticklabels()] == ["k=4\nx=2", "k=8\nx=4"]
    assert "60 streams" in drawn[0].get_suptitle()


def test_bars_of_storage_bear_their_megabytes(tmp_path: Path, drawn: list[Figure]) -> None:
    figures.storage(STORED, tmp_path / "storage")
    shown = [text.get_text() for text in drawn[0].axes[0].texts]
    for method in ("federaser-1", "federaser-plain"):
        [eraser] = [one for one in STORED if one.method == method]
        assert f"{eraser.bytes.total / 1e6:,.0f}" in shown
    assert shown.count("not run") == 2, "of the three rows of the grid"
    assert drawn[0].axes[0].get_yscale() == "log"


def test_each_k_has_its_difference_to_fedavg_of_the_same_seed(tmp_path: Path, drawn: list[Figure]) -> None:
    seeds = grid(seeds=(1, 2, 3), rows=("MNIST-iid",))
    figures.accuracy_by_k(seeds, tmp_path / "by-k", network="lenet5")
    axes = panel(drawn[0], "MNIST, iid")
    assert len(axes.containers) == 4 * 4, "every method and k"
    plain = {one.seed: settled_accuracy(one) for one in seeds if one.method == "fedavg"}
    sticky = [one for one in seeds if (one.method, one.k) == ("sticky", 10)]
    assert len(sticky) == 3 * 3
    lost = 100 * fmean(settled_accuracy(one) - plain[one.seed] for one in sticky)
    assert any(point == pytest.approx(lost) for point in points(axes))
    assert labels(drawn[0]) == ["fedAvg 1/k", "published", "sticky", "sticky s=3"]
    assert "95 % intervals" in drawn[0].get_suptitle()


def test_skew_shows_what_each_method_loses_at_each_partition_with_its_interval_over_seeds(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    figures.skew([one for one in SKEW if one.method != "sticky-3"], tmp_path / "skew")
    _, axes = panels(drawn[0], "LeNet5, MNIST")
    assert len(axes.containers) == 3 * 3
    assert any(
        point == pytest.approx(points_to_fedavg("MNIST-dirichlet0.3", "sticky", 10)) for point in points(axes)
    )
    assert labels(drawn[0]) == ["fedAvg 1/k", "published", "sticky"]
    assert {axes.get_title() for axes in drawn[0].axes} == {"LeNet5, MNIST"}, "nothing else was run"


def test_skew_says_so_where_one_k_was_not_run(tmp_path: Path, drawn: list[Figure]) -> None:
    figures.skew([one for one in SKEW if one.k != 4], tmp_path / "skew")
    above, below = panels(drawn[0], "LeNet5, MNIST")
    assert [text.get_text() for text in above.texts] == ["not run"]
    assert not below.texts


def test_skew_leaves_out_what_lacks_a_seed(tmp_path: Path, drawn: list[Figure]) -> None:
    unfinished = ("MNIST-labels2", "published", 4, 3)
    figures.skew([one for one in SKEW if (one.row, one.method, one.k, one.seed) != unfinished], tmp_path / "skew")
    above, below = panels(drawn[0], "LeNet5, MNIST")
    assert (len(above.containers), len(below.containers)) == (4 * 3 - 1, 4 * 3)


def test_accuracy_has_a_figure_for_equal_and_one_for_unequal_sizes(tmp_path: Path, drawn: list[Figure]) -> None:
    figures.accuracy(ACCURACY, tmp_path / "accuracy")
    rows: tuple[RowName, ...] = ("MNIST-iid", "MNIST-noniid")
    for figure, row in zip(drawn, rows, strict=True):
        _, axes = panels(figure, "LeNet5")
        assert len(axes.containers) == 4
        assert any(point == pytest.approx(points_to_fedavg(row, "sticky", 10)) for point in points(axes))


def panels(figure: Figure, title: str) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_title() == title]


def points(axes: Axes) -> list[float]:
    return [heights(container[0])[0] for container in axes.containers]


def points_to_fedavg(row: RowName, method: Method, k: int) -> float:
    """What a method gains over FedAvg, in points, as a mean over seeds."""
    lines = [one for one in [*SKEW, *ACCURACY] if one.row == row]
    runs = [one for one in lines if (one.method, one.k) == (method, k)]
    plain = {one.seed: settled_accuracy(one) for one in lines if one.method == "fedavg"}
    return 100 * sum(settled_accuracy(one) - plain[one.seed] for one in runs) / len(runs)


def of_variant(variant: str, row: str = "MNIST-iid") -> list[Line]:
    return [one for one in TRADE_OFF if (one.row, one.variant) == (row, variant)]


def test_every_variant_of_the_grid_has_its_value_in_the_trade_off(tmp_path: Path, drawn: list[Figure]) -> None:
    assert [variant for variant in TRADE_OFF_VARIANTS if not setting_of(variant)] == [""], "fedAvg's"
    figures.trade_off(TRADE_OFF, tmp_path / "trade-off")
    ticks = [[text.get_text() for text in axes.get_xticklabels()] for axes in drawn[0].axes[-3:]]
    assert ticks == [
        ["1.7", "2", "3", "5", "adaptive"],
        ["0.6", "1.1", "adaptive"],
        ["1", "2", "3", "5"],
    ]
    assert labels(drawn[0])[:2] == ["MNIST, iid", "MNIST, Dirichlet 0.3"]


def test_the_trade_off_shows_means_with_intervals_over_seeds_beside_adaptive_delta(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    figures.trade_off(TRADE_OFF, tmp_path / "trade-off")
    accuracy, rollbacks, odds = (drawn[0].axes[at] for at in (0, 3, 6))
    assert [len(axes.containers) for axes in (accuracy, rollbacks, odds)] == [4, 4, 8]
    plain = {one.seed: settled_accuracy(one) for one in of_variant("")}
    gained = [100 * (settled_accuracy(one) - plain[one.seed]) for one in of_variant("Δ=2x")]
    assert heights(accuracy.containers[0][0])[1] == pytest.approx(sum(gained) / 3)
    [adaptive] = heights(rollbacks.containers[1][0])
    assert adaptive == pytest.approx(sum(rollbacks_per_request(one) or 0.0 for one in of_variant("s=1")) / 3)
    assert heights(odds.containers[0][0]) == [22.0] * 4
    assert heights(odds.containers[2][0]) == [40.0] * 4, "of the client that is worst off"
    [whiskers] = odds.containers[0][2]
    assert [float(end) for end in whiskers.get_segments()[0][:, 1]] == pytest.approx(
        [22 - 2.484, 22 + 2.484], abs=1e-3
    )
    for low, high in (axes.get_ylim() for axes in drawn[0].axes[3:6]):
        assert (low < 0, high > 1) == (True, True), "every share is in view"


def test_what_of_the_trade_off_was_not_run_says_so(tmp_path: Path, drawn: list[Figure]) -> None:
    figures.trade_off([one for one in TRADE_OFF if not one.variant.startswith("Δ")], tmp_path / "trade-off")
    shown = [[text.get_text() for text in axes.texts] for axes in drawn[0].axes]
    assert shown == [["not run"], ["not run"], []] * 3


def test_a_figure_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refuses(ConfigError, "work.png"):
        figures.work(work_report(), tmp_path / "file" / "work")
