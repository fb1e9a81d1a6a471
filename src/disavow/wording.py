"""What states, verdicts, events and figures are called for people who did not build this, on pages and on paper."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from disavow.domain.verdict import SURVIVORS

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_KIB = 1024

PHASES = {
    "training": "training",
    "rebuilding": "training again what was undone",
    "purging": "beginning a purge",
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

_OF_RECORDS: Mapping[str, str] = {
    "rebuilding": "Rounds were undone, and are trained again without these records.",
    "deleting": "The model is in order; the keys of the records are being deleted.",
    "answered": "The records are erased, and the proof is ready. The client stays, and goes on without them.",
}
"""The sentence of a state where a request is for some records of a client that stays."""

STATE_NAMES: Mapping[str, str] = {
    "waiting": "Waiting",
    "paused": "Paused",
    "rebuilding": "Being erased: training again",
    "deleting": "Being erased: deleting",
    "answered": "Answered",
    "cancelled": "Cancelled",
    "refused": "Refused",
}
"""What the states of requests are called in lists and figures."""

PROMISES: Mapping[str, str] = {
    "paper": "on every contribution, in proportion to how much a group's contributions differ",
    "sensitivity": "on every model, in proportion to the most that one contribution can change it",
    "calibrated": "on every contribution, by a fixed amount that gives differential privacy",
    "none": "none",
    "retrain": "rounds that were undone are trained again, exactly",
    "retrain-from-scratch": "all rounds are trained again, exactly",
    "federaser": "rounds that were undone are rebuilt approximately",
    "fresh": "in secret, anew in every round",
    "seeded": "by a seed: for tests only",
}
"""What the settings behind a run's promises mean; those of strategies of one's own are shown by their name."""

CLAIMS: Mapping[str, str] = {
    "unconditional": "Whatever the groups are",
    "sampled": "If the groups are fixed beforehand",
    "paper": "As the paper claims",
}
"""What each figure of the privacy account is called."""

CHECKS: Mapping[str, str] = {
    "readable": "The file is complete and well-formed.",
    "signature": "It is signed with a key that is trusted.",
    "statement": "It says what it is about, in a version that is known.",
    "checkpoint": "The head of the log in it is signed with the same key.",
    "log": "The log in it is complete and unchanged.",
    "history": "It continues the head of the log that somebody kept.",
    "policy": "The promises are those that the run began with.",
    "rounds": "No round is missing up to the model that is served.",
    "clusters": "The leaver's groups, and who left them, are as recorded.",
    "survivors": "Enough others remain in each of these groups.",
    "spread": "The contributions of each group were alike enough.",
    "bounds": "The figures on what could be told from the model are right.",
    "verdict": "The answer is the one recorded, and was carried out.",
    "opening": "The opening belongs to this proof.",
    "receipts": "The receipts that a client kept agree with the log.",
    "model": "A model that somebody holds is the one that is served.",
    "word": "The client's word that it deleted the records is signed by it.",
    "witnesses": "Witnesses who are trusted have seen the same log.",
    "serving": "The model that the server says it serves is one that the proof is about.",
}
"""What each check of a proof looks at."""

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
    "answered": "Answered: erased, and proof written",
    "purged": "Out of the model: nothing of it is left there",
}

_VERDICTS: Mapping[str | None, str] = {
    "deniable": "Model may stay",
    "never present": "Never took part",
    None: "Not decided yet",
}

LEAVES: Mapping[str, str] = {
    "run": "The run begins: what it promises",
    "round": "Round",
    "rebuilt": "Round",
    "withdrawal": "Clients withdrawn",
    "rollback": "Rounds undone",
    "purge": "Leavers trained out of the model",
    "key": "Another signing key",
}


def state_of(request: Mapping[str, Any]) -> tuple[str, str, str]:
    """Give the class, the name and the meaning of a request's state."""
    awaited = request["state"] == "waiting" and request["approval"] == "awaited"
    kind, name, meaning = STATES["awaiting" if awaited else request["state"]]
    return kind, name, meaning if request["records"] is None else _OF_RECORDS.get(request["state"], meaning)


def subject_of(request: Mapping[str, Any]) -> str:
    """Say what a request is to erase.

    >>> subject_of({"records": None}), subject_of({"records": 1}), subject_of({"records": 12})
    ('the whole client', '1 record', '12 records')
    """
    return "the whole client" if request["records"] is None else count(request["records"], "record", "records")


def count(number: int, one: str, many: str) -> str:
    """Write a number with what is counted.

    >>> count(1, "round", "rounds"), count(1800, "pass", "passes")
    ('1 round', '1,800 passes')
    """
    return f"{number:,} {one if number == 1 else many}"


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


