"""Work per request over streams: known cases, and the figures that the product claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from disavow.erasure.plan import Federation
from reproduction import work, work_report
from reproduction.work_report import WorkCell, WorkReport

PAPER = Federation(clients=50, rounds=50, request_rate=0.2)


@pytest.fixture(scope="module")
def report() -> WorkReport:
    return work.measure(PAPER, epochs=3, streams=400, seed=1)


def cell(report: WorkReport, method: str, k: int, x: int) -> WorkCell:
    return next(each for each in report.cells if (each.method, each.k, each.x) == (method, k, x))


def test_fedavg_trains_all_rounds_with_all_who_are_left() -> None:
    certain = work.measure(Federation(clients=20, rounds=6, request_rate=1.0), epochs=2, streams=50, seed=1)
    plain = cell(certain, "fedavg", 1, 1)
    expected = sum(number * (20 - number) * 2 for number in range(1, 7)) / 6
    assert plain.answering.mean == plain.answering.low == plain.answering.high == pytest.approx(expected)
    training = sum((21 - number) * 2 for number in range(1, 7)) / 6
    assert plain.run.mean == pytest.approx(training + expected)
    assert plain.deleting.mean == pytest.approx(training + 6 * 14 * 2 / 6)
    assert plain.ratio == 1.0


@pytest.mark.parametrize(("k", "x", "least"), [(4, 3, 4), (6, 3, 25), (8, 4, 60)])
def test_sticky_clusters_save_what_is_claimed(report: WorkReport, k: int, x: int, least: float) -> None:
    found = cell(report, "sticky", k, x)
    assert found.ratio_low is not None
    assert found.ratio_low >= least
    assert found.answering.mean < cell(report, "published", k, x).answering.mean


def test_with_x_as_large_as_k_nobody_is_deniable(report: WorkReport) -> None:
    plain, published = cell(report, "fedavg", 1, 1), cell(report, "published", 4, 4)
    assert published.answering.mean == pytest.approx(plain.answering.mean, rel=0.02)


def test_a_fraction_of_the_clients_saves_more_than_its_share_and_x_plays_no_part(report: WorkReport) -> None:
    sampled = {each.k: each for each in report.cells if each.method == "fedavg-sampled"}
    assert list(sampled) == [4, 6, 8, 10]
    for k, found in sampled.items():
        assert (found.x, found.ratio_low is not None and found.ratio_low > k) == (1, True)


def test_where_nothing_is_trained_no_ratio_is_claimed(report: WorkReport) -> None:
    found = cell(report, "sticky", 10, 2)
    assert (found.answering.mean, found.ratio, found.ratio_low, found.ratio_high) == (0.0, None, None, None)
    assert "0 (0 to 0) |" in work_report.markdown(report)


def test_clusters_answer_with_less_and_train_with_more_than_a_random_share(report: WorkReport) -> None:
    sticky, sampled = cell(report, "sticky", 6, 3), cell(report, "fedavg-sampled", 6, 1)
    assert sticky.answering.high < sampled.answering.low
    assert sticky.run.low > sampled.run.high
    assert sticky.deleting.low > sampled.deleting.high


def test_it_is_kept_as_it_was(report: WorkReport, tmp_path: Path) -> None:
    work_report.write(tmp_path / "new" / "work.json", report)
    assert work_report.read(tmp_path / "new" / "work.json") == report
