"""Several groups of a campaign at the same time, each in a process of its own.

A process reads its group from standard input and writes what happens to standard output, one JSON document a line,
at least one after each round: once the process that started it is gone, so is whoever reads, and it ends. Lines of
results are added by the processes themselves, whole, under a lock (`records`), and a group has a lock of its own
(`campaign`): nothing is lost or made twice, whichever process is killed when.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any, TextIO

from pydantic import TypeAdapter

from disavow.config import Settings
from disavow.errors import DisavowError
from disavow.proof.keys import child_environment
from disavow.rounds.threads import cores
from reproduction import campaign, provenance, records
from reproduction.campaign import Observer, Places
from reproduction.grid import Point
from reproduction.lines import Line, Round

_LINE = TypeAdapter(Line)


def run_groups(groups: Sequence[Sequence[Point]], paths: Places, observer: Observer, *, jobs: int) -> None:
    """Make groups, so many at a time, in the order given. What fails in one of them does not stop the others.

    Args:
        groups: Each of one row, network and seed, of one study.
        paths: Where lines and runs go.
        observer: Hears of all of them, one call at a time.
        jobs: Processes at a time.

    Raises:
        DisavowError: Some of them failed, when all others were made.

    """
    found = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]  # wherever this was started
    environment = child_environment(
        {
            "OMP_NUM_THREADS": str(max(1, cores() // jobs)),
            "PYTHONPATH": os.pathsep.join(filter(None, found)),
            provenance.VARIABLE: provenance.commit(),
        }
    )
    running = _Processes(environment)
    lock, failed = threading.Lock(), list[str]()

    def make(group: Sequence[Point]) -> None:
        points = {point.key: point for point in group}
        with running.start(_request(group, paths, jobs)) as said:
            for text in said:
                with lock:
                    _handle(json.loads(text), points, observer, failed)

    pool = ThreadPoolExecutor(jobs)
    try:
        waiting = [pool.submit(make, group) for group in groups]
        for each in waiting:
            each.result()
    finally:  # also when a person interrupts
        running.stop()
        pool.shutdown(cancel_futures=True)
    if failed:
        raise DisavowError(f"{len(failed)} of {len(groups)} groups failed; the others are finished. {failed[0]}")


def _handle(said: dict[str, Any], points: dict[str, Point], observer: Observer, failed: list[str]) -> None:
    """Pass on what a process said."""
    match said["event"]:
        case "began":
            observer.began(points[said["key"]])
        case "executed":
            observer.executed(Round(**said["round"]))
        case "ended":
            observer.ended(points[said["key"]], _LINE.validate_json(said["line"]))
        case "failed":
            failed.append(said["text"])
            observer.noted(said["text"])
        case _:
            observer.noted(said["text"])


class _Processes:
    """The processes that run, to be ended where this one is interrupted."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    @contextmanager
    def start(self, request: str) -> Iterator[Iterator[str]]:
        """Start a process with a request; what it says, line by line."""
        with self._lock:
            if self._stopped:
                yield iter(())
                return
            process = subprocess.Popen(
                [sys.executable, "-m", "reproduction.processes"],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._running.add(process)
        with process:
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("a process was started without its pipes")
            process.stdin.write(request)
            process.stdin.close()
            yield self._said(process, process.stdout)
        with self._lock:
            self._running.discard(process)

    def _said(self, process: subprocess.Popen[str], output: IO[str]) -> Iterator[str]:
        yield from (line for line in output if line.endswith("\n"))
        if process.wait() and not self._stopped:
            text = (
                f"a process of the campaign ended with exit code {process.returncode}; run the same command again"
            )
            yield json.dumps({"event": "failed", "text": text})

    def stop(self) -> None:
        """End all of them, and start no more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()


@dataclass(frozen=True)
class _Request:
    """What a process reads: which runs, and where."""

    points: tuple[dict[str, Any], ...]
    results: str
    workroom: str
    processes: int
    """That work at the same time, this one among them."""


def _request(group: Sequence[Point], paths: Places, processes: int) -> str:
    points = tuple(
        {
            **{each.name: getattr(point, each.name) for each in fields(point)},
            "settings": point.settings.model_dump_json(),
        }
        for point in group
    )
    return json.dumps(asdict(_Request(points, str(paths.results), str(paths.workroom), processes)))


class _Speaker:
    """Writes what happens to standard output; see `Observer`."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def began(self, point: Point) -> None:
        self._say("began", key=point.key)

    def executed(self, done: Round) -> None:
        self._say("executed", round=asdict(done))

    def ended(self, point: Point, line: Line) -> None:
        self._say("ended", key=point.key, line=records.dump(line).decode())

    def noted(self, note: str) -> None:
        self._say("noted", text=note)

    def failed(self, group: Sequence[Point], error: Exception) -> None:
        first = group[0]
        self._say("failed", text=f"{first.row}, {first.network}, seed {first.seed} failed: {error}")

    def _say(self, event: str, **more: Any) -> None:
        self._output.write(json.dumps({"event": event, **more}) + "\n")
        self._output.flush()


def main() -> None:
    """Make the group that standard input names."""
    request = _Request(**json.load(sys.stdin))
    output, sys.stdout = sys.stdout, sys.stderr  # whatever prints does not garble what is said
    speaker = _Speaker(output)
    group = [
        Point(**{**point, "settings": Settings.model_validate_json(point["settings"])}) for point in request.points
    ]
    paths = Places(Path(request.results), Path(request.workroom))
    try:
        campaign.run_group(group, paths, speaker, processes=request.processes)
    except BrokenPipeError:  # nobody listens any more
        sys.exit(1)
    except KeyboardInterrupt:  # a person interrupted all processes at once
        sys.exit(130)
    except (DisavowError, RuntimeError) as error:  # of the second kind is a GPU whose memory is full
        speaker.failed(group, error)


if __name__ == "__main__":
    main()
