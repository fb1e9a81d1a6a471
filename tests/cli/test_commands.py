"""The commands, run as a person runs them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main

from disavow.cli.app import app
from disavow.config import Settings, load, parse
from disavow.errors import ConfigError, RunError, RunExists, RunMissing
from disavow.ledger import Ledger, fsck
from tests.cli import process
from tests.cli.forked import disavow
from tests.cli.process import COMMAND, assert_refused, environment, error_code, write_config
from tests.conftest import SMALL
from tests.ledger.making import files_of

ESCAPE = "\x1b"
ROW = re.compile(r"^ +\d+ +[\d.]+%", re.MULTILINE)


@dataclass(frozen=True)
class Trained:
    config: Path
    run: Path
    result: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def by_process(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The run of `SMALL`, trained by the command line."""
    folder = tmp_path_factory.mktemp("cli")
    file = write_config(folder / "config.toml", SMALL)
    return Trained(file, folder / "run", process.disavow("train", file, "--run", folder / "run", "--json"))


# -- train, status, fsck, resume -----------------------------------------------------------------------------


def test_train_prints_json_on_stdout_and_its_rows_on_stderr(by_process: Trained) -> None:
    result = by_process.result
    assert result.returncode == 0
    document = json.loads(result.stdout)
    assert document.keys() == {"run", "run_id", "initial_model", "engine", "rounds"}
    assert document["engine"].keys() == {"name", "passed_over"}
    assert [one["number"] for one in document["rounds"]] == [1, 2, 3]
    assert len(ROW.findall(result.stderr)) == 3
    assert ESCAPE not in result.stdout + result.stderr


def test_the_same_settings_and_seed_give_the_same_models_in_another_process(
    by_process: Trained, trained: Path
) -> None:
    document = json.loads(by_process.result.stdout)
    with Ledger.open(trained) as ledger:
        assert document["initial_model"] == ledger.initial_model
        standing = [summary.after for summary in ledger.summaries() if summary.standing]
    assert [one["model"] for one in document["rounds"]] == standing


def test_a_run_of_the_command_line_is_clean(by_process: Trained) -> None:
    assert fsck(by_process.run) == []


def test_status_shows_the_run_in_words_and_in_json(by_process: Trained) -> None:
    before = files_of(by_process.run)
    words, data = process.disavow("status", by_process.run), disavow("status", by_process.run, "--json")
    assert (words.returncode, words.stderr, data.returncode, data.stderr) == (0, "", 0, "")
    assert ESCAPE not in words.stdout
    document = json.loads(data.stdout)
    assert (document["complete"], document["rounds_wanted"], document["clients"], document["policy"]["k"]) == (
        True,
        3,
        8,
        3,
    )
    assert document["model"] == document["rounds"][-1]["model"]
    assert document["model"] in words.stdout
    assert document["run_id"] in words.stdout
    assert "3 of 3; complete" in words.stdout
    assert "draws are seeded, so its privacy claims are void" in words.stdout
    assert len(ROW.findall(words.stdout)) == 3
    assert files_of(by_process.run) == before


def test_the_size_on_disk_is_that_of_the_files_a_person_sees(by_process: Trained) -> None:
    size = sum(map(len, files_of(by_process.run).values()))
    assert json.loads(disavow("status", by_process.run, "--json").stdout)["stored_bytes"] == size


def test_resume_leaves_a_complete_run_as_it_is(by_process: Trained) -> None:
    before = {name: data for name, data in files_of(by_process.run).items() if name != "lock"}
    result = disavow("resume", by_process.run)
    assert result.returncode == 0
    assert "holds 3 of 3 rounds" in result.stderr
    assert not ROW.search(result.stderr)
    assert "3 rounds, accuracy" in result.stdout
    assert {name: data for name, data in files_of(by_process.run).items() if name != "lock"} == before


