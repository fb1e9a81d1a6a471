"""What states, verdicts and events are called on pages: plain words, for people who did not build this."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_KIB = 1024

PHASES = {
    "training": "training",
    "rebuilding": "training again what was undone",
    "answering": "answering requests",
    "refused": "cannot go on",
    "idle": "nothing to do",
}
"""What a worker is doing."""

STATES: Mapping[str, tuple[str, str, str]] = {
    "awaiting": ("wait", "Waits for approval", "Somebody with the role approver has to approve it, or refuse it."),
    "waiting": ("wait", "Waits to be answered", "Nothing has been changed yet. A worker answers it next."),
    "paused": ("pause", "Paused", "The identity of who asks is in doubt. The deadline stands still meanwhile."),
    "rebuilding": ("work", "Being erased", "Rounds were undone, and are trained again without this client."),
    "deleting": ("work", "Being erased", "The model is in order; the client's id and key are being deleted."),
    "answered": ("done", "Answered", "The client is forgotten, and the proof is ready."),
    "cancelled": ("closed", "Cancelled", "It was withdrawn before anything was changed. The client may ask again."),
    "refused": ("closed", "Refused", "Nothing was erased. The reason is in the history; the client may ask again."),
}
"""By the state of a request: a class, a name and a sentence."""

EVENTS: Mapping[str, str] = {
    "received": "Received",
    "paused": "Paused: identity in doubt",
    "resumed": "Pause ended",
    "extended": "Deadline extended",
    "approved": "Approved",
    "refused": "Refused",
    "cancelled": "Cancelled",
    "duplicate": "Asked again",
    "not held": "The client holds no such record",
    "judged": "Decided what has to be done",
    "answered": "Answered: client forgotten, proof written",
    "purged": "Last traces trained out of the model",
}

_VERDICTS: Mapping[str | None, str] = {
    "deniable": "Model may stay",
    "never present": "Never took part",
    None: "Not decided yet",
}

LEAVES: Mapping[str, str] = {
    "run": "The run begins: what it promises",
    "round": "A round",
    "rebuilt": "A round, rebuilt approximately",
    "withdrawal": "Clients withdrawn",
    "rollback": "Rounds undone",
    "purge": "Leavers trained out of the model",
    "key": "Another signing key",
}


def state_of(request: Mapping[str, Any]) -> tuple[str, str, str]:
    """Give the class, the name and the meaning of a request's state."""
    awaited = request["state"] == "waiting" and request["approval"] == "awaited"
    return STATES["awaiting" if awaited else request["state"]]


def verdict_of(shown: Mapping[str, Any]) -> str:
    """Say a verdict in a few words.

    >>> verdict_of({"verdict": "rollback", "rollback_to_round": 4})
    'Retrain from round 4'
    >>> verdict_of({"verdict": "rollback", "rollback_to_round": 4, "state": "answered"})
    'Retrained from round 4'
    """
    if shown["verdict"] == "rollback":
        done = shown.get("state") == "answered"
        return f"{'Retrained' if done else 'Retrain'} from round {shown['rollback_to_round']}"
    return _VERDICTS[shown["verdict"]]


def meaning_of(shown: Mapping[str, Any], policy: Mapping[str, Any], *, foreseen: bool = False) -> str:
    """Say what a verdict means, in a sentence or two.

    Args:
        shown: A request that was judged, or a forecast.
        policy: What the run promises.
        foreseen: It is a forecast: it would be so.

    """
    verdict = shown["verdict"]
    if verdict == "never present":
        return "No update of this client ever entered a model of this run. There is nothing to undo."
    if verdict == "deniable":
        verb = "would stay" if foreseen else "stays"
        others = policy["x"]
        return (
            f"The model {verb} as it is. In every round this client stood in a group of at least {policy['k']} "
            f"clients, of whom {_drawn(policy)} drawn in secret. In each of these groups at least {others} others "
            "remain who could have been drawn in its place, so nobody can tell from the model whether this client "
            "was."
        )
    verb = "would be" if foreseen else "are" if shown.get("state") in ("rebuilding", "deleting") else "were"
    first = shown["rollback_to_round"]
    how = "rebuilt approximately" if shown.get("approximate") else "trained again"
    return (
        f"Too few others remain in this client's group in round {shown['first_broken_round']}. All rounds from "
        f"{first} on {verb} undone and {how} without this client."
        + ("" if first == 1 else f" The rounds before {first} stay: there enough others remain.")
    )


