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
        ('{"format": "disavow-work/2"}', '"disavow-work/2"'),
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
        replace(making.work_cell("sticky", 4, 2, 10.0), low=11.0)


def test_odds_are_read_as_they_were_added_and_not_as_results(tmp_path: Path) -> None:
    path = tmp_path / "odds.jsonl"
    lines = making.odds_lines((50,), (1,))
    for line in lines:
        odds_lines.append(path, line)
    assert odds_lines.read(path) == lines
    records.append(path, making.line(rounds=2))
    with refuses(ConfigError, "line 5", "disavow-result/1", "disavow-odds/1"):
        odds_lines.read(path)
