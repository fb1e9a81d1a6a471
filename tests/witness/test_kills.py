"""However often a witness is killed, it never cosigns two heads of which neither extends the other.

A server that wants two histories cosigned asks for one or the other after each kill. The witness is killed at every
system call with which it writes its state, or at any instant.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from disavow.errors import WitnessError
from disavow.proof.cosignatures import Cosignature
from disavow.proof.notes import read_note
from tests.witness.logs import LOG, WITNESS, MadeLog, Serving, process, witness_at

Cosigned = list[MadeLog]


def refuse_two_histories(cosigned: Cosigned) -> None:
    """Of any two heads that were cosigned, the smaller is a beginning of the larger."""
    for one in cosigned:
        for other in cosigned:
            size = min(len(one.leaves), len(other.leaves))
            assert one.leaves[:size] == other.leaves[:size]


class TwoHistories:
    """A server that goes on with whichever of two histories the witness has cosigned last, or with the other."""

    def __init__(self, seed: int, state: Path) -> None:
        self.source, self.state = random.Random(seed), state
        self.stories = [MadeLog().grown(1), MadeLog().grown(1)]
        self.cosigned: Cosigned = []
        self.shown: dict[bytes, MadeLog] = {}

    def next(self) -> MadeLog:
        """One of them, longer by a few leaves, or as it was."""
        which = self.source.randrange(2)
        if self.source.random() < 0.8:  # go on from what the witness has seen or cosigned last, or fork there
            seen = [self.shown[read_note(each.read_text(), "", cosigned=True).head.root] for each in self._kept()]
            self.stories[which] = self.source.choice([*seen, *self.cosigned[-1:], self.stories[which]])
        log = self.stories[which].grown(self.source.randrange(4), f"story {which} {self.source.random()}")
        self.stories[which] = self.shown[log.head.root] = log
        return log

    def _kept(self) -> list[Path]:
        """The witness's file, which this server can look at: nobody guesses better what to ask for."""
        return list(self.state.glob("*.txt"))


def killed_at(call: int, work: Callable[[], object]) -> tuple[bool, int]:
    """Do some work in a child that ends, without any further step, at the call of this number that writes state.

    Whether it got to its end, and how many such calls there were.
    """
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        count = 0

        def counted(original: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any, **kwargs: Any) -> Any:
                nonlocal count
                count += 1
                if count == call:
                    os._exit(9)
                return original(*args, **kwargs)

            return called

        for name in ("open", "fsync", "replace"):
            setattr(os, name, counted(getattr(os, name)))
        work()
        os.write(writing, b"%d" % count)
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as file:
        counted_calls = file.read()
    return os.waitstatus_to_exitcode(status) == 0, int(counted_calls or b"0")


@pytest.mark.kill
@pytest.mark.parametrize("rounds", [40, pytest.param(1_000, marks=pytest.mark.torture)])
def test_killed_at_every_write_it_never_cosigns_two_histories(rounds: int, tmp_path: Path) -> None:
    server, answers = TwoHistories(rounds, tmp_path / "seen"), tmp_path / "answers"
    reached, calls = set(), 1
    for number in range(rounds):
        log, call = server.next(), number % (calls + 2)

        def ask(log: MadeLog = log) -> None:
            witness, _ = witness_at(tmp_path / "seen")
            answer = witness.add_checkpoint(log.request(0))
            if answer.status == 409 and int(answer.body) <= len(log.leaves):
                answer = witness.add_checkpoint(log.request(int(answer.body)))
            if answer.status == 200:  # given out: from here on somebody has it
                answers.write_text(answer.body)

        ended, found = killed_at(call, ask)
        calls = max(calls, found)
        reached.add((call, ended))
        if answers.exists():
            assert Cosignature.parse(answers.read_text()[:-1]).holds(WITNESS.public, log.head)
            answers.unlink()
            server.cosigned.append(log)
    refuse_two_histories(server.cosigned)
    assert len(server.cosigned) > rounds // 8
    assert {call for call, ended in reached if not ended} >= set(range(1, 7))


@contextmanager
def killing(pid: int, seconds: float) -> Iterator[None]:
    """Kill a process so long after now, while something else goes on."""

    def kill() -> None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def ask_until_it_dies(serving: Serving, server: TwoHistories) -> None:
    client = serving.client
    for _ in range(1_000):
        log = server.next()
        try:
            found = client.cosign(log.note, known=0, consistency=log.proof, timeout=10)
        except WitnessError as error:
            if "HTTP" not in str(error) and "refuses" not in str(error):
                return
        else:
            assert found.holds(client.key, log.head)
            server.cosigned.append(log)


@pytest.mark.kill
@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=[pytest.mark.torture, pytest.mark.timeout(3_600)])])
def test_killed_at_any_instant_the_command_never_cosigns_two_histories(kills: int, tmp_path: Path) -> None:
    server = TwoHistories(kills, tmp_path / "witness")
    for number in range(kills):
        with process(tmp_path, str(LOG.public)) as (serving, started):
            seconds = random.Random(number).uniform(0.01, 0.3)
            with killing(started.pid, seconds):
                ask_until_it_dies(serving, server)
    refuse_two_histories(server.cosigned[-200:])
    for one, other in zip(server.cosigned, server.cosigned[1:], strict=False):
        refuse_two_histories([one, other])
    assert len(server.cosigned) > kills
