"""Interleaved passes: each contestant once, then each once more, so that a slow minute does not hit only one.

Every contestant is a process of its own, started anew for each pass and alone on the machine while it runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LAST_LINES = 15
_HOURS = 2
_GRACE_SECONDS = 20
_LOOK_SECONDS = 0.5
_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Contestant:
    """Whose rounds are timed, and how it is started."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    ours: bool


@dataclass(frozen=True)
class Pass:
    """One process of one contestant: the seconds of its rounds, or why there are none."""

    contestant: str
    number: int
    others: float | None
    """Cores that others kept busy just before it began; `None` where the system does not say."""
    seconds: tuple[float, ...] = ()
    accuracy: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None


OnPass = Callable[[Pass], None]
OnStart = Callable[[Contestant, int], None]


def interleaved(
    contestants: Sequence[Contestant],
    passes: int,
    *,
    on_start: OnStart = lambda contestant, number: None,
    on_pass: OnPass = lambda done: None,
) -> list[Pass]:
    """Run all passes. A contestant that fails is not tried again, and does not stop the others."""
    done: list[Pass] = []
    failed: set[str] = set()
    for number in range(1, passes + 1):
        for contestant in contestants:
            if contestant.name in failed:
                continue
            on_start(contestant, number)
            done.append(run_once(contestant, number))
            if done[-1].failure is not None:
                failed.add(contestant.name)
            on_pass(done[-1])
    return done


def run_once(contestant: Contestant, number: int, *, seconds: float = 3600 * _HOURS) -> Pass:
    """One pass of one contestant."""
    others = busy_cores()
    process = subprocess.Popen(
        contestant.command,
        env=dict(contestant.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # so that it ends with all that it started
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return Pass(contestant.name, number, others, failure=f"no answer within {seconds:.0f} s")
    except BaseException:
        _end(process)
        raise
    answer = _answer(out)
    if process.returncode != 0 or answer is None:
        failure = f"exit status {process.returncode}\n{_last(err or out)}"
        return Pass(contestant.name, number, others, failure=failure)
    return Pass(
        contestant.name,
        number,
        others,
        seconds=tuple(answer["seconds"]),
        accuracy=answer["accuracy"],
        versions=answer["versions"],
    )


def busy_cores(seconds: float = _LOOK_SECONDS) -> float | None:
    """How many cores are at work while this looks on; what it does not start itself is somebody else's."""
    if not _STAT.is_file():
        return None
    before = _ticks_at_work()
    time.sleep(seconds)
    return max(0.0, (_ticks_at_work() - before) / os.sysconf("SC_CLK_TCK") / seconds)


def _ticks_at_work() -> int:
    """Of all cores together: user, nice, system, interrupts, and what other guests of the host took away."""
    user, nice, system, _idle, _waiting, *more = map(int, _STAT.read_text().splitlines()[0].split()[1:])
    return user + nice + system + sum(more[:3])


def _end(process: subprocess.Popen[str]) -> None:
    """End a contestant: asked first, because a launcher puts its workers out of our reach and ends them itself."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.communicate(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _answer(out: str) -> dict[str, Any] | None:
    """The last line that is an answer; frameworks may print lines of their own around it."""
    for line in reversed(out.splitlines()):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict) and {"seconds", "accuracy", "versions"} <= document.keys():
            return document
    return None


def _last(text: str) -> str:
    return "\n".join([line for line in text.splitlines() if line.strip()][-_LAST_LINES:])
