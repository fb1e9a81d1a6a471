"""Reports of work per request, and lines of odds: read as written, refused by name."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from disavow.errors import ConfigError
from reproduction import odds_lines, records, work_report
from tests.refusals import refuses
from tests.reproduction import making


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = making.work_report()
    (tmp_path / "work.json").write_text(json.dumps(asdict(report), indent=1))
    assert work_report.read(tmp_path / "work.json") == report


def changed(**fields: object) -> str:
    return json.dumps(asdict(making.work_report()) | fields)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "JSON"),
        ("[]", "null"),
        ('{"format": "disavow-work/1"}', '"disavow-work/1"'),
        (changed(streams=0), "streams: "),
        (changed(more=1), "more: "),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "work.json"
    path.write_text(content)
    with refuses(ConfigError, path, said, "make it again"):
        work_report.read(path)


def test_no_report_is_refused_by_name(tmp_path: Path) -> None:
    with refuses(ConfigError, "work.json", "No such file or directory"):
        work_report.read(tmp_path / "work.json")


def test_a_mean_outside_of_its_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="a mean lies within its interval"):
        replace(making.work_cell("sticky", 4, 2, 10.0).answering, low=11.0)
    with pytest.raises(ValueError, match="a ratio lies within its interval"):
        replace(making.work_cell("sticky", 4, 2, 10.0), ratio=1.0)


def test_the_table_has_a_row_for_each_method_of_each_k_and_the_baseline_in_all() -> None:
    report = replace(
        making.work_report(),
        cells=(
            making.work_cell("fedavg", 1, 1, 3_000.0),
            making.work_cell("fedavg-sampled", 4, 1, 600.0),
            making.work_cell("sticky", 4, 2, 100.0),
            replace(making.work_cell("sticky", 8, 4, 10.0), ratio_high=None),
        ),
    )
    rows = [row for row in work_report.markdown(report).splitlines() if row.startswith("| ")]
    names = [row.split("|")[1].strip() for row in rows]
    assert names == ["", "fedAvg", "fedAvg 1/k", "sticky, x=2", "", "fedAvg", "sticky, x=4"]
    assert [cell.strip() for cell in rows[3].split("|")[2:-1]] == [
        "100 (85 to 120)",
        "30.0 (25.0 to 35.3)",
        "800 (680 to 960)",
        "1,400 (1,190 to 1,680)",
    ]
    assert "300.0 (250.0 or more)" in rows[-1]


def test_odds_are_read_as_they_were_added_and_not_as_results(tmp_path: Path) -> None:
    path = tmp_path / "odds.jsonl"
    lines = making.odds_lines((50,), (1,))
    for line in lines:
        odds_lines.append(path, line)
    assert odds_lines.read(path) == lines
    records.append(path, making.line(rounds=2))
    with refuses(ConfigError, "line 5", "disavow-result/1", "disavow-odds/1"):
        odds_lines.read(path)
