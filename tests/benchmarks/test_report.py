"""The table and the JSON of passes that were made up."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from benchmarks.engines.passes import Contestant, Pass
from benchmarks.engines.report import Report, as_json, fastest_peer, remarks, rows
from benchmarks.engines.table import table

SETTINGS = {"device": "cpu", "passes": 3, "rounds": 3, "federations": 1}


def done(name: str, number: int, *seconds: float, **more: Any) -> Pass:
    return Pass(name, number, more.pop("others", 0.0), seconds=seconds, **{"accuracy": 0.8, **more})


def made(*passes: Pass, settings: dict[str, Any] = SETTINGS, absent: dict[str, str] | None = None) -> Report:
    names = dict.fromkeys(one.contestant for one in passes)
    contestants = [Contestant(name, ("run", name), {"SECRET": "x"}, ours="disavow" in name) for name in names]
    return Report(settings, "MNIST", datetime(2026, 1, 2, tzinfo=UTC), tuple(contestants), passes, absent or {})


THREE = (
    done("flower 1", 1, 10.0, 12.0, 11.0),
    done("plain", 1, 8.0),
    done("disavow auto", 1, 2.0, accuracy=0.78),
    done("flower 1", 2, 20.0),
    done("plain", 2, 8.0),
    done("disavow auto", 2, 1.0),
    done("flower 1", 3, 12.0),
    done("plain", 3, 9.0),
    done("disavow auto", 3, 4.0),
)


def test_rows_are_medians_over_passes_with_ratios_to_every_peer() -> None:
    found = rows(made(*THREE))
    assert [row.contestant for row in found] == ["disavow auto", "plain", "flower 1"]
    ours, plain, flower = found
    assert (ours.seconds, ours.fastest, ours.slowest, ours.ours) == (2.0, 1.0, 4.0, True)
    assert (flower.seconds, flower.fastest, flower.slowest) == (12.0, 11.0, 20.0)
    assert ours.ratios == {"flower 1": 6.0, "plain": 4.0}
    assert plain.ratios == {"flower 1": 1.5, "plain": 1.0}
    assert ours.accuracy == 0.8
    assert fastest_peer(made(*THREE)) == "plain"
    assert remarks(made(*THREE)) == []


def test_the_table_shows_them() -> None:
    file = io.StringIO()
    Console(file=file, width=100).print(table(made(*THREE)))
    lines = [line.split() for line in file.getvalue().splitlines()]
    headings = ["s/round", "of passes", "accuracy", "x fastest", "x flower", "x plain"]
    assert lines[0] == ["contestant", *" ".join(headings).split()]
    assert lines[2] == ["disavow", "auto", "2.00", "1.00-4.00", "0.800", "4.00", "6.00", "4.00"]
    assert lines[4] == ["flower", "1", "12.0", "11.0-20.0", "0.800", "0.67", "1.00", "0.67"]
    assert all(len(line) <= 100 for line in file.getvalue().splitlines())


def test_without_peers_there_is_no_ratio() -> None:
    report = made(done("disavow auto", 1, 2.0))
    assert fastest_peer(report) is None
    file = io.StringIO()
    Console(file=file, width=100).print(table(report))
    assert file.getvalue().splitlines()[2].split()[-1] == "-"


def test_a_report_of_nothing_but_failures_is_still_a_report() -> None:
    failed = Pass("plain", 1, None, failure="exit status 1\nboom")
    report = made(failed, absent={"pfl": "no network"})
    assert rows(report) == []
    assert remarks(report) == ["pfl did not take part: no network", "plain failed: exit status 1\nboom"]
    Console(file=io.StringIO()).print(table(report))
    assert json.loads(json.dumps(as_json(report)))["rows"] == []


@pytest.mark.parametrize(
    ("passes", "settings", "words"),
    [
        ([*THREE, done("plain", 4, 8.0, others=1.25)], SETTINGS, "not quiet: before a pass, others kept 1.2 cores"),
        (
            [*THREE, done("lazy", 1, 0.1, accuracy=0.3)],
            SETTINGS,
            "lazy may not do the same work: its accuracy is 0.300",
        ),
        (THREE, {**SETTINGS, "federations": 12}, "rounds of 12 federations at once"),
    ],
)
def test_what_a_reader_must_know_is_said(passes: list[Pass], settings: dict[str, Any], words: str) -> None:
    [remark] = remarks(made(*passes, settings=settings))
    assert words in remark


def test_json_holds_every_time_the_machine_and_no_environment() -> None:
    document = json.loads(json.dumps(as_json(made(*THREE))))
    assert [one["seconds"] for one in document["passes"] if one["contestant"] == "flower 1"] == [
        [10.0, 12.0, 11.0],
        [20.0],
        [12.0],
    ]
    assert document["machine"].keys() >= {"processor", "cores", "device", "torch", "python", "disavow"}
    assert document["contestants"]["plain"] == {"ours": False, "command": ["run", "plain"]}
    assert document["fastest_peer"] == "plain"
    assert "SECRET" not in json.dumps(document)
