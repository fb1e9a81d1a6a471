"""What a command ends with: 1 is a verdict, so that nothing else ends with it; what was not foreseen ends with 70.

Commands are run in forks of a process that has imported everything; where they start counts, in one of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from disavow import cli, errors
from disavow.cli.audit import COULD_NOT_SEE
from disavow.errors import DisavowError, RunMissing
from tests.cli.process import COMMAND, assert_refused, environment
from tests.kill.erasure_driver import Driver, Ended

DOCS = Path(__file__).parents[2] / "docs"


# -- what nobody foresaw -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["fsck", "audit", "verify"])
def test_a_defect_is_exit_70_in_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def defect(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("three\nlines\nof it")

    function = {"audit": "audit_client"}.get(command, command)
    monkeypatch.setattr(f"disavow.cli.{command}.{function}", defect)
    more = {"audit": ["--client", "a"], "verify": ["--key", "k"]}.get(command, [])
    monkeypatch.setattr(sys, "argv", ["disavow", command, str(tmp_path), *more])
    for debug in (False, True):
        if debug:
            monkeypatch.setenv(cli.DEBUG, "1")
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (70, "")
        *before, line = err.splitlines()
        assert line.startswith("internal error DSV-900: ZeroDivisionError: three lines of it; ")
        assert ("Traceback" in err, bool(before)) == (debug, debug)


def test_whoever_reads_no_further_is_not_told_of_a_verdict() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        ended = subprocess.run(
            [*COMMAND, "init", "-"],
            stdout=nobody,
            stderr=subprocess.PIPE,
            env=environment(),
            check=False,
            timeout=60,
        )
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


# -- what the operating system refuses -----------------------------------------------------------------------------


@pytest.fixture
def read_only(run_dir: Path) -> Iterator[Path]:
    """A run that may only be read, in a folder that may only be read."""
    paths = [run_dir.parent, run_dir, *run_dir.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(modes[path] & 0o555)
    yield run_dir
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("resume", []),
        ("erase", ["client-01"]),
        ("audit", ["--client", "client-01", "--worlds", "32", "--shadows", "4"]),
        ("export", ["-o", "model.safetensors"]),
    ],
)
def test_a_read_only_run_is_refused_in_one_line(
    command: str, more: list[str], read_only: Path, driver: Driver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = tmp_path_factory.mktemp("keys of a read-only run")
    ended = driver.run(command, read_only, *more, keys=keys, cwd=read_only.parent, obey_modes=True)
    assert ended.status == 2, ended.stderr
    assert error_of(ended).startswith("error DSV-")
    assert "Permission denied" in error_of(ended) or "read" in error_of(ended)


@pytest.mark.parametrize("command", ["status", "fsck", "requests"])
def test_a_read_only_run_can_be_read(command: str, read_only: Path, driver: Driver) -> None:
    ended = driver.run(command, read_only, obey_modes=True)
    assert (ended.status, ended.stderr) == (0, "")


def error_of(ended: Ended) -> str:
    """The last line on stderr, of which no line is of a traceback."""
    assert "Traceback" not in ended.stderr
    return ended.stderr.splitlines()[-1]


# -- absurd values -------------------------------------------------------------------------------------------------

HUGE = "999999999999999999999"


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--rounds", HUGE],
        ["erase", "RUN", "client-01", "--wait", "nan"],
        ["erase", "RUN", "client-01", "--wait", "inf"],
        ["erase", "RUN", "client-01", "--wait", "-1"],
        ["export", "RUN", "-o", "model", "--average", HUGE],
        ["receipt", "RUN", "client-01", "-o", "receipts", "--round", HUGE],
        ["receipt", "RUN", "client-01", "-o", "receipts", "--round", "-1"],
        ["audit", "RUN", "--client", "client-01", "--worlds", HUGE[:-1] + "8"],
        ["audit", "RUN", "--client", "client-01", "--forgings", HUGE],
        ["audit", "RUN", "--client", "client-01", "--seed", HUGE],
        ["plan", "--clients", "20", "--rounds", HUGE, "--k", "4", "--x", "2"],
        ["plan", "--clients", "20", "--rounds", "3", "--k", "4", "--x", "2", "--simulations", HUGE],
        ["account", "--rounds", HUGE, "--clients", "20", "--k", "4", "--sigma", "1"],
        ["account", "--rounds", "5", "--clients", "20", "--k", "4", "--sigma", "1", "--clip", "1e-320"],
    ],
)
def test_an_absurd_value_is_exit_2_and_nothing_comes_into_being(
    arguments: list[str], run_dir: Path, tmp_path: Path, driver: Driver
) -> None:
    command = [str(run_dir) if word == "RUN" else word for word in arguments]
    ended = driver.run(*command, cwd=tmp_path, keys=tmp_path / "keys")
    assert ended.status == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == [run_dir]


# -- every code is documented --------------------------------------------------------------------------------------


def kinds(kind: type[DisavowError] = DisavowError) -> list[type[DisavowError]]:
    return [kind] + [leaf for child in kind.__subclasses__() for leaf in kinds(child)]


def test_every_exit_code_is_documented() -> None:
    page = (DOCS / "commands.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    codes = {0, cli.INTERNAL, cli.BROKEN_PIPE, cli.INTERRUPTED, *(kind.exit_code for kind in kinds())} | {
        COULD_NOT_SEE
    }
    assert [code for code in sorted(codes) if f"| {code} |" not in page] == []
    drawn = errors.__doc__ or ""
    assert [code for code in sorted(codes) if f" {code} " not in drawn.replace("\n", " ")] == []


def test_every_code_but_that_of_a_refusal_and_of_a_verdict_means_one_thing() -> None:
    declared = Counter(kind.exit_code for kind in kinds() if "exit_code" in kind.__dict__)
    unknown = errors.UnknownClient.exit_code  # a client, or a record
    assert {code for code, count in declared.items() if count > 1} <= {1, 2, unknown}


def test_an_error_is_one_line(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*COMMAND, "status", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=60,
    )
    assert_refused(ended, RunMissing, tmp_path)