def limits_of(shown: Mapping[str, Any], policy: Mapping[str, Any]) -> list[str]:
    """Say what a verdict does not promise."""
    limits = []
    if shown["verdict"] != "never present":
        limits.append("Copies of models that were given to others before are not called back: see the releases.")
    if shown["verdict"] == "deniable":
        limits.insert(0, "It does not say that the client's data was not used: only that nobody can tell.")
    if shown["verdict"] == "rollback" and (shown["rollback_to_round"] or 0) > 1:
        limits.insert(
            0,
            "In the rounds before, it does not say that the client's data was not used: only that nobody can tell.",
        )
    if shown.get("approximate"):
        limits.append("What was rebuilt is an approximation, and not what training again would have come to.")
    if policy["draws"] == "seeded":
        limits.append("The draws of this run follow from a seed. Nothing is deniable to whoever knows the seed.")
    if policy["mechanism"] == "federaser":
        limits.append("This run keeps what its clients returned. Nothing is deniable to whoever has its folder.")
    limits += [
        "Data that the client holds on its own machines is not touched: that is for the client to delete.",
        "That the other members of a group are real, and that draws were honest, is on the operator's word. What "
        "was recorded cannot be changed afterwards without its being seen.",
    ]
    return limits


def _drawn(policy: Mapping[str, Any]) -> str:
    return "one was" if policy["representatives"] == 1 else f"{policy['representatives']} were"


# -- figures -------------------------------------------------------------------------------------------------------


def moment(value: str | float | None) -> str:
    """Write a moment as people do, in UTC.

    >>> moment("2027-02-28T09:00:00+00:00")
    '28 Feb 2027, 09:00 UTC'
    """
    return "–" if value is None else f"{_at(value):%-d %b %Y, %H:%M} UTC"


def day(value: str | float | None) -> str:
    """Write the day of a moment, in UTC."""
    return "–" if value is None else f"{_at(value):%-d %b %Y}"


def days(left: float | None) -> str:
    """Say how long there is.

    >>> days(12.7), days(1.2), days(0.3), days(-2.5)
    ('12 days left', '1 day left', 'due today', 'overdue by 3 days')
    """
    if left is None:
        return "–"
    if left < 0:
        late = int(-left) + 1
        return f"overdue by {late} day{'' if late == 1 else 's'}"
    whole = int(left)
    return "due today" if whole == 0 else f"{whole} day{'' if whole == 1 else 's'} left"


def duration(seconds: float | None) -> str:
    """Write how long something takes.

    >>> duration(0.31), duration(75), duration(7500)
    ('0.3 s', '1 min 15 s', '2 h 5 min')
    """
    if seconds is None:
        return "–"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{int(seconds) // _MINUTE} min {int(seconds) % _MINUTE} s"
    if seconds < _DAY:
        return f"{int(seconds) // _HOUR} h {int(seconds) % _HOUR // _MINUTE} min"
    return f"{int(seconds) // _DAY} d {int(seconds) % _DAY // _HOUR} h"


def number(value: float | None, digits: int = 0) -> str:
    """Write a number with separators; a dash for none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def size(count: int | None) -> str:
    """Write a number of bytes.

    >>> size(512), size(3 << 20)
    ('512 B', '3.0 MiB')
    """
    if count is None:
        return "–"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIB or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    raise AssertionError("unreachable")


def _at(value: str | float) -> datetime:
    if isinstance(value, str):
        return datetime.fromisoformat(value).astimezone(UTC)
    return datetime.fromtimestamp(value, UTC)
