"""Tables of studies: every run of the grid has its line, made or not, and numbers are those of the runs."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from statistics import fmean

import pytest

from reproduction import grid, studies
from reproduction.lines import Line
from reproduction.markdown import WIDEST
from reproduction.quantities import rollbacks_per_request, settled_accuracy
from reproduction.table import Table
from tests.reproduction.making import line

SKEW = grid.packaged("skew").points()
DIRICHLET = list(dict.fromkeys(point.row for point in SKEW)).index("MNIST-dirichlet0.3")
"""Which piece of the table of skew is that row's, with LeNet5."""


def made(points: list[grid.Point]) -> list[Line]:
    return [
        line(
            point.row, point.method, point.k, point.x, network=point.network, seed=point.seed, variant=point.variant
        )
        for point in points
    ]


def cells(table: Table, piece: int, title: str) -> list[str]:
    found = table.pieces[piece]
    return list(next(row for row in found.rows if row[0] == title)[1:])


@pytest.mark.parametrize("name", studies.STUDIES)
def test_every_run_of_a_grid_has_its_line_and_what_was_not_run_says_so(name: str) -> None:
    points = grid.packaged(name).points()
    empty = studies.study_table(studies.STUDIES[name], points, [])
    lines = sum(len(piece.rows) for piece in empty.pieces)
    assert lines == len({(p.row, p.network, p.method, p.variant, p.k, p.x) for p in points})
    assert {cell for piece in empty.pieces for row in piece.rows for cell in row[1:]} == {"not run"}
    assert "nothing has been run yet" in empty.markdown()
    full = studies.study_table(studies.STUDIES[name], points, made(points))
    assert "not run" not in full.markdown()
    assert len(full.values) == lines * len(studies.STUDIES[name].columns)
    for piece in full.pieces:
        widths = {len(one) for one in piece.markdown().splitlines() if one.startswith("|")}
        assert len(widths) == 1
        assert widths.pop() <= WIDEST


def test_numbers_are_those_of_the_runs_beside_fedavg_of_the_same_seed() -> None:
    lines = made(SKEW)
    table = studies.study_table(studies.SKEW, SKEW, lines)
    ours = [one for one in lines if (one.row, one.network) == ("MNIST-dirichlet0.3", "lenet5")]
    sticky = [one for one in ours if (one.method, one.k) == ("sticky", 10)]
    plain = {one.seed: settled_accuracy(one) for one in ours if one.method == "fedavg"}
    shown = cells(table, DIRICHLET, "sticky, k=10, x=3")
    assert shown[0].startswith(f"{fmean(map(settled_accuracy, sticky)):.3f} ± ")
    difference = fmean(settled_accuracy(one) - plain[one.seed] for one in sticky)
    assert shown[1].startswith(f"{100 * difference:+.1f} ± ")
    assert shown[3:6] == ["0.950 ± 0", "1.50 ± 0", "2.00 ± 0"], "spread, and Δ for half and for all"
    assert cells(table, DIRICHLET, "fedAvg 1/k, k=10")[2:6] == ["-"] * 4, "who has no clusters has no spread"
    rows = csv.DictReader(io.StringIO(table.csv()))
    [value] = [
        row
        for row in rows
        if (row["row"], row["network"], row["method"], row["k"]) == ("MNIST-dirichlet0.3", "lenet5", "sticky", "10")
        and row["quantity"] == "settled-difference-to-fedavg"
    ]
    assert float(value["ours"]) == pytest.approx(difference)


def test_clusters_are_beside_a_random_share_of_the_same_k_and_seed() -> None:
    lines = made(SKEW)
    table = studies.study_table(studies.SKEW, SKEW, lines)
    here = [one for one in lines if (one.row, one.network) == ("MNIST-dirichlet0.3", "lenet5")]
    gained = {}
    for k in (4, 10):
        sampled = {one.seed: settled_accuracy(one) for one in here if (one.method, one.k) == ("fedavg-sampled", k)}
        published = [one for one in here if (one.method, one.k) == ("published", k)]
        gained[k] = 100 * fmean(settled_accuracy(one) - sampled[one.seed] for one in published)
        assert cells(table, DIRICHLET, f"published, k={k}, x=3")[2].startswith(f"{gained[k]:+.1f} ± ")
    assert f"{gained[4]:+.1f}" != f"{gained[10]:+.1f}", "or nothing would tell which k it is beside"


def test_requests_of_skewed_clients_are_counted() -> None:
    points = grid.packaged("skew-requests").points()
    lines = made(points)
    table = studies.study_table(studies.SKEW_REQUESTS, points, lines)
    ours = [one for one in lines if (one.row, one.method, one.k) == ("MNIST-dirichlet0.3", "published", 4)]
    found = fmean(rollbacks_per_request(one) or 0.0 for one in ours if one.network == "lenet5")
    assert cells(table, 0, "published, k=4, x=3")[1].startswith(f"{found:.3f} ± ")


def test_the_worst_is_of_all_seeds() -> None:
    points = [p for p in grid.packaged("large-k").points() if p.network == "lenet5" and p.row == "FMNIST-iid"]
    lines = made(points)
    table = studies.study_table(studies.LARGE_K, points, lines)
    variant = "s=3, statistics averaged"
    plain = {one.seed: settled_accuracy(one) for one in lines if one.method == "fedavg"}
    ours = [settled_accuracy(one) - plain[one.seed] for one in lines if one.variant == variant and one.k == 10]
    assert len(ours) == 3
    assert cells(table, 0, f"{variant}, k=10, x=2")[2] == f"{100 * min(ours):+.1f}"


def test_missing_seeds_are_marked() -> None:
    lines = [one for one in made(SKEW) if one.method == "fedavg" or one.seed == 1]
    table = studies.study_table(studies.SKEW, SKEW, lines)
    assert cells(table, 0, "sticky, k=10, x=3")[0].endswith(" a")
    assert "a: 1 of 3 seeds were run." in table.pieces[0].markdown()


def test_variants_do_not_stand_for_each_other() -> None:
    points = grid.packaged("trade-off").points()
    lines = [replace(one, accuracy=0.5) for one in made(points) if one.variant in ("", "s=3")]
    table = studies.study_table(studies.TRADE_OFF, points, lines)
    assert cells(table, 0, "s=2, k=10, x=3")[0] == "not run"
    assert cells(table, 0, "s=3, k=10, x=3")[0] != "not run"
