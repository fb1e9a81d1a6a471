"""`disavow watch`: the head of a log, again and again, and an alarm."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path

import typer

from disavow.cli.gossip import TOKEN, secret_in
from disavow.cli.output import results
from disavow.domain import escaped
from disavow.errors import ConfigError, LogUnreachable
from disavow.monitor import watch as monitor
from disavow.monitor import webhooks
from disavow.monitor.sources import source_of
from disavow.monitor.watch import Alarm, InFile, InMemory, SeenHead
from disavow.proof.keys import trusted_keys
from disavow.proof.validation import to_base64

SECRET = "DISAVOW_WEBHOOK_SECRET"  # noqa: S105 - the name of the variable


def watch(
    log: str,
    *,
    key: Path,
    every: float,
    state: Path | None,
    max_age: float | None,
    once: bool,
    webhook: str | None,
    webhook_secret_file: Path | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Watch a log; end with the code of what is wrong with it."""
    if once and max_age is not None and state is None:
        raise ConfigError("--max-age with --once needs --state: one look does not tell how old a head is")
    if max_age is not None and math.isnan(max_age):
        raise ConfigError("--max-age is nan; allowed: a number of seconds")
    if state is not None and not state.parent.is_dir():
        raise ConfigError(f"--state is {state}; allowed: a file in a folder that exists")
    if webhook is not None:
        webhooks.check_webhook(webhook)
    secret = secret_in(webhook_secret_file, SECRET)
    trusted_keys(key)  # what cannot be read is said now, and not at the first look
    alarm = monitor.watch(
        source_of(log, secret_in(token_file, TOKEN)),
        lambda: trusted_keys(key),
        InMemory() if state is None else InFile(state),
        _Printed(as_json=as_json),
        every=every,
        max_age=max_age,
        once=once,
    )
    if alarm is not None:
        _raise(alarm, webhook, secret, as_json=as_json)


def _raise(alarm: Alarm, webhook: str | None, secret: str | None, *, as_json: bool) -> None:
    """Say what is wrong, and send it."""
    event = {**alarm.to_json(), "at": _now()}
    if as_json:
        _line(event)
    else:
        print(f"ALARM {alarm.failure.code}: {escaped(alarm.log)}: {escaped(str(alarm.failure))}", file=sys.stderr)
        if alarm.seen is not None and alarm.seen.note != alarm.given:
            results().print(f"The head before, which the server signed:\n\n{alarm.seen.note}")
            results().print(f"The head now:\n\n{escaped_note(alarm.given)}")
    if webhook is not None:
        failure = webhooks.send(webhook, json.dumps(event).encode(), secret=secret)
        if failure is not None:
            print(f"the webhook did not take the alarm: {escaped(failure)}", file=sys.stderr)
    raise typer.Exit(alarm.failure.exit_code)


def escaped_note(note: str) -> str:
    """A note as a terminal may show it, line by line."""
    return "\n".join(escaped(line) for line in note.split("\n"))


class _Printed:
    """Prints a line for each new head."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def on_head(self, seen: SeenHead, before: SeenHead | None) -> None:
        """A head was seen that is new."""
        root = to_base64(seen.head.root)
        if self._as_json:
            _line({"event": "head", "at": _now(), "size": seen.head.size, "root": root, "checkpoint": seen.note})
            return
        after = "the first that was seen" if before is None else f"goes on from {before.head.size}"
        results().print(f"{_now()}  head of {seen.head.size} leaves ({root[:16]}), {after}")

    def on_unreachable(self, reason: LogUnreachable) -> None:
        """The log could not be asked."""
        if self._as_json:
            _line({"event": "unreachable", "at": _now(), "code": reason.code, "reason": str(reason)})
            return
        print(f"{_now()}  {escaped(str(reason))}; it is asked again", file=sys.stderr, flush=True)


def _line(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
