"""A process that has imported everything once and forks a real child for each command, so that hundreds can die.

The parent talks to it in lines of JSON: what to run, then whom to wait for. A child is a process like any other: it
has its own pid, its own open files and locks, and dies of SIGKILL. Only the seconds of importing torch are saved.

Run as `python -m tests.kill.erasure_driver`; `Driver` is the parent's side of it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.process import ROOT, environment

IMPATIENT = 120

ALONE = "client-02"
TOGETHER = ("client-03", "client-05", "client-07")
ALL = (ALONE, *TOGETHER)

RECORDED = 21
"""The seed of the task whose clients have records."""

ASKING = ("site-0", "site-1", "site-2", "site-3", "site-4")
"""Whose records are erased; the second of them leaves altogether."""


# -- the parent's side -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """What became of a command: a negative status is the signal that ended it."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Child:
    """A command under way."""

    driver: Driver
    pid: int
    folder: Path

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        os.kill(self.pid, signal.SIGKILL)

    def output(self, name: str = "stderr") -> str:
        """What it has written so far."""
        return (self.folder / name).read_text(encoding="utf-8")

    def wait_for_output(self, text: str, name: str = "stderr") -> None:
        """Return once it has written this text; one that ends without it is an error."""
        while text not in self.output(name):
            assert self.running() or text in self.output(name), self.output()
            time.sleep(0.005)

    def running(self) -> bool:
        """Whether it still runs: one that has ended stays a zombie until it is waited for."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"

    def wait(self) -> Ended:
        """What became of it, once it has ended."""
        status = self.driver.call({"wait": self.pid})["status"]
        out, err = ((self.folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
        shutil.rmtree(self.folder)
        return Ended(status, out, err)


class Driver:
    """The forking process. `tests.cli.forked.driver` is one for all tests of a process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kill.erasure_driver"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def call(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """One line there, one line back."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def start(
        self,
        *command: str | Path,
        keys: Path | None = None,
        cwd: Path | None = None,
        task: str = "disavow",
        **more: int | None,
    ) -> Child:
        """Fork a child that runs a command of `disavow`, or another of the tasks below.

        It finds the environment that a process started from here would find.
        """
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        for name in ("stdout", "stderr"):
            (folder / name).touch()
        task_options = {"task": task, "arguments": [*map(str, command)], "folder": str(folder), **more}
        around = environment(**{"DISAVOW_KEYS": str(keys)} if keys else {})
        pid = self.call({**task_options, "cwd": str(cwd or self._folder), "environment": around})["pid"]
        return Child(self, pid, folder)

    def run(self, *command: str | Path, **more: Any) -> Ended:
        """Run a command to its end."""
        return self.start(*command, **more).wait()

    def warm(self, *modules: str) -> None:
        """Import more than all children need, once, before those that need it are forked."""
        self.call({"import": modules})

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=IMPATIENT)
        self._process.stdout.close()


# -- the forking process -----------------------------------------------------------------------------------------


def serve() -> None:
    """Import what children need, then fork one for each line until there are no more."""
    _warm_up()
    for line in sys.stdin:
        message = json.loads(line)
        if "wait" in message:
            _, status = os.waitpid(message["wait"], 0)
            answer = {"status": os.waitstatus_to_exitcode(status)}
        elif "import" in message:
            _import(message["import"])
            answer = {}
        else:
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                _child(message)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)


def _warm_up() -> None:
    """Only imports: no tensor is touched before a fork, and no thread is running at one."""
    _import(
        (
            *("alembic.command", "sklearn.datasets", "dp_accounting", "typer.rich_utils"),
            *("matplotlib.backends.backend_agg", "matplotlib.figure", "safetensors.numpy"),
            "torch._dynamo",  # the first step of an optimizer of PyTorch imports it, which takes a second
            *("disavow.cli.app", "disavow.cli.run_commands", "disavow.audit.audit", "disavow.federation"),
            *("tests.erasure.mechanisms.contract", "tests.erasure.random_task"),
        )
    )


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or every child that collects garbage copies the pages of all that is imported here