def meaning_of(
    shown: Mapping[str, Any], policy: Mapping[str, Any], *, foreseen: bool = False, records: bool = False
) -> str:
    """Say what a verdict means, in a sentence or two.

    Args:
        shown: A request that was judged, or a forecast.
        policy: What the run promises.
        foreseen: It is a forecast: it would be so.
        records: It is about some records of a client that stays.

    """
    verdict = shown["verdict"]
    if verdict == "never present":
        return "No update of this client ever entered a model of this run. There is nothing to undo."
    if verdict == "deniable":
        verb = "would stay" if foreseen else "stays"
        others = policy["x"]
        return (
            f"The model {verb} as it is. In every round this client stood in a group of at least {policy['k']} "
            f"clients, of whom {_drawn(policy)} drawn by lot and in secret to contribute to the model. In each of "
            f"these groups at least {others} others remain who could have been drawn in its place."
        )
    verb = "would be" if foreseen else "are" if shown.get("state") in ("rebuilding", "deleting") else "were"
    first, cost = shown["rollback_to_round"], shown.get("cost")
    whom = "these records" if records else "this client"
    how = f"{'rebuilt approximately' if shown.get('approximate') else 'trained again'} without {whom}"
    if shown.get("state") == "answered" and cost is not None and not cost["rounds"]:
        how = "not trained again; the model from before them is served"
    return f"{_broken(shown)} All rounds from {first} on {verb} undone and {how}." + (
        "" if first == 1 else f" The rounds before {first} stay: there enough others remain."
    )


def _broken(shown: Mapping[str, Any]) -> str:
    """Say why rounds have to be undone."""
    where = f"In round {shown['first_broken_round']}"
    if shown.get("criterion") in (None, SURVIVORS):
        return f"{where} not enough others remain in this client's group who could have been drawn in its place."
    return f"{where} the condition “{shown['criterion']}” of this run does not hold for this client."


_CLIENT = ("the client's data was", "the client", "it")
_RECORDS = ("the records were", "the records", "them")
"""What is spoken of: a whole client, or records of one that stays."""


def limits_of(
    shown: Mapping[str, Any],
    policy: Mapping[str, Any],
    *,
    drawn: str | None = None,
    exposed: bool = False,
    purge_due: str | None = None,
    releases: str = "The releases say who has some.",
) -> list[str]:
    """Say what a verdict does not promise, the most important first.

    Args:
        shown: A request that was judged, or a forecast.
        policy: What the run promises.
        drawn: The chance that the client was drawn at least once in the rounds that stand, in words.
        exposed: Noise hides nobody: whoever knows the updates of a group can tell who was drawn.
        purge_due: By when the client is to be trained out of the model; None where that is not promised.
        releases: What is known of models that others received.

    """
    limits, first = [], shown["rollback_to_round"] or 0
    data, leaver, it = _CLIENT if shown.get("records") is None else _RECORDS
    purged = shown.get("purged_at") is not None
    chance = "" if drawn is None else f" The chance that its contribution was drawn at least once is {drawn}."
    if shown["verdict"] == "deniable" and not purged:
        limits.append(f"That {data} never used.{chance or ' What the client contributed may have been drawn.'}")
        if purge_due is None:
            done = " It was not." if shown.get("state") == "answered" else ""
            limits.append(f"That the model is trained again without {leaver}.{done}")
    elif shown["verdict"] == "rollback" and first > 1 and not purged:
        limits.append(f"That {data} never used in the rounds before {first}, which stay.{chance}")
    elif shown["verdict"] != "never present":
        limits.append(f"That {data} never used. Models from before may have learned from {it}.")
    if purge_due is not None:
        limits.append(f"That the model is free of {leaver} already. It is to be so by {purge_due}.")
    if exposed:
        limits.append(
            "That nobody can find out who was drawn. Whoever knows what the members of a group contributed can "
            "tell it from the model: the noise in it is too weak to hide it."
        )
    if shown.get("approximate"):
        limits.append("That the model is what training again would have come to. What was rebuilt is approximate.")
    if policy["draws"] == "seeded":
        limits.append("Anything against whoever knows the seed of this run. From it follows who was drawn.")
    if policy["mechanism"] == "federaser":
        limits.append("Anything against whoever has this run's folder. It keeps what the clients contributed.")
    if shown["verdict"] != "never present":
        limits.append(f"That copies of models which others received before are called back. {releases}")
    limits += [
        "That data on the client's own machines is deleted. That is for the client to do."
        if shown.get("records") is None
        else "That the client deleted the records on its own machines. Of that there is the client's word at most.",
        "That the operator is honest. Only the operator knows whether the other members of a group are real, "
        "whether draws were fair, and whether the client was in other rounds. What it recorded cannot be changed "
        "later without being noticed by whoever kept an earlier state of it.",
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
