"""A watch keeps the newest head, and raises the alarm for a log that forks, shrinks or stands still."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from disavow.errors import ConfigError, LogShrunk, LogStale, LogUnreachable, SplitView, VerificationError
from disavow.monitor.sources import LogSource
from disavow.monitor.watch import Alarm, InFile, InMemory, State, look, watch
from disavow.proof.notes import KeyIndex
from tests.monitor.logs import TRUSTED, Heard, WorldLog, forked
from tests.proof.made_proofs import STRANGER

START = 1_800_000_000.0


def seen(log: LogSource, state: State, *, now: float = START, max_age: float | None = None) -> Alarm | None:
    return look(log, TRUSTED, state, Heard(), max_age=max_age, now=now)


@pytest.fixture(params=["memory", "file"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> State:
    return InMemory() if request.param == "memory" else InFile(tmp_path / "head.json")


def test_a_log_that_grows_is_no_alarm_and_its_newest_head_is_kept(state: State) -> None:
    world, _ = forked(4)
    for size in (1, 2, 2, 5, 9):
        assert seen(WorldLog(world, size), state) is None
    kept = state.load(KeyIndex.of(TRUSTED))
    assert kept is not None
    assert kept.head.size == 9


@pytest.mark.parametrize(("before", "after"), [(6, 6), (6, 9), (5, 8), (9, 9)])
def test_a_fork_is_an_alarm_each_time_until_somebody_looks_into_it(state: State, before: int, after: int) -> None:
    one, other = forked(4)
    assert seen(WorldLog(one, before), state) is None
    for _ in range(2):
        alarm = seen(WorldLog(other, after), state)
        assert alarm is not None
        assert isinstance(alarm.failure, SplitView)
        assert alarm.seen is not None
        assert (alarm.seen.note, alarm.given) == (one.checkpoint(before), other.checkpoint(after))
    assert seen(WorldLog(one, before), state) is None


def test_a_fork_behind_the_newest_head_is_a_growing_log(state: State) -> None:
    one, other = forked(4)
    assert seen(WorldLog(one, 4), state) is None
    assert seen(WorldLog(other), state) is None


def test_a_shrunken_log_is_an_alarm(state: State) -> None:
    world, _ = forked(4)
    seen(WorldLog(world, 7), state)
    alarm = seen(WorldLog(world, 5), state)
    assert alarm is not None
    assert isinstance(alarm.failure, LogShrunk)


def test_a_head_that_no_trusted_key_signed_is_an_alarm(state: State) -> None:
    world, _ = forked(4)
    seen(WorldLog(world, 5), state)
    world.signer = STRANGER
    alarm = seen(WorldLog(world), state)
    assert alarm is not None
    assert type(alarm.failure) is VerificationError


def test_a_log_that_gives_no_proof_is_a_fork(state: State) -> None:
    world, _ = forked(4)

    class Silent(WorldLog):
        def consistency(self, old: int, new: int) -> list[bytes]:
            return []

    seen(Silent(world, 5), state)
    alarm = seen(Silent(world, 7), state)
    assert alarm is not None
    assert isinstance(alarm.failure, SplitView)


def test_a_head_grows_old_from_when_it_was_first_seen(state: State) -> None:
    world, _ = forked(4)
    assert seen(WorldLog(world, 5), state, max_age=60) is None
    assert seen(WorldLog(world, 5), state, max_age=60, now=START + 60) is None
    assert seen(WorldLog(world, 6), state, max_age=60, now=START + 61) is None
    assert seen(WorldLog(world, 6), state, max_age=60, now=START + 121) is None
    alarm = seen(WorldLog(world, 6), state, max_age=60, now=START + 122)
    assert alarm is not None
    assert isinstance(alarm.failure, LogStale)


def test_a_log_that_does_not_answer_is_asked_again_and_grows_old(state: State) -> None:
    world, _ = forked(4)
    log, heard, time = Flaky(world), Heard(), [START]

    def sleep(seconds: float) -> None:
        time[0] += seconds

    alarm = watch(log, lambda: TRUSTED, state, heard, every=10, max_age=25, clock=lambda: time[0], sleep=sleep)
    assert alarm is not None
    assert isinstance(alarm.failure, LogStale)
    assert heard.heads == [9]
    assert heard.unreachable == 3
    with pytest.raises(LogUnreachable):
        watch(log, lambda: TRUSTED, state, heard, every=1, once=True)


class Flaky(WorldLog):
    """Answers once."""

    answers = 1

    def head(self) -> str:
        self.answers -= 1
        if self.answers < 0:
            raise LogUnreachable("gone")
        return super().head()


def test_the_state_is_for_its_owner_alone_and_replaced_whole(tmp_path: Path) -> None:
    world, _ = forked(4)
    path = tmp_path / "head.json"
    seen(WorldLog(world, 5), InFile(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["checkpoint"] == world.checkpoint(5)
    seen(WorldLog(world, 6), InFile(path))
    assert [each.name for each in tmp_path.iterdir()] == ["head.json"]


@pytest.mark.parametrize(
    "damage",
    [lambda text: "", lambda text: text[:-20], lambda text: "[]", lambda text: text.replace("\\n9\\n", "\\n8\\n")],
)
def test_a_state_that_is_damaged_is_refused_and_not_begun_anew(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    world, _ = forked(4)
    path = tmp_path / "head.json"
    seen(WorldLog(world), InFile(path))
    path.write_text(damage(path.read_text()))
    with pytest.raises(ConfigError):
        seen(WorldLog(world), InFile(path))
