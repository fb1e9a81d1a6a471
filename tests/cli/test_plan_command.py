"""`disavow plan`: what it prints, draws and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from disavow.cli.app import app
from disavow.cli.plan import HEADER, plan
from disavow.errors import ConfigError
from tests.cli.process import assert_refused, disavow
from tests.refusals import refuses
from tests.selection import some_of

OPTIONS: dict[str, Any] = {
    "clients": 20,
    "rounds": 10,
    "ks": [4],
    "xs": [3],
    "request_rate": 0.3,
    "simulations": 200,
    "seed": 1,
    "plot": None,
    "as_json": False,
}
LINE = ["plan", "--clients=20", "--rounds=10", "--k=4", "--x=3", "--request-rate=0.3", "--simulations=200"]
EXPECTED_PNG = b"\x89PNG\r\n\x1a\n"

registered = pytest.mark.skipif(
    "plan" not in typer.main.get_command(app).commands,  # type: ignore[attr-defined]
    reason="the command is not registered yet",
)


def run_plan(**changed: Any) -> None:
    plan(**{**OPTIONS, **changed})


def rows(text: str) -> list[list[str]]:
    """The first three columns below the header."""
    table = text.split(HEADER)[1].strip("\n").split("\n\n")[0]
    return [line.split()[:3] for line in table.splitlines()]


def test_the_table_compares_all_choices_and_says_how_to_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    run_plan(ks=[6, 3, 6], xs=[2, 4])
    captured = capsys.readouterr()
    assert rows(captured.out) == [
        [k, x, kind] for k, x in [("3", "2"), ("6", "2"), ("6", "4")] for kind in ("fresh", "sticky")
    ]
    reading = captured.out.split("\n\n")[-1]
    assert "The least retraining, on top of 10 rounds: at x = 2, k = 6" in reading
    assert "Sticky clusters save " in reading
    assert "a smaller x promises a leaver less" in reading
    assert captured.err == ""
    assert all(len(line) <= 116 for line in captured.out.split("\n\n")[1].splitlines())


def test_one_choice_is_read_without_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    run_plan()
    out = capsys.readouterr().out
    assert "retrained rounds (" in out
    assert "a smaller x" not in out


def test_a_choice_without_rollbacks_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    run_plan(request_rate=0.0)
    out = capsys.readouterr().out
    assert "No simulated run rolled back" in out
    assert "not within 0" in out
    assert "Sticky clusters" not in out


def test_runs_that_end_early_are_not_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    run_plan(clients=5, request_rate=1.0)
    assert "left with fewer than k clients" in capsys.readouterr().out


def test_json_holds_every_estimate_with_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    run_plan(as_json=True, xs=[2, 3])
    found = json.loads(capsys.readouterr().out)
    assert {key: found[key] for key in ("clients", "rounds", "request_rate", "seed")} == {
        "clients": 20,
        "rounds": 10,
        "request_rate": 0.3,
        "seed": 1,
    }
    assert [(row["k"], row["x"], row["clustering"]) for row in found["plans"]] == [
        (4, x, kind) for x in (2, 3) for kind in ("fresh", "sticky")
    ]
    for row in found["plans"]:
        for name in ("rollbacks", "retrained_rounds", "chance_of_none", "ended_early"):
            assert row[name]["low"] <= row[name]["mean"] <= row[name]["high"]


def test_a_row_does_not_depend_on_its_company(capsys: pytest.CaptureFixture[str]) -> None:
    run_plan(as_json=True)
    alone = json.loads(capsys.readouterr().out)["plans"]
    run_plan(as_json=True, ks=[3, 4, 5], xs=[2, 3])
    together = json.loads(capsys.readouterr().out)["plans"]
    assert [row for row in together if (row["k"], row["x"]) == (4, 3)] == alone


def test_with_several_representatives_x_is_needed_beside_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    def rolled_back(x: int, representatives: int) -> list[Any]:
        run_plan(as_json=True, ks=[5], xs=[x], representatives=representatives)
        return [row["rollbacks"] for row in json.loads(capsys.readouterr().out)["plans"]]

    assert rolled_back(2, 3) == rolled_back(4, 1) != rolled_back(2, 1)
    with refuses(ConfigError, "--representatives is 4"):
        run_plan(ks=[4], xs=[1], representatives=4)


@pytest.mark.parametrize(
    ("name", "start"),
    some_of([("a.png", EXPECTED_PNG), ("a.PDF", b"%PDF"), ("a.svg", b"<?xml")], lambda each: each[0] == "a.PDF"),
)
def test_a_plot_is_written_beside_the_table(
    name: str, start: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_plan(plot=tmp_path / name, ks=[3, 4], xs=[2, 3])
    assert (tmp_path / name).read_bytes().startswith(start)
    assert HEADER in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"xs": [5]}, ["--x is 5", "allowed: 1 to", "--k", "4"]),
        ({"xs": [0]}, ["--x is 0", "allowed: 1 to", "--k", "4"]),
        ({"ks": [2, 4]}, ["--k is 2", "--x", "3"]),
        ({"ks": [21]}, ["--k is 21", "allowed: 2 to", "20"]),
        ({"ks": [1], "xs": [1]}, ["--k is 1", "allowed: 2 to", "20"]),
        ({"clients": 1}, ["--clients is 1", "2"]),
        ({"rounds": 0}, ["--rounds is 0", "1"]),
        (
            {"rounds": 5_000_000},
            ["--rounds is 5000000", "50,000,000", "20"],
        ),
        ({"request_rate": 1.5}, ["--request-rate is 1.5", "allowed: 0 to 1"]),
        (
            {"request_rate": -0.1},
            ["--request-rate is -0.1", "allowed: 0 to 1"],
        ),
        (
            {"request_rate": float("nan")},
            ["--request-rate is nan", "allowed: 0 to 1"],
        ),
        ({"simulations": 1}, ["--simulations is 1", "allowed: 2 to 10,000,000"]),
        ({"simulations": 10**21}, [f"--simulations is {10**21}", "allowed: 2 to 10,000,000"]),
        ({"seed": -1}, ["--seed is -1", "allowed: 0 to 4294967295"]),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    changed: dict[str, Any], named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with refuses(ConfigError, *named) as refused:
        run_plan(**changed)
    assert "\n" not in str(refused.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("a.gif", ".png, .pdf, .svg"),
        ("a", ".png, .pdf, .svg"),
        ("missing/a.png", "allowed: "),
        ("folder.png", "allowed: "),
    ],
)
def test_a_plot_that_cannot_be_written_is_refused_before_the_simulation(
    name: str, allowed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.png").mkdir()
    with refuses(ConfigError, f"--plot is {tmp_path / name}", allowed) as refused:
        run_plan(plot=tmp_path / name, clients=1000, rounds=1000, simulations=10**7)
    assert "\n" not in str(refused.value)
    assert capsys.readouterr().out == ""


def test_a_plot_that_fails_to_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with refuses(ConfigError, "--plot", tmp_path / "a.png", "No space left on device"):
        run_plan(plot=tmp_path / "a.png")


@registered
def test_the_command_reads_its_options() -> None:
    result = CliRunner().invoke(app, [*LINE, "--k", "5", "--x", "2"])
    assert result.exit_code == 0, result.output
    assert rows(result.stdout)[::2] == [[k, x, "fresh"] for k in ("4", "5") for x in ("2", "3")]


@registered
def test_as_a_process_of_its_own(tmp_path: Path) -> None:
    result = disavow(*LINE, "--json", "--plot", tmp_path / "plan.png")
    assert (result.returncode, result.stderr) == (0, "")
    assert len(json.loads(result.stdout)["plans"]) == 2
    assert (tmp_path / "plan.png").read_bytes().startswith(EXPECTED_PNG)


@registered
def test_a_refusal_as_a_process_of_its_own() -> None:
    assert_refused(disavow(*LINE, "--x", "9"), ConfigError, "--x is 9", "--k", 4)


def test_requests_for_records_leave_everybody_in(capsys: pytest.CaptureFixture[str]) -> None:
    run_plan(unit="record")
    assert "3 requests for records a run" in capsys.readouterr().out
    run_plan(unit="record", as_json=True, request_rate=1.0, clients=5, ks=[4], xs=[4])
    document = json.loads(capsys.readouterr().out)
    assert document["unit"] == "record"
    assert all(row["ended_early"]["mean"] == 0 and row["requests_within"] == 10 for row in document["plans"])
    with refuses(ConfigError, "--unit", "hospital", "client", "record"):
        run_plan(unit="hospital")
