"""Watch one log: each new head must be signed and go on from the last one that was seen."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from disavow.durable_files import write_into
from disavow.errors import ConfigError, LogShrunk, LogStale, LogUnreachable, SplitView, VerificationError
from disavow.monitor.gossip import extends
from disavow.monitor.sources import LogSource
from disavow.proof.notes import Checkpoint, KeyIndex, TrustedKey, open_with_any
from disavow.proof.validation import to_base64

STATE_TYPE = "disavow/watch/v1"
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class SeenHead:
    """The newest head that was seen.

    Args:
        note: The checkpoint, as the log signed it.
        head: What it says.
        since: When it was first seen, in seconds since 1970.

    """

    note: str
    head: Checkpoint
    since: float


class State(Protocol):
    """Where the newest head is kept from one look to the next."""

    def load(self, keys: KeyIndex) -> SeenHead | None:
        """Give the head that was kept; None before the first."""
        ...

    def keep(self, seen: SeenHead) -> None:
        """Keep a head in place of the one before."""
        ...


class InMemory:
    """Keeps the newest head for as long as the process runs."""

    def __init__(self) -> None:
        self._seen: SeenHead | None = None

    def load(self, keys: KeyIndex) -> SeenHead | None:  # noqa: ARG002
        """Give the head that was kept; None before the first."""
        return self._seen

    def keep(self, seen: SeenHead) -> None:
        """Keep a head in place of the one before."""
        self._seen = seen


class InFile:
    """Keeps the newest head in a file: after a crash it is there whole, the old one or the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, keys: KeyIndex) -> SeenHead | None:
        """Read the head that was kept; None where there is no file yet.

        Raises:
            ConfigError: The file is none of ours, or damaged.

        """
        try:
            with self._path.open("rb") as file:
                data = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return None
        try:
            kept = json.loads(data)
            if kept["type"] != STATE_TYPE:
                raise ValueError
            note, since = str(kept["checkpoint"]), datetime.fromisoformat(kept["since"]).timestamp()
            return SeenHead(note, open_with_any(note, keys, "the checkpoint", cosigned=True), since)
        except (ValueError, KeyError, TypeError, VerificationError):
            raise ConfigError(
                f"{self._path} holds no head that `disavow watch` kept under these keys; allowed: a file of its own"
            ) from None

    def keep(self, seen: SeenHead) -> None:
        """Write the head, durably."""
        since = datetime.fromtimestamp(seen.since, UTC).isoformat(timespec="microseconds")
        data = json.dumps({"type": STATE_TYPE, "checkpoint": seen.note, "since": since}, indent=1).encode()
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            write_into(folder, self._path.name, data, mode=0o600)
        finally:
            os.close(folder)


@dataclass(frozen=True)
class Alarm:
    """What is wrong with a log, and the signed heads that show it.

    Args:
        failure: What is wrong, as the error that the command ends with.
        log: What the log is called.
        seen: The newest head before; None where there was none.
        given: The checkpoint that the log gives now.

    """

    failure: VerificationError
    log: str
    seen: SeenHead | None
    given: str

    def to_json(self) -> dict[str, object]:
        """Write it as events have it."""
        return {
            "event": "alarm",
            "code": self.failure.code,
            "exit_code": self.failure.exit_code,
            "reason": str(self.failure),
            "log": self.log,
            "seen": None if self.seen is None else self.seen.note,
            "given": self.given,
        }


class Watcher(Protocol):
    """Hears what a watch sees."""

    def on_head(self, seen: SeenHead, before: SeenHead | None) -> None:
        """A head was seen that is new."""
        ...

    def on_unreachable(self, reason: LogUnreachable) -> None:
        """The log could not be asked."""
        ...


def watch(
    log: LogSource,
    trusted: Callable[[], Sequence[TrustedKey]],
    state: State,
    watcher: Watcher,
    *,
    every: float,
    max_age: float | None = None,
    once: bool = False,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Alarm | None:
    """Look at a log again and again, until something is wrong with it.

    Args:
        log: The log.
        trusted: Gives the keys of which one must have signed; asked each time, because a list of keys grows.
        state: Where the newest head is kept.
        watcher: Hears what is seen.
        every: Seconds between two looks.
        max_age: After how many seconds without a new head it is an alarm; None for never.
        once: Whether to look only once.
        clock: Tells the time in seconds since 1970.
        sleep: Waits.

    Returns:
        What is wrong; None where it was looked at once, and nothing is.

    Raises:
        LogUnreachable: With `once`, the log could not be asked.

    """
    while True:
        try:
            alarm = look(log, trusted(), state, watcher, max_age=max_age, now=clock())
        except LogUnreachable as reason:
            if once:
                raise
            watcher.on_unreachable(reason)
            alarm = _stale_unseen(log, trusted(), state, max_age, clock())
        if alarm is not None or once:
            return alarm
        sleep(every)


def look(
    log: LogSource,
    trusted: Sequence[TrustedKey],
    state: State,
    watcher: Watcher,
    *,
    max_age: float | None,
    now: float,
) -> Alarm | None:
    """Look at a log once, and keep its head where it goes on from the one before.

    Args:
        log: The log.
        trusted: The keys of which one must have signed.
        state: Where the newest head is kept; after an alarm, the one before stays there.
        watcher: Hears of a new head.
        max_age: After how many seconds without a new head it is an alarm; None for never.
        now: The time in seconds since 1970.

    Raises:
        LogUnreachable: It could not be asked.

    """
    keys = KeyIndex.of(trusted)
    before, note = state.load(keys), log.head()
    try:
        head = open_with_any(note, keys, "the head", cosigned=True)
        if before is not None:
            _check_goes_on(log, before.head, head)
    except VerificationError as failure:
        return Alarm(failure, log.name, before, note)
    if before is None or head != before.head:
        seen = SeenHead(note, head, now)
        state.keep(seen)
        watcher.on_head(seen, before)
        return None
    return _stale(log, before, max_age, now)


def _check_goes_on(log: LogSource, before: Checkpoint, head: Checkpoint) -> None:
    """The log is the same one, has at least as many leaves, and begins with those it had."""
    if head.origin != before.origin:
        raise SplitView(f"it gives the head of another log, {head.origin}, and was {before.origin}")
    if head.size < before.size:
        raise LogShrunk(f"it had {before.size} leaves and has {head.size} now: history was taken back")
    if head.size == before.size and head.root != before.root:
        raise SplitView(f"two heads of {head.size} leaves have other roots: {_roots(before, head)}")
    if not extends(log, before, head):
        raise SplitView(
            f"its head of {head.size} leaves does not go on from that of {before.size}: {_roots(before, head)}"
        )


def _roots(before: Checkpoint, head: Checkpoint) -> str:
    return f"{to_base64(before.root)} before, {to_base64(head.root)} now"


def _stale(log: LogSource, seen: SeenHead, max_age: float | None, now: float) -> Alarm | None:
    if max_age is None or now - seen.since <= max_age:
        return None
    since = datetime.fromtimestamp(seen.since, UTC).isoformat(timespec="seconds")
    return Alarm(
        LogStale(f"no new head since {since}: it still has {seen.head.size} leaves"), log.name, seen, seen.note
    )


def _stale_unseen(
    log: LogSource, trusted: Sequence[TrustedKey], state: State, max_age: float | None, now: float
) -> Alarm | None:
    """A log that does not answer grows old, too."""
    seen = state.load(KeyIndex.of(trusted))
    return None if seen is None else _stale(log, seen, max_age, now)
