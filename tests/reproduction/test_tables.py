"""The tables: every number is the one that the lines hold, and what was not run says so."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from statistics import fmean

import pytest

from reproduction import published, tables
from reproduction.lines import Line, Method, Network, Request
from reproduction.markdown import WIDEST
from reproduction.numbers import amount, times
from reproduction.table import Table
from tests.reproduction.making import grid, line

MNIST = grid(rows=("MNIST-iid",))
ERASERS = [line(method="federaser-1"), line(method="federaser-plain")]


def rows(table: Table, **wanted: object) -> list[dict[str, str]]:
    """The lines of the CSV with these values."""
    read = csv.DictReader(io.StringIO(table.csv()))
    return [row for row in read if all(row[name] == str(value) for name, value in wanted.items())]


def shown(table: Table, piece: int, row: str) -> dict[str, str]:
    """A row of a piece as the Markdown has it, by its headings."""
    found = table.pieces[piece]
    headings, *body = [
        [cell.strip() for cell in text.strip("|").split("|")]
        for text in found.markdown().splitlines()
        if text.startswith("| ")
    ]
    [cells] = [cells for cells in body if cells[0] == row]
    return dict(zip(headings, cells, strict=True))


def picked(lines: list[Line], method: str, k: int = 1) -> list[Line]:
    return [one for one in lines if (one.method, one.k) == (method, k)]


def test_a_cell_is_the_mean_over_x_beside_the_papers_and_one_seed_has_no_interval() -> None:
    table = tables.accuracy(MNIST, "lenet5")
    values = [one.accuracy for one in picked(MNIST, "sticky", 4)]
    [row] = rows(table, row="MNIST-iid", method="sticky", k=4, quantity="accuracy")
    assert float(row["ours"]) == pytest.approx(fmean(values))
    assert (row["interval"], row["column"], row["paper"], row["runs"], row["seeds"]) == (
        "",
        "k4",
        "0.927",
        "3",
        "1",
    )
    piece = shown(table, 1, "MNIST, iid")
    assert piece["k=4 paper"] == "0.927 ± 0.02"
    assert piece["k=4 sticky"] == f"{fmean(values):.3f}"
    base = shown(table, 0, "MNIST, iid")
    assert (base["fedAvg: paper"], base["fedAvg: ours"]) == ("0.964", f"{picked(MNIST, 'fedavg')[0].accuracy:.3f}")


def test_the_interval_is_over_seeds_whatever_x_does() -> None:
    lines = [line(k=4, x=x, seed=seed, accuracy=0.1 * x + 0.01 * seed) for x in (2, 3, 4) for seed in (1, 2, 3)]
    table = tables.accuracy(lines, "lenet5")
    [row] = rows(table, row="MNIST-iid", method="published", k=4, quantity="accuracy")
    student = 4.302653  # of two degrees of freedom
    assert (float(row["ours"]), float(row["interval"])) == pytest.approx((0.32, student * 0.01 / 3**0.5))
    assert (row["runs"], row["seeds"]) == ("9", "3")
    assert shown(table, 1, "MNIST, iid")["k=4 published"] == "0.320 ± 0.025"


def test_clients_without_clusters_stand_beside_clusters_of_as_many() -> None:
    table = tables.accuracy(MNIST, "lenet5")
    for piece, k in enumerate((4, 6, 8, 10), 1):
        [sampled] = picked(MNIST, "fedavg-sampled", k)
        assert shown(table, piece, "MNIST, iid")[f"k={k} fedAvg 1/k"] == f"{sampled.accuracy:.3f}"
        [row] = rows(table, row="MNIST-iid", method="fedavg-sampled", k=k, quantity="accuracy")
        assert (float(row["ours"]), row["paper"]) == (sampled.accuracy, "")


def test_three_representatives_are_not_marked_for_an_x_that_they_cannot_have() -> None:
    table = tables.accuracy(MNIST, "lenet5")
    assert shown(table, 1, "MNIST, iid")["k=4 sticky s=3"] == f"{picked(MNIST, 'sticky-3', 4)[0].accuracy:.3f}"


def test_at_the_answer_a_model_is_held_against_retraining_at_the_same_request() -> None:
    def answered(method: Method, accuracies: tuple[float, float, float], again: int) -> Line:
        """Two rounds, a request that executes some of them again, and a third round."""
        one = line(method=method, k=4, x=2, rounds=1)
        [pattern, *_] = one.rounds
        done = [replace(pattern, number=n, attempt=1, kind="trained", accuracy=0.5) for n in (1, 2)]
        done += [
            replace(pattern, number=n, attempt=2, kind="rebuilt", accuracy=accuracies[0]) for n in range(1, again)
        ]
        done += [replace(pattern, number=again, attempt=2, kind="rebuilt", accuracy=accuracies[1])]
        # what was not rebuilt is trained on top
        done += [
            replace(pattern, number=n, attempt=2, kind="trained", accuracy=accuracies[2])
            for n in range(again + 1, 4)
        ]
        asked = Request(after_round=2, verdict="rollback", to_round=1, rounds=again, client_epochs=6.0, seconds=1.0)
        return replace(
            one, rounds=tuple(done), requests=(asked,), client_epochs=10.0 * len(done), accuracy=accuracies[2]
        )

    plain, eraser = answered("fedavg", (0.6, 0.7, 0.8), 2), answered("federaser", (0.0, 0.4, 0.79), 1)
    table = tables.answers([plain, eraser], "lenet5")
    for quantity in ("accuracy-at-answers", "accuracy-at-last-answer"):
        [row] = rows(table, row="MNIST-iid", method="federaser", quantity=quantity)
        assert float(row["ours"]) == pytest.approx(-0.3)
    [row] = rows(table, row="MNIST-iid", method="federaser", quantity="total-work-share")
    assert float(row["ours"]) == 1.0, "the rounds trained on top are counted"
    assert shown(table, 0, "MNIST, iid")["all answers"] == "-30.0"
    assert shown(table, 0, "MNIST, iid")["last round"] == "-1.0"


def test_what_was_not_run_says_so_and_what_is_missing_is_marked() -> None:
    lines = [line(k=4, x=2), line(k=4, x=3), line(k=6, x=2), line(k=6, x=3), line(k=6, x=4), line(k=6, x=2, seed=2)]
    table = tables.accuracy(lines, "lenet5")
    piece = shown(table, 1, "MNIST, iid")
    assert piece["k=4 sticky"] == "not run"
    assert piece["k=4 published"].endswith(" a")
    assert not shown(table, 2, "MNIST, iid")["k=6 published"].endswith(("a", "b"))
    assert "a: 2 of 3 x were run (2, 3), 1 of 2 seeds were run." in table.pieces[1].markdown()
    [row] = rows(table, row="MNIST-iid", method="sticky", k=4, quantity="accuracy")
    assert (row["ours"], row["interval"], row["runs"], row["paper"]) == ("", "", "0", "0.927")
    assert set(shown(table, 1, "CelebA, iid").values()) >= {"not run", "0.808 ± 0.02"}


def test_averaged_models_are_held_against_fedavgs_as_they_are() -> None:
    base, clustered = line(method="fedavg", averaged=(0.1, 0.3)), line(k=4, x=2, averaged=(0.7, 0.9))
    table = tables.accuracy([base, clustered, line(k=4, x=3)], "lenet5")  # the last was made before it was measured
    [row] = rows(table, row="MNIST-iid", method="published", k=4, quantity="worst-averaged-difference-to-fedavg")
    settled = fmean(
        each.accuracy for each in {each.number: each for each in base.rounds}.values() if each.number > 40
    )
    assert float(row["ours"]) == pytest.approx(0.8 - settled)
    assert row["runs"] == "1"
    assert shown(table, -2, "MNIST, iid")["published k=4"].startswith(f"{100 * (0.8 - settled):+.1f}")
    assert shown(table, -2, "MNIST, iid")["sticky k=4"] == "not run"


def test_runs_from_before_averaged_models_were_measured_are_not_called_not_run() -> None:
    lines = [line(method="fedavg"), line(k=4, x=2, averaged=(0.7,)), line(k=6, x=2)]
    table = tables.accuracy(lines, "lenet5")
    assert shown(table, -2, "MNIST, iid")["published k=6"] == "not measured"
    assert shown(table, -1, "MNIST, iid")["published k=8"] == "not run"


def test_tables_of_runs_without_averaged_models_do_not_speak_of_them() -> None:
    table = tables.accuracy(MNIST, "lenet5")
    assert "mean of the newest" not in table.markdown()
    assert not rows(table, quantity="worst-averaged-difference-to-fedavg")


def test_the_worst_difference_is_to_fedavg_of_the_same_seed() -> None:
    lines = [
        line(method="fedavg", seed=1, accuracy=0.9),
        line(method="fedavg", seed=2, accuracy=0.8),
        line(k=4, x=2, seed=1, accuracy=0.895),
        line(k=4, x=3, seed=1, accuracy=0.91),
        line(k=4, x=2, seed=2, accuracy=0.76),
        line(k=4, x=2, seed=3, accuracy=0.1),  # without a FedAvg to compare with
    ]
    table = tables.accuracy(lines, "lenet5")
    [row] = rows(table, row="MNIST-iid", method="published", k=4, quantity="worst-difference-to-fedavg")
    assert float(row["ours"]) == pytest.approx(-0.04)
    assert (row["runs"], row["seeds"]) == ("3", "2")
    assert shown(table, 5, "MNIST, iid")["published k=4"].startswith("-4.0")


def test_the_settled_accuracy_is_of_the_last_ten_rounds_that_stand() -> None:
    def lasting(method: Method, *, again: float, last: float) -> Line:
        """Twelve rounds; the eleventh was executed twice, and its first execution was superseded."""
        one = line(method=method, k=4, x=2, rounds=12)
        [pattern, *_] = one.rounds
        done = [replace(pattern, number=n, attempt=1, kind="trained", accuracy=0.5) for n in range(1, 13)]
        done[1] = replace(done[1], accuracy=0.1)  # the second of twelve does not count any more
        done[11] = replace(done[11], accuracy=last)
        repeated = replace(done[10], attempt=2, kind="retrained", accuracy=again)
        return replace(one, rounds=(*done, repeated), accuracy=last)

    lines = [lasting("fedavg", again=0.5, last=0.5), lasting("published", again=0.7, last=0.4)]
    table = tables.accuracy(lines, "lenet5")
    wanted = {"row": "MNIST-iid", "method": "published", "k": 4}
    [row] = rows(table, **wanted, quantity="worst-settled-difference-to-fedavg")
    assert float(row["ours"]) == pytest.approx((0.2 - 0.1) / 10)
    [row] = rows(table, **wanted, quantity="worst-difference-to-fedavg")
    assert float(row["ours"]) == pytest.approx(-0.1)
    assert shown(table, 7, "MNIST, iid")["published k=4"].startswith("+1.0")


def test_time_and_work_are_means_over_requests_and_ratios_are_to_fedavg() -> None:
    table = tables.time(MNIST, "lenet5")
    [base] = picked(MNIST, "fedavg")
    runs = picked(MNIST, "published", 6)
    for quantity, kind in (("seconds", "seconds"), ("client-epochs", "client_epochs")):
        ours = fmean(fmean(getattr(one, kind) for one in run.requests) for run in runs)
        theirs = fmean(getattr(one, kind) for one in base.requests)
        [row] = rows(table, row="MNIST-iid", method="published", k=6, quantity=f"{quantity}-per-request")
        assert float(row["ours"]) == pytest.approx(ours)
        [row] = rows(table, row="MNIST-iid", method="published", k=6, quantity=f"{quantity}-ratio")
        assert float(row["ours"]) == pytest.approx(theirs / ours)
    [row] = rows(table, row="MNIST-iid", method="published", k=6, quantity="seconds-ratio")
    assert float(row["paper"]) == pytest.approx(225.61 / 12.71)
    assert shown(table, 11, "MNIST, iid")["k=6 paper"] == "17.8x"


def test_a_ratio_to_no_work_at_all_is_said_in_words() -> None:
    quiet = line(method="sticky", k=8, x=2)
    quiet = replace(
        quiet,
        requests=tuple(
            replace(one, verdict="deniable", to_round=None, rounds=0, client_epochs=0.0) for one in quiet.requests
        ),
    )
    table = tables.time([line(method="fedavg"), quiet], "lenet5")
    assert shown(table, -1, "MNIST, iid")["sticky k=8"] == "all deniable a"
    [row] = rows(table, row="MNIST-iid", method="sticky", k=8, quantity="client-epochs-ratio")
    assert row["ours"] == "inf"


def test_a_ratio_needs_fedavg_on_the_same_seeds() -> None:
    table = tables.time([line(method="fedavg", seed=1), line(k=4, seed=2)], "lenet5")
    [row] = rows(table, row="MNIST-iid", method="published", k=4, quantity="seconds-ratio")
    assert row["ours"] == ""


def test_runs_without_requests_have_no_time() -> None:
    table = tables.time([line(k=4, requests=())], "lenet5")
    assert shown(table, 1, "MNIST, iid")["k=4 published"] == "not run"


def test_storage_is_what_was_measured_and_how_many_times_less() -> None:
    lines = [*MNIST, *ERASERS, line(method="retention", k=8, x=4)]
    table = tables.storage(lines, "lenet5")
    [little] = picked(lines, "retention", 8)
    for method, title in (
        ("federaser-plain", "fedEraser Δt=1, plain float32"),
        ("federaser-1", "fedEraser Δt=1"),
        ("federaser", "fedEraser"),
    ):
        [much] = picked(lines, method)
        [row] = rows(table, row="MNIST-iid", method=method, quantity="bytes-total")
        assert float(row["ours"]) == much.bytes.total
        assert shown(table, 1, title)["updates"] == amount(much.bytes.updates / 1e6)
        expected = much.bytes.total / little.bytes.total
        assert shown(table, 2, f"MNIST-iid, {title}")["retention"] == times(expected)
    [equal] = [one for one in picked(lines, "sticky", 8) if one.x == 4]
    cells = shown(table, 3, "MNIST-iid, k=8, x=4, seed 1")
    assert cells["rounds retrained"] == str(sum(one.rounds for one in equal.requests))
    assert cells["with budget"] == str(sum(one.rounds for one in little.requests))


ALL = [*grid(seeds=(1, 2)), *ERASERS, line(method="retention", k=8, x=4)]


@pytest.mark.parametrize("make", [tables.accuracy, tables.time, tables.answers, tables.storage])
@pytest.mark.parametrize("network", ["lenet5", "resnet-mini", "convnet"])
def test_every_table_is_aligned_fits_on_a_page_and_says_where_it_is_from(make, network: Network) -> None:  # type: ignore[no-untyped-def]
    lines = [replace(one, network=network) for one in ALL[10:]]  # some cells are not run, some are marked
    table: Table = make(lines, network)
    text = table.markdown()
    assert f"`python -m reproduction {table.name}`" in text
    for said in ("NVIDIA H200", "torch 2.13.0", "disavow 0.1.0", "mean over 2 seeds: 1, 2", "0123456789ab"):
        assert said in text
    for piece in table.pieces:
        widths = {len(one) for one in piece.markdown().splitlines() if one.startswith("|")}
        assert len(widths) == 1
        assert widths.pop() <= WIDEST


@pytest.mark.parametrize("make", [tables.accuracy, tables.time, tables.answers, tables.storage])
def test_a_table_of_nothing_says_that_nothing_was_run(make) -> None:  # type: ignore[no-untyped-def]
    table: Table = make([], "lenet5")
    assert "nothing has been run yet" in table.markdown()
    assert all(value.ours is None for value in table.values)


def test_quick_runs_are_used_only_where_there_are_no_others_and_the_table_says_so() -> None:
    quick, full = line(k=4, accuracy=0.2, quick=True), line(k=6, accuracy=0.9)
    text = tables.accuracy([quick], "lenet5").markdown()
    assert "**These are quick runs**" in text
    assert "`python -m reproduction lenet5-accuracy --quick`" in text
    both = tables.accuracy([quick, full], "lenet5")
    assert shown(both, 1, "MNIST, iid")["k=4 published"] == "not run"
    assert "1 quick runs were left out" in both.markdown()
    assert "--quick" not in both.markdown()


QUICK = [
    replace(one, quick=True)
    for one in [*MNIST, *ERASERS, line(method="retention", k=8, x=4)]
    if one.k in (1, 4, 8) and one.x != 3
]


@pytest.mark.parametrize("make", [tables.accuracy, tables.time, tables.answers, tables.storage])
def test_a_table_of_quick_runs_has_what_the_small_version_has_alone(make) -> None:  # type: ignore[no-untyped-def]
    table: Table = make(QUICK, "lenet5")
    assert "not run" not in table.markdown()
    assert {value.k for value in table.values} == {1, 4, 8}
    lacking = make([one for one in QUICK if (one.method, one.k) != ("sticky", 8)], "lenet5")
    assert "not run" in lacking.markdown(), "what the small version should have is missed"


def test_of_two_runs_of_one_place_the_last_counts() -> None:
    lines = [line(k=4, x=2, accuracy=0.2), line(k=4, x=2, accuracy=0.9, key="0" * 64)]
    [row] = rows(tables.accuracy(lines, "lenet5"), row="MNIST-iid", method="published", k=4, quantity="accuracy")
    assert (float(row["ours"]), row["runs"]) == (0.9, "1")


@pytest.mark.parametrize("name", ["lenet5-accuracy", "resnet-accuracy"])
def test_every_number_of_the_paper_is_in_the_table(name: published.TableName) -> None:
    network: Network = "lenet5" if name == "lenet5-accuracy" else "resnet-mini"
    text = tables.accuracy([], network).markdown()
    for row in published.rows(name):
        for column in published.columns(name):
            cell = published.cell(name, row, column)
            assert cell is not None
            assert f" {cell.text} |" in text


def test_variants_of_a_grid_of_ones_own_do_not_enter_the_papers_cells() -> None:
    wide = [replace(one, accuracy=0.1, variant="wide") for one in picked(MNIST, "sticky", 4)]
    assert tables.accuracy([*MNIST, *wide], "lenet5").csv() == tables.accuracy(MNIST, "lenet5").csv()


def test_tables_of_edition_1_show_what_it_had_and_say_how_they_are_made() -> None:
    old = [replace(one, edition=1) for one in MNIST if one.method not in ("sticky-3", "fedavg-sampled")]
    for make in (tables.accuracy, tables.time, tables.answers):
        text = make(old, "lenet5").markdown()
        assert "s=3" not in text
        assert "1/k" not in text
        assert "--edition 1 --render-only`" in text
        assert "retired criterion" in text
        new = make(MNIST, "lenet5").markdown()
        assert "--edition" not in new
        assert "retired criterion" not in new
        assert "fedAvg 1/k" in new
