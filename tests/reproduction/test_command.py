"""`python -m reproduction` as a user meets it: real processes, a small grid, interruptions, and wrong files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reproduction import command, grid
from reproduction.command import ReproductionOptions
from tests.cli import forked, process
from tests.engines.pool.builders import children
from tests.reproduction.small import FEWER, SEVERAL, TOML, written

COMMAND = [sys.executable, "-m", "reproduction"]
LIMIT = 120


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return forked.module("reproduction", *arguments, cwd=cwd)


def start(folder: Path) -> subprocess.Popen[str]:
    """Run four points, as a shell starts it."""
    return subprocess.Popen(
        [*COMMAND, *grid_of(folder, FEWER)],
        cwd=folder,
        env=process.with_repository(),
        stderr=subprocess.PIPE,
        text=True,
    )


def grid_of(folder: Path, text: str = TOML) -> list[str]:
    return ["--grid", str(written(folder, text))]


def test_a_grid_of_ones_own_is_run_once_and_shown(tmp_path: Path) -> None:
    first = run(*grid_of(tmp_path), "lenet5-accuracy", "--render-only", "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "not run" in (tmp_path / "build" / "reproduction" / "lenet5-accuracy.md").read_text()

    made = run(*grid_of(tmp_path), cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "6 of 6: MNIST-iid lenet5 sticky k=4 x=4, seed 1: accuracy 0." in made.stderr

    again = run(*grid_of(tmp_path), cwd=tmp_path)
    assert "6 of 6 runs are finished already" in again.stderr
    assert len((tmp_path / "results" / "lenet5-mnist-iid.jsonl").read_text().splitlines()) == 6

    shown = run("lenet5-accuracy", "lenet5-time", "--render-only", "--json", cwd=tmp_path)
    files = json.loads(shown.stdout)["files"]
    assert set(files) == {"lenet5-accuracy", "lenet5-time"}
    table = (tmp_path / files["lenet5-accuracy"][0]).read_text()
    assert "| MNIST, iid " in table
    assert "2 of 3 x were run (2, 4)" in table
    assert "0.964" in table, "the paper's cell stands beside ours"


def test_a_dry_run_counts_what_is_made_and_what_is_missing_and_writes_nothing(tmp_path: Path) -> None:
    before = run(*grid_of(tmp_path, FEWER), "--dry-run", cwd=tmp_path)
    assert before.returncode == 0, before.stderr
    assert before.stdout.startswith("paper, lenet5: 0 of 4 runs are made; at most about ")
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "build").exists()

    assert run(*grid_of(tmp_path, FEWER), cwd=tmp_path).returncode == 0
    after = run(*grid_of(tmp_path, FEWER), "--dry-run", cwd=tmp_path)
    assert after.stdout == "paper, lenet5: 4 of 4 runs are made\n"


def test_a_dry_run_counts_studies_with_lines_of_their_own(tmp_path: Path) -> None:
    counted = run("backdoor", "odds", "--quick", "--dry-run", "--json", cwd=tmp_path)
    backdoors, odds = json.loads(counted.stdout)["remaining"]
    assert backdoors == {"study": "backdoor", "network": "lenet5", "runs": 5, "made": 0, "rounds": 5 * 2 * 6}
    assert (odds["study"], odds["made"]) == ("odds", 0)


def test_a_dry_run_cannot_be_of_what_is_only_rendered(tmp_path: Path) -> None:
    done = run("skew", "--dry-run", "--render-only", cwd=tmp_path)
    assert done.returncode == 2
    assert "--dry-run is set; allowed: not with --render-only" in done.stderr


@pytest.mark.parametrize(
    ("network", "made"),
    [(None, {"lenet5", "resnet-mini"}), ("lenet5", {"lenet5"}), ("convnet", {"lenet5", "resnet-mini"})],
)
def test_a_study_of_several_networks_is_run_for_one_of_them(network: str | None, made: set[str]) -> None:
    nowhere = Path("nowhere")
    options = ReproductionOptions(
        names=("large-k",),
        quick=False,
        rows=("FMNIST-iid",),
        seeds=(1,),
        network=network,
        device="cpu",
        jobs=1,
        streams=50,
        grid=None,
        results=nowhere,
        out=nowhere,
        work=None,
        render_only=False,
        edition=2,
    )
    points = command.chosen_points(grid.packaged("large-k"), options)
    assert {point.network for point in points} == made
    assert {(point.row, point.seed) for point in points} == {("FMNIST-iid", 1)}


@pytest.mark.parametrize("groups", [2, pytest.param(3, marks=pytest.mark.torture)])
def test_groups_share_the_work_of_several_processes(tmp_path: Path, groups: int) -> None:
    text = SEVERAL.replace("seeds = [1, 2, 3]", f"seeds = {[*range(1, groups + 1)]}")
    made = run(*grid_of(tmp_path, text), "--jobs", "2", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    points = 2 * groups
    assert f"{points} of {points}: MNIST-iid lenet5 " in made.stderr
    lines = (tmp_path / "results" / "lenet5-mnist-iid.jsonl").read_text().splitlines()
    assert len({json.loads(line)["key"] for line in lines}) == len(lines) == points


@pytest.mark.torture
@pytest.mark.parametrize("delay", [0.5, 2.0, 5.0, 8.0])
def test_killed_with_several_processes_it_leaves_none_and_goes_on(tmp_path: Path, delay: float) -> None:
    arguments = [*grid_of(tmp_path, SEVERAL), "--jobs", "3"]
    with subprocess.Popen([*COMMAND, *arguments], cwd=tmp_path, env=process.with_repository()) as started:
        time.sleep(delay)
        workers = children(started.pid)
        started.kill()
    deadline = time.monotonic() + LIMIT
    while any(Path(f"/proc/{worker}").exists() for worker in workers):  # they notice after their next round
        assert time.monotonic() < deadline
        time.sleep(0.1)
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "results" / "lenet5-mnist-iid.jsonl").read_text().splitlines()
    assert len({json.loads(line)["key"] for line in lines}) == len(lines) == 6


def test_tables_of_an_older_edition_are_shown_and_not_run(tmp_path: Path) -> None:
    """Lines of `results/` from before the criterion was changed."""
    kept = Path(__file__).parents[2] / "results" / "convnet-cifar10-iid.jsonl"
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / kept.name).write_bytes(kept.read_bytes())
    for edition, shown in ((1, False), (2, True)):
        done = run("convnet-accuracy", "--render-only", "--edition", str(edition), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        table = (tmp_path / "build" / "reproduction" / "convnet-accuracy.md").read_text()
        assert ("nothing has been run yet" in table) is shown
    refused = run("convnet-accuracy", "--edition", "1", cwd=tmp_path)
    assert (refused.returncode, "--render-only" in refused.stderr) == (2, True)


def test_studies_that_older_editions_did_not_have_are_shown_beside_them(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for kept in (Path(__file__).parents[2] / "results").glob("tradeoff-*.jsonl"):
        (tmp_path / "results" / kept.name).write_bytes(kept.read_bytes())
    tables = []
    for edition in (1, 2):
        done = run("trade-off", "--render-only", "--edition", str(edition), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        tables.append((tmp_path / "build" / "reproduction" / "trade-off.md").read_text())
    assert tables[0] == tables[1]
    assert "nothing has been run yet" not in tables[0]


def test_everything_is_rendered_where_nothing_was_run(tmp_path: Path) -> None:
    done = run("all", "--render-only", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)["files"]
    assert {name for name, written in files.items() if not written} == {"work", "purge-work"}
    assert "purge-work was not run" in " ".join(done.stderr.split())
    for name in ("accuracy", "skew", "skew-requests", "large-k", "last-batch", "trade-off", "backdoor"):
        assert "nothing has been run yet" in (tmp_path / files[name][0]).read_text()


def test_the_work_of_requests_is_measured_and_drawn(tmp_path: Path) -> None:
    done = run("work", "--streams", "50", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "results" / "work.json").read_text())
    assert report["streams"] == 50
    assert "work --streams 50" in (tmp_path / "build" / "reproduction" / "work.md").read_text()
    assert (tmp_path / "build" / "reproduction" / "work.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "build" / "reproduction" / "work.svg").read_text().startswith("<?xml")


@pytest.mark.torture
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    with start(tmp_path) as started:
        assert started.stderr is not None
        assert "1 of 4" in started.stderr.readline()
        started.send_signal(signal.SIGINT)
        rest = started.stderr.read()
        assert started.wait(LIMIT) == 130
    assert "the same command goes on" in rest
    kept = (tmp_path / "results" / "lenet5-mnist-iid.jsonl").read_text().splitlines()
    assert 1 <= len(kept) < 4
    done = run(*grid_of(tmp_path, FEWER), cwd=tmp_path)
    assert f"{len(kept)} of 4 runs are finished already" in done.stderr
    assert done.returncode == 0


@pytest.mark.torture  # `test_records` and `test_campaign` go on from every half-written line
def test_killed_in_the_middle_it_goes_on(tmp_path: Path) -> None:
    with start(tmp_path) as started:
        assert started.stderr is not None
        started.stderr.readline()
        time.sleep(0.3)
        started.kill()
    done = run(*grid_of(tmp_path, FEWER), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [
        json.loads(line) for line in (tmp_path / "results" / "lenet5-mnist-iid.jsonl").read_text().splitlines()
    ]
    assert len({line["key"] for line in lines}) == len(lines) == 4


@pytest.mark.torture
def test_a_second_process_leaves_the_runs_to_the_first(tmp_path: Path) -> None:
    with start(tmp_path) as started:
        assert started.stderr is not None
        assert "1 of 4" in started.stderr.readline()
        started.send_signal(signal.SIGSTOP)  # so that it is still there when the other comes
        other = run(*grid_of(tmp_path, FEWER), cwd=tmp_path)
        started.send_signal(signal.SIGCONT)
        rest = started.stderr.read()
        assert started.wait(LIMIT) == 0, rest
    assert other.returncode == 0, other.stderr
    assert "MNIST-iid, lenet5, seed 1 is left to others" in other.stderr
    assert f"is in use by process {started.pid} (python -m reproduction, since" in " ".join(other.stderr.split())
    kept = (tmp_path / "results" / "lenet5-mnist-iid.jsonl").read_text().splitlines()
    assert len({json.loads(line)["key"] for line in kept}) == len(kept) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["everything"], "there is no everything to reproduce; allowed: lenet5-accuracy"),
        (["lenet5-accuracy", "--row", "MNIST"], "--row is MNIST; allowed: MNIST-iid"),
        (["lenet5-accuracy", "--device", "tpu"], "--device is tpu; allowed: auto, cpu, cuda"),
        (["accuracy-curves", "--network", "vgg"], "--network is vgg; allowed: lenet5"),
        (["--grid", "none.toml"], "none.toml: there is no such file"),
        ([], "allowed: a file, where no NAME is given"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_absurd_value_is_exit_2_and_nothing_comes_into_being(tmp_path: Path) -> None:
    done = run("work", "--streams", "999999999999999999999", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_absent_data_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISAVOW_DATA_DIR", str(tmp_path / "nowhere"))
    text = TOML.replace('name = "digits"\n', "")
    done = run("--grid", str(written(tmp_path, text)), cwd=tmp_path)
    assert done.returncode == 2
    assert "DISAVOW_DATA_DIR" in done.stderr
    assert "mnist/train.parquet" in done.stderr


def test_results_of_another_version_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "lenet5-mnist-iid.jsonl").write_text('{"format": "disavow-result/9"}\n')
    done = run(*grid_of(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert "lenet5-mnist-iid.jsonl, line 1 has the format" in done.stderr