def test_ctrl_c_is_exit_130_and_resume_goes_on(tmp_path: Path) -> None:
    # far more rounds than can be trained before the signal arrives
    file = write_config(tmp_path / "config.toml", {**SMALL, "rounds": 5000})
    run = tmp_path / "run"
    arguments = [*COMMAND, "train", str(file), "--run", str(run)]
    with subprocess.Popen(
        arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        while not ROW.match(process.stderr.readline()):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest, out = process.stderr.read(), process.stdout.read()
        assert process.wait(60) == 130
    assert rest.splitlines()[-1] == f"interrupted; `disavow resume {run}` goes on"
    assert "Traceback" not in rest
    assert out == ""
    assert [finding for finding in fsck(run) if finding.fault] == []
    with Ledger.open(run) as ledger:
        done = ledger.last_round
    assert 1 <= done < 5000
    # nobody has time for 5,000 rounds
    settings = run / "config.toml"
    settings.write_text(settings.read_text().replace("rounds = 5000", f"rounds = {done + 2}"))
    unfinished = disavow("status", run)
    assert f"{done} of {done + 2}; `disavow resume {run}` goes on" in unfinished.stdout
    result = disavow("resume", run, "--json")
    assert result.returncode == 0
    assert f"holds {done} of {done + 2} rounds" in result.stderr
    assert [one["number"] for one in json.loads(result.stdout)["rounds"]] == list(range(1, done + 3))
    assert fsck(run) == []


def test_a_refused_round_is_exit_5_and_the_run_stays_as_it_was(tmp_path: Path) -> None:
    training = {**SMALL["training"], "learning_rate": 1e30}
    file = write_config(tmp_path / "config.toml", {**SMALL, "training": training})
    run = tmp_path / "run"
    result = disavow("train", file, "--run", run)
    assert result.returncode == 5
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error DSV-601: round 1 refused: ")
    assert "learning rate" in last
    assert "Traceback" not in result.stderr
    assert fsck(run) == []
    assert json.loads(disavow("status", run, "--json").stdout)["rounds"] == []
    settings = run / "config.toml"
    settings.write_text(settings.read_text().replace("learning_rate = 1e+30", "learning_rate = 0.1"))
    assert_refused(disavow("resume", run), ConfigError, settings)  # another training is another run


# -- init and demo -------------------------------------------------------------------------------------------


def test_init_writes_the_defaults_and_never_overwrites(tmp_path: Path) -> None:
    result = disavow("init", "mine.toml", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "disavow train mine.toml" in result.stdout
    assert load(tmp_path / "mine.toml") == Settings()
    (tmp_path / "mine.toml").write_text("precious")
    assert_refused(disavow("init", "mine.toml", cwd=tmp_path), ConfigError, "mine.toml")
    assert files_of(tmp_path) == {"mine.toml": b"precious"}


def test_init_to_stdout_prints_nothing_but_toml(tmp_path: Path) -> None:
    result = disavow("init", "-", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert parse(result.stdout, source="stdout") == Settings()
    assert list(tmp_path.iterdir()) == []


def test_init_where_no_file_can_be_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "config.toml"
    assert_refused(disavow("init", file), ConfigError, file)


def test_demo_trains_lets_clients_leave_tells_and_takes_the_next_free_name(tmp_path: Path) -> None:
    words = process.disavow("demo", "--rounds", "2", cwd=tmp_path)
    assert words.returncode == 0
    assert "After 2 rounds" in words.stdout
    assert "disavow status runs/demo" in words.stdout
    assert len(ROW.findall(words.stderr)) == 4  # two rounds, and the same two retrained
    assert "1 request to be forgotten: deniable" in words.stderr
    assert "2 requests to be forgotten: rollback to round 1" in words.stderr
    assert "passes every check." in words.stdout
    assert ESCAPE not in words.stdout + words.stderr
    data = disavow("demo", "--rounds", "2", "--json", cwd=tmp_path)
    document = json.loads(data.stdout)
    assert document["run"] == "runs/demo-2"
    # everybody sees the same numbers
    with Ledger.open(tmp_path / "runs" / "demo") as ledger:
        standing = [summary.after for summary in ledger.summaries() if summary.standing]
    assert [one["model"] for one in document["rounds"]] == standing
    assert fsck(tmp_path / "runs" / "demo", keys=tmp_path / "runs" / "demo.keys") == []


def test_what_the_demo_says_to_try_next_works_as_pasted(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    bare = environment(PATH="/usr/bin:/bin")
    words = process.run([*COMMAND, "demo", "--rounds", "2", "--run", "runs/my demo"], cwd=tmp_path, env=bare)
    assert words.returncode == 0, words.stderr
    lines = words.stdout.split("Try next:\n", 1)[1].splitlines()
    quick = "\n".join(line for line in lines if "disavow audit" not in line and "disavow plan" not in line)
    assert "bin/activate" in quick
    assert "disavow verify" in quick
    pasted = process.run(["bash", "-e", "-c", quick], cwd=tmp_path, env=bare)
    assert pasted.returncode == 0, pasted.stderr
    assert "keyring" not in pasted.stdout + pasted.stderr  # every command has found the demo's own


# -- help ----------------------------------------------------------------------------------------------------

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
NAMES = sorted([*COMMANDS, *(f"keyring {name}" for name in COMMANDS["keyring"].commands)])


def test_there_are_the_commands_there_should_be() -> None:
    assert {"demo", "init", "train", "resume", "status", "fsck"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example(name: str) -> None:
    # one process as a shell starts it; `test_imports` starts more of them
    start = process.disavow if name == "erase" else disavow
    result = start(*name.split(), "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Example" in result.stdout
    assert f"disavow {name}" in result.stdout
    assert ESCAPE not in result.stdout


# -- what cannot be used -------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown key": ({"colour": "red"}, ["colour", "seed, rounds"]),
    "unknown key of a table": ({"data": {"clints": 8}}, ["data.clints", "name, clients"]),
    "wrong type": ({"rounds": "many"}, ["rounds", '"many"']),
    "wrong choice": ({"model": {"name": "alexnet"}}, ["model.name", '"alexnet"', '"convnet"']),
    "out of bounds": ({"training": {"fraction": 1.5}}, ["training.fraction", "1.5"]),
    "k above clients": ({"clustering": {"k": 9}}, ["clustering.k", "9", "8"]),
    "x above k": ({"deniability": {"x": 4}}, ["deniability.x", "4", "3"]),
}


@pytest.mark.parametrize(("changed", "named"), BAD.values(), ids=BAD.keys())
def test_a_bad_setting_is_one_line_with_key_value_and_what_is_allowed(
    tmp_path: Path, changed: dict[str, Any], named: list[str]
) -> None:
    merged = {k: {**SMALL.get(k, {}), **v} if isinstance(v, dict) else v for k, v in changed.items()}
    file = write_config(tmp_path / "config.toml", {**SMALL, **merged})
    assert_refused(disavow("train", file, "--run", tmp_path / "run"), ConfigError, file, *named)
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_a_missing_settings_file_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    result = disavow("train", "config.toml", "--run", "run", cwd=tmp_path)
    assert_refused(result, ConfigError, "config.toml", "disavow init config.toml")
    assert list(tmp_path.iterdir()) == []


def test_a_settings_file_that_is_not_toml_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("rounds == 3\n")
    result = disavow("train", "config.toml", "--run", "run", cwd=tmp_path)
    assert_refused(result, ConfigError, "config.toml", "TOML")
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_never_trained_over(by_process: Trained) -> None:
    before = files_of(by_process.run)
    result = disavow("train", by_process.config, "--run", by_process.run)
    assert_refused(result, RunExists, by_process.run)
    assert files_of(by_process.run) == before


@pytest.mark.parametrize(("command", "kind"), [("status", RunMissing), ("resume", RunMissing), ("fsck", RunError)])
def test_a_directory_without_a_run_is_one_line(tmp_path: Path, command: str, kind: type[RunError]) -> None:
    assert_refused(disavow(command, tmp_path / "nothing here"), kind, tmp_path / "nothing here")
    assert list(tmp_path.iterdir()) == []


def test_a_run_below_a_file_is_one_line(tmp_path: Path) -> None:
    file = write_config(tmp_path / "config.toml", SMALL)
    result = disavow("train", file, "--run", file / "run")
    assert result.returncode == 2
    assert error_code(result).startswith("DSV-")
    assert str(file) in result.stderr


def test_the_current_directory_can_be_the_run_when_it_is_empty(tmp_path: Path) -> None:
    file = write_config(tmp_path / "config.toml", {**SMALL, "rounds": 1})
    (tmp_path / "empty").mkdir()
    result = disavow("train", file, "--run", ".", cwd=tmp_path / "empty")
    assert result.returncode == 0, result.stderr
    assert fsck(tmp_path / "empty") == []


def test_a_name_with_brackets_is_printed_as_it_is(run_dir: Path) -> None:
    """Rich would read [bold] as an instruction; the command a person copies would then name another run."""
    odd = run_dir.rename(run_dir.with_name("run[bold]1"))
    assert "run[bold]1: clean" in disavow("fsck", odd).stdout
    resumed = disavow("resume", odd)
    assert f"in {odd}" in resumed.stdout
    assert f"{odd} holds 3 of 3 rounds" in resumed.stderr


# -- where a person is looking -------------------------------------------------------------------------------


def test_on_a_terminal_there_is_a_bar_in_colour_and_stdout_stays_plain(tmp_path: Path) -> None:
    file = write_config(tmp_path / "config.toml", SMALL)
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        # the end of a terminal is an error on Linux: everybody at the other side has gone
        try:
            while data := os.read(ours, 65536):
                shown.extend(data)
        except OSError:
            return

    reader = threading.Thread(target=read)
    with subprocess.Popen(
        [*COMMAND, "train", str(file), "--run", str(tmp_path / "run")],
        env=environment(TERM="xterm-256color", COLUMNS="120"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        reader.start()
        assert process.stdout is not None
        out = process.stdout.read()
        assert process.wait(60) == 0
    reader.join(60)
    os.close(ours)
    screen = shown.decode()
    assert "\x1b[" in screen
    assert re.search("[━╸╺]", screen)
    assert "training" in screen
    assert len(re.findall(r" +\d+ +[\d.]+% +\d", screen)) == 3
    assert ESCAPE not in out
    assert "3 rounds, accuracy" in out