def _child(message: Mapping[str, Any]) -> None:
    """Never returns: whatever happens, the child ends here."""
    status = 1
    try:
        folder = Path(message["folder"])
        for number, name, flags in (
            (0, os.devnull, os.O_RDONLY),
            (1, folder / "stdout", os.O_WRONLY),
            (2, folder / "stderr", os.O_WRONLY),
        ):
            os.dup2(os.open(name, flags, 0o644), number)
        os.environ.clear()
        os.environ.update(message["environment"])
        os.chdir(message["cwd"])
        if message.get("limit"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (message["limit"], message["limit"]))
        if message.get("obey_modes"):
            _obey_modes()
        status = TASKS[message["task"]](message)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _obey_modes() -> None:
    """From now on file modes count for this process, also if it is root's: it gives up all capabilities."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")


def _disavow(message: Mapping[str, Any]) -> int:
    """A command, as the entry point runs it."""
    from disavow.cli import main

    sys.argv = ["disavow", *message["arguments"]]
    main()
    return 0


def _module(message: Mapping[str, Any]) -> int:
    """A module of the repository, as `python -m` runs it: the first argument names it."""
    sys.argv = message["arguments"]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    return 0


def _hold(message: Mapping[str, Any]) -> int:
    """Hold the run and answer nobody, until killed."""
    from disavow.ledger import Ledger

    with Ledger.open(Path(message["arguments"][0]), write=True):
        print("held", flush=True)
        signal.pause()
    return 0


# -- crash points ------------------------------------------------------------------------------------------------


def story(run: Any) -> None:
    """Somebody leaves and is deniable; then three leave together, and it takes a rollback."""
    from tests.erasure.mechanisms.contract import ask

    for leavers in ((ALONE,), TOGETHER):
        ask(run, *leavers)
        run.answer()


def purge_story(run: Any) -> None:
    """Two leave and are deniable; a purge, which is done once; one more leaves."""
    from tests.erasure.mechanisms.contract import ask

    ask(run, ALONE)
    ask(run, TOGETHER[0])
    run.answer()
    if not run.ledger.purges():
        run.purge()
    ask(run, TOGETHER[1])
    run.answer()


def _story(message: Mapping[str, Any]) -> Callable[[Any], None]:
    return purge_story if message.get("purge") else story


def _crash(message: Mapping[str, Any]) -> int:
    """Live the story and die at the given event; without one, live to the end and print what happened."""
    from tests.erasure.mechanisms.contract import reopen_toy

    directory = Path(message["arguments"][0])
    with reopen_toy(directory, keys=directory.with_name("keys")) as run:
        events = _count_events(message.get("die_at"))
        _story(message)(run)
    print(json.dumps(events))
    return 0


def _resume(message: Mapping[str, Any]) -> int:
    """What `disavow resume` does; then whoever had not even asked yet asks."""
    from tests.erasure.mechanisms.contract import reopen_toy

    directory = Path(message["arguments"][0])
    with reopen_toy(directory, keys=directory.with_name("keys")) as run:
        run.train()
        _story(message)(run)
    return 0


def reopen_recorded(directory: Path, **more: Any) -> Any:
    """Open a run whose clients have records."""
    from disavow.federation import Federation
    from tests.erasure.random_task import RandomTask

    return Federation.open(directory, RandomTask(RECORDED), keys=directory.with_name("keys"), **more)


def story_of_records(run: Any) -> None:
    """A record of somebody is erased, which is deniable; then one of each of several, which takes a rollback; then
    somebody leaves altogether beside a request for one of its records.
    """
    from contextlib import suppress

    from disavow.errors import DisavowError
    from disavow.rounds.options import now
    from tests.erasure.random_task import RandomTask

    keys = {client: list(dict.fromkeys(RandomTask(RECORDED).record_keys(client))) for client in ASKING}
    first, second, *rest = ASKING
    steps = (
        [{first: keys[first][:1]}],
        [{first: keys[first][1:2]}, {second: keys[second][:1], **{each: keys[each][:1] for each in rest}}],
        [{second: keys[second][1:2]}, second],
    )
    for step in steps:
        for request in step:
            with suppress(DisavowError):  # it is answered already
                if isinstance(request, str):
                    run.ledger.place_requests([request], at=now())
                else:
                    run.ledger.place_record_requests(request, at=now())
        run.answer()


def _crash_records(message: Mapping[str, Any]) -> int:
    """Live the story of records and die at the given event; without one, print what happened."""
    with reopen_recorded(Path(message["arguments"][0]), write=True) as run:
        events = _count_events(message.get("die_at"))
        run.ledger.keyring.close()  # it is opened again, and watched then
        story_of_records(run)
    print(json.dumps(events))
    return 0


def _resume_records(message: Mapping[str, Any]) -> int:
    """What `disavow resume` does; then whoever had not even asked yet asks."""
    with reopen_recorded(Path(message["arguments"][0]), write=True) as run:
        run.train()
        story_of_records(run)
    return 0


def _count_events(die_at: int | None) -> list[str]:
    """From now on, list every statement, commit, sync, rename, deletion, step of forgetting; die at one of them.

    Statements of the keyring's table are listed like those of the run's, with "keyring" before them.
    """
    import sqlalchemy as sa

    from disavow.ledger import Ledger
    from disavow.ledger.keyring import Keyring
    from disavow.ledger.keyring import table as keyring_table

    events: list[str] = []

    def happens(what: str) -> None:
        events.append(what)
        if len(events) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def first_word(_: Any, __: Any, statement: str, *rest: Any) -> None:
        happens(" ".join(statement.split()[:3]))

    connect = keyring_table.connect

    def connected(*arguments: Any) -> Any:
        connection = connect(*arguments)
        connection.set_trace_callback(lambda statement: happens(" ".join(["keyring", *statement.split()[:2]])))
        return connection

    setattr(keyring_table, "connect", connected)  # noqa: B010
    sa.event.listen(sa.Engine, "before_cursor_execute", first_word)
    sa.event.listen(sa.Engine, "commit", lambda _: happens("commit"))
    functions: Sequence[tuple[Any, str]] = (
        (os, "fsync"),
        (os, "unlink"),
        (os, "replace"),
        (Keyring, "_write_keys"),
        (Keyring, "advance"),
        (Keyring, "settle"),
        (Keyring, "forget"),
        (Ledger, "remove_leftovers"),
    )
    for owner, name in functions:
        setattr(owner, name, _watched(getattr(owner, name), name, happens))
    return events


def _watched(real: Callable[..., Any], name: str, happens: Callable[[str], None]) -> Callable[..., Any]:
    def wrapper(*arguments: Any, **named: Any) -> Any:
        happens(f"before {name}")
        result = real(*arguments, **named)
        happens(f"after {name}")
        return result

    return wrapper


TASKS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "disavow": _disavow,
    "module": _module,
    "hold": _hold,
    "crash": _crash,
    "resume": _resume,
    "crash records": _crash_records,
    "resume records": _resume_records,
}

if __name__ == "__main__":
    serve()
