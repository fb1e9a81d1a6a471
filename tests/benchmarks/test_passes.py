"""Passes: who runs when, what is made of what it prints, and what happens when it fails."""

from __future__ import annotations

import os
import sys
import time

import pytest

from benchmarks.engines.passes import Contestant, Pass, busy_cores, interleaved, run_once

ANSWER = """print('{"seconds": [1.5, 2.5], "accuracy": 0.75, "versions": {"it": "1"}}')"""


def contestant(code: str, name: str = "it") -> Contestant:
    return Contestant(name, (sys.executable, "-c", code), dict(os.environ), ours=False)


def test_the_answer_is_found_among_what_frameworks_print() -> None:
    done = run_once(contestant(f"print('hello'); print('[1]'); {ANSWER}; print('{{}}'); print('bye')"), 3)
    assert (done.contestant, done.number, done.failure) == ("it", 3, None)
    assert (done.seconds, done.accuracy, done.versions) == ((1.5, 2.5), 0.75, {"it": "1"})


def test_a_failure_is_told_with_the_last_lines_of_stderr() -> None:
    code = "import sys\nfor i in range(40): print('line', i, file=sys.stderr)\nsys.exit(3)"
    done = run_once(contestant(code), 1)
    assert done.failure is not None
    lines = done.failure.splitlines()
    assert lines[0] == "exit status 3"
    assert lines[1:] == [f"line {i}" for i in range(25, 40)]
    assert done.seconds == ()


@pytest.mark.parametrize("code", [f"{ANSWER}; raise SystemExit(1)", "print('no answer')", "pass"])
def test_no_answer_or_a_bad_end_is_a_failure(code: str) -> None:
    assert run_once(contestant(code), 1).failure is not None


def test_a_contestant_that_hangs_ends_with_all_that_it_started() -> None:
    child = "import time; time.sleep(600)"
    # stdout of the child is ours: communicate() would wait for it, were it to live on
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    before = time.monotonic()
    done = run_once(contestant(code), 1, seconds=1)
    assert done.failure == "no answer within 1 s"
    assert time.monotonic() - before < 60


def test_a_contestant_that_does_not_want_to_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.engines.passes._GRACE_SECONDS", 0.5)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    assert run_once(contestant(code), 1, seconds=2).failure == "no answer within 2 s"


def test_passes_take_turns_and_a_failure_stops_nobody_else() -> None:
    started: list[tuple[str, int]] = []
    ended: list[Pass] = []
    two = [contestant("raise SystemExit('broken')", "bad"), contestant(ANSWER, "good")]
    done = interleaved(
        two, 2, on_start=lambda one, number: started.append((one.name, number)), on_pass=ended.append
    )
    assert started == [("bad", 1), ("good", 1), ("good", 2)]
    assert ended == done
    assert [one.failure is None for one in done] == [False, True, True]
    assert done[0].failure == "exit status 1\nbroken"


def test_busy_cores_are_counted_where_the_system_tells() -> None:
    busy = busy_cores(0.05)
    assert busy is None or busy >= 0
