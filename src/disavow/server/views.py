"""What REST and pages show, as values that JSON can hold. Clients are named only to whoever may see them.

One function for each thing to look at, called by `api` and by `pages`, so that a page and its `.json` say the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from disavow.domain import Deadline, ErasureRequest, RequestState
from disavow.errors import BadRequest, MissingExtra, how_to_install
from disavow.federation import Federation
from disavow.proof.merkle import consistency_of, path_to
from disavow.results import Prospect, PurgeOutlook
from disavow.server import access
from disavow.server.access import Identity
from disavow.server.open_runs import OpenRuns, request_id
from disavow.server.state import State

View = dict[str, Any]

_DAY_SECONDS = 86_400.0
_AT_ONCE = 50
_MOST_CLUSTERS = 20_000
"""With more clusters than these, the weakest is looked for only among the rounds that are shown."""

_OPEN = (RequestState.WAITING, RequestState.PAUSED, RequestState.REBUILDING, RequestState.DELETING)


def overview(runs: OpenRuns, state: State, identity: Identity) -> View:
    """Show every run in a few figures, and what waits."""
    names = [name for name in runs.names() if identity.may_use(name)]
    return {"runs": [run_in_short(name, runs.federation(name), state) for name in names], "at": now_text()}


def run_in_short(name: str, federation: Federation, state: State) -> View:
    """Show a run in a few figures."""
    ledger = federation.ledger
    counts = ledger.request_counts()
    return {
        "run": name,
        "run_id": ledger.run_id,
        "created_at": ledger.created_at.isoformat(),
        "clients": ledger.count_clients(),
        "rounds": ledger.last_round,
        "rounds_wanted": federation.settings.rounds,
        "requests": {state.value: count for state, count in counts.items()},
        "days_to_deadline": days_to_deadline(federation),
        "unpurged": len(ledger.unpurged().rounds),
        "unsettled": federation.unsettled().to_json(),
        "log": {"leaves": ledger.log_length(), "signed": ledger.log_key() is not None},
        "progress": progress(name, state),
    }


def run(name: str, federation: Federation, state: State) -> View:
    """Show a run: what it promises, what it holds, what it costs."""
    status = federation.status(due=False).to_json(rounds=False)
    for each in ("run", "open_requests", "next_due"):  # a path; not looked for
        status.pop(each)
    return finite({**run_in_short(name, federation, state), **status, "rounds": federation.ledger.last_round})


def rounds(name: str, federation: Federation, *, standing: bool = False) -> View:
    """Show the rounds of a run, superseded ones too unless only those that stand are asked for."""
    found = [each.to_json() for each in federation.ledger.summaries() if each.standing or not standing]
    return finite({"run": name, "rounds": found})


def round_page(name: str, federation: Federation, *, before: int | None, most: int) -> View:
    """Show some standing rounds, the newest first, each with its weakest cluster; and the measurements of all.

    Args:
        name: The run.
        federation: The same, opened.
        before: Only rounds with lower numbers.
        most: How many at most.

    """
    summaries = federation.ledger.summaries()
    standing = [each for each in summaries if each.standing]
    shown = [each for each in reversed(standing) if before is None or each.number < before][: most + 1]
    page, more = shown[:most], len(shown) > most
    looked_at = standing if sum(each.clusters for each in standing) <= _MOST_CLUSTERS else page
    weakest = federation.ledger.weakest_clusters([each.number for each in looked_at])
    worst = min(weakest.items(), key=lambda pair: (pair[1].left, pair[0]), default=None)
    rounds_shown = [
        {**each.to_json(), "weakest": asdict(weakest[each.number]) if each.number in weakest else None}
        for each in page
    ]
    metrics = sorted({metric for each in standing if each.evaluation for metric in each.evaluation.metrics})
    return finite(
        {
            "run": name,
            "standing": len(standing),
            "undone": len(summaries) - len(standing),
            "policy": asdict(federation.ledger.policy),
            "survivors_needed": federation.ledger.policy.survivors_needed,
            "weakest": None if worst is None else {"round": worst[0], **asdict(worst[1])},
            "weakest_of_all": looked_at is standing,
            "rounds": rounds_shown,
            "before": page[-1].number if more else None,
            "curves": {
                metric: [
                    [each.number, each.evaluation.metrics[metric]]
                    for each in standing
                    if each.evaluation and math.isfinite(each.evaluation.metrics.get(metric, math.nan))
                ]
                for metric in metrics
            },
        }
    )


def progress(name: str, state: State) -> View | None:
    """Show how far a worker is with a run; None where none has worked on it."""
    row = state.row("SELECT * FROM progress WHERE run = ?", (name,))
    if row is None:
        return None
    shown = {key: row[key] for key in ("phase", "done", "total", "detail")}
    return {**shown, "updated_at": _moment(row["updated_at"])}


# -- requests ------------------------------------------------------------------------------------------------------


def request(name: str, found: ErasureRequest, identity: Identity) -> View:
    """Show a request; who asks only to whoever may see it."""
    shown = {"id": request_id(name, found.number), "run": name, **found.to_json()}
    if identity.sees_clients:
        shown["client"] = found.client
    else:
        for event in shown.get("history", ()):
            event.pop("actor", None)
            event.pop("reason", None)
    return finite(shown)


def requests(
    runs: Sequence[tuple[str, Federation]],
    identity: Identity,
    *,
    states: Sequence[RequestState] | None,
    before: int | None,
    most: int,
) -> View:
    """List requests, the newest first; of several runs only where no page is asked for.

    Raises:
        BadRequest: A page of several runs.

    """
    if before is not None and len(runs) != 1:
        raise BadRequest("`before` needs `run`: requests are numbered within a run")
    found = [
        (name, each)
        for name, federation in runs
        for each in federation.request_page(states=states, before=before, most=most + 1)
    ]
    found.sort(key=lambda pair: (pair[1].asked_at, pair[1].number), reverse=True)
    shown = found[:most]
    more = len(found) > most and len(runs) == 1
    return {
        "requests": [request(name, each, identity) for name, each in shown],
        "before": shown[-1][1].number if more else None,
    }


def forecast(prospect: Prospect) -> View:
    """Show what an erasure would come to. `digest` is what an approval names."""
    found = prospect.forecast
    shown: View = {
        "verdict": None,
        "refusal": None if prospect.refusal is None else prospect.refusal.code,
        "answered_before": sorted(each.number for each in prospect.before.values()),
    }
    if found is not None:
        shown |= {
            "verdict": found.verdict.kind.value,
            "verdict_in_full": found.verdict.in_full,
            "first_broken_round": found.verdict.round,
            "rollback_to_round": found.verdict.undoes,
            "criterion": found.verdict.criterion,
            "cost": asdict(found.cost),
            "served_round": found.served,
            "obstacle": found.obstacle,
            "approximate": found.approximate,
            "too_large": found.too_large,
            "log10_odds": next(iter(found.odds.values()), None),
        }
    return finite({**shown, "digest": prospect.digest})


def days_to_deadline(federation: Federation) -> float | None:
    """Count the days to the nearest deadline, negative once it has passed; None without one.

    Where the run promises a purge, a deniable answer is an interim one: its request counts until it is purged.
    """
    now = federation.clock()
    return min((days_left(each, now) for each in (*soonest(federation, 1), *interim(federation, 1))), default=None)


def interim(federation: Federation, most: int) -> tuple[ErasureRequest, ...]:
    """Give the answered requests that must be purged first, the first of them first, where a purge is promised.

    Args:
        federation: The run.
        most: How many at most.

    """
    if federation.settings.deniability.purge != "deadline":
        return ()
    ledger = federation.ledger
    numbers = sorted(ledger.unpurged().rounds)

    def next_page(after: int, at_once: int) -> tuple[ErasureRequest, ...]:
        return ledger.requests([number for number in numbers if number > after][:at_once])

    return tuple(_first_due(next_page, federation.clock(), most))


def days_left(found: ErasureRequest, now: datetime) -> float:
    """Count the days until a request is due, negative once it is overdue; they stand still during a pause."""
    return found.deadline.left(now).total_seconds() / _DAY_SECONDS


def soonest(federation: Federation, most: int) -> tuple[ErasureRequest, ...]:
    """Give the open requests that are due first, the first of them first.

    Requests are numbered in the order in which they were received, and pauses and extensions only make a deadline
    later: so the oldest ones are read, until no younger one can be due before them.

    Args:
        federation: The run.
        most: How many at most.

    """
    ledger = federation.ledger

    def next_page(after: int, at_once: int) -> tuple[ErasureRequest, ...]:
        return ledger.request_page(states=_OPEN, after=after, oldest_first=True, most=at_once)

    found = _first_due(next_page, federation.clock(), most)
    approval = {each.number: each for each in federation.requests([each.number for each in found])}
    return tuple(approval[each.number] for each in found)


def _first_due(
    next_page: Callable[[int, int], tuple[ErasureRequest, ...]], now: datetime, most: int
) -> list[ErasureRequest]:
    """Read requests, the oldest first and some at a time, until no younger one can be due before these."""
    found, after, at_once = list[ErasureRequest](), 0, max(most, _AT_ONCE)
    while True:
        some = next_page(after, at_once)
        found = sorted([*found, *some], key=lambda each: (each.deadline.left(now), each.number))[:most]
        if len(some) < at_once:
            return found
        after = some[-1].number
        younger = Deadline.after(some[-1].asked_at, ()).left(now)
        if len(found) == most and found[-1].deadline.left(now) <= younger:
            return found


def due_soon(name: str, federation: Federation, identity: Identity, *, most: int) -> list[View]:
    """Show the requests that are due first: open ones, and answered ones to be purged by their deadline."""
    now = federation.clock()
    shown = [
        {
            **request(name, each, identity),
            "days_left": days_left(each, now),
            "to_purge": each.answered_at is not None,
        }
        for each in (*soonest(federation, most), *interim(federation, most))
    ]
    return sorted(shown, key=lambda each: (each["days_left"], each["number"]))[:most]


def activity(name: str, federation: Federation, *, most: int) -> list[View]:
    """Show what happened to requests last, the newest first; not by whom, nor why."""
    events = [
        {"request": request_id(name, each.number), "kind": event.kind.value, "at": event.at.isoformat()}
        for each in federation.ledger.last_changed_requests(most)
        for event in each.history
    ]
    return sorted(events, key=lambda event: event["at"], reverse=True)[:most]


# -- the rest of a run -------------------------------------------------------------------------------------------


def departures(name: str, federation: Federation, identity: Identity, *, skip: int, most: int) -> View:
    """Show who could leave now, with the verdict that each would get alone; named to whoever sees clients."""
    found = federation.departures(skip=skip, most=most)
    total = federation.ledger.count_clients() or 0
    return {
        "run": name,
        "clients": total,
        "skip": skip,
        "next": skip + most if skip + most < total else None,
        "departures": [
            {
                "number": number,
                "client": client if identity.sees_clients else None,
                "verdict": verdict.kind.value,
                "first_broken_round": verdict.round,
                "rollback_to_round": verdict.undoes,
            }
            for number, (client, verdict) in enumerate(found, start=skip + 1)
        ],
    }


def account(name: str, federation: Federation) -> View:
    """Show what the released models cost in differential privacy.

    Raises:
        MissingExtra: What computes it is not installed.

    """
    try:
        claims = federation.claims()
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the account needs {error.name}; {how_to_install('train')}") from None
    odds = federation.ledger.odds()
    return finite(
        {
            "run": name,
            "delta": federation.settings.privacy.delta,
            "void": federation.ledger.policy.draws == "seeded",
            "claims": [asdict(claim) for claim in claims],
            "log10_odds": asdict(odds) if odds else None,
        }
    )


def releases(name: str, federation: Federation) -> View:
    """Show which models were given to whom, and which of them the run no longer stands by."""
    return {"run": name, "releases": [each.to_json() for each in federation.releases()]}


def purge(name: str, federation: Federation, state: State, outlook: PurgeOutlook | None = None) -> View:
    """Show what a purge would do now, by when one is due, and whether somebody has asked for one.

    `digest` is what whoever asks for one names. `outlook` is what is foreseen, where somebody knows it already.
    """
    outlook = outlook or federation.purge_outlook()
    row = state.row("SELECT asked_at FROM purges WHERE run = ?", (name,))
    return finite(
        {
            "run": name,
            **outlook.to_json(),
            "digest": outlook.forecast.digest if outlook.forecast else None,
            "asked_at": None if row is None else _moment(row["asked_at"]),
            "progress": progress(name, state),
        }
    )


def checkpoint(name: str, federation: Federation) -> View:
    """Show the head of the log, signed where the log is."""
    ledger = federation.ledger
    head, key = ledger.log_head(), ledger.log_key()
    return {
        "run": name,
        "size": head.size,
        "root": head.root.hex(),
        "checkpoint": None if (signed := ledger.cosigned_head()) is None else signed.cosigned,
        "key": None if key is None else {"id": key.id, "name": key.name},
    }


def _witnesses(federation: Federation) -> list[View]:
    """Show the witnesses of the settings, and which of them have cosigned the newest head."""
    cosignatures = federation.cosigned()
    if cosignatures is None:
        return []
    return [
        *({"name": name, "cosigned": True} for name in cosignatures.by),
        *({"name": name, "cosigned": False} for name in cosignatures.missing),
    ]


def log_page(name: str, federation: Federation, *, before: int | None, most: int) -> View:
    """Show some leaves of the log, the newest first, below its head."""
    leaves = federation.ledger.log_page(before=before, most=most + 1)
    shown = leaves[:most]
    return {
        **checkpoint(name, federation),
        "witnesses": _witnesses(federation),
        "leaves": [
            {
                "place": each.place,
                "type": (content := json.loads(each.leaf)).get("type"),
                "round": content.get("number", content.get("to")),
                "hash": each.hash.hex(),
                "signed": each.head is not None,
                "leaf": content,
            }
            for each in shown
        ],
        "before": shown[-1].place if len(leaves) > most else None,
    }


def inclusion(name: str, federation: Federation, *, leaf: int, size: int | None) -> View:
    """Prove that a leaf is in the log, as it was when it had so many leaves.

    Raises:
        BadRequest: The log never was as large, or has no such leaf.

    """
    hashes = federation.ledger.log_hashes()
    size = len(hashes) if size is None else size
    if not 0 <= leaf < size <= len(hashes):
        raise BadRequest(f"the log has {len(hashes)} leaves, from 0; allowed: leaf < size <= {len(hashes)}")
    path = path_to(hashes[:size], leaf)
    return {
        "run": name,
        "leaf": leaf,
        "size": size,
        "hash": hashes[leaf].hex(),
        "path": [each.hex() for each in path],
    }


def consistency(name: str, federation: Federation, *, old: int, new: int | None) -> View:
    """Prove that the log only grew between two sizes.

    Raises:
        BadRequest: The log never had these sizes.

    """
    hashes = federation.ledger.log_hashes()
    new = len(hashes) if new is None else new
    if not 1 <= old <= new <= len(hashes):
        raise BadRequest(f"the log has {len(hashes)} leaves; allowed: 1 <= old <= new <= {len(hashes)}")
    proof = consistency_of(hashes[:new], old)
    return {"run": name, "old": old, "new": new, "proof": [each.hex() for each in proof]}


def access_table() -> View:
    """Show who may do what."""
    return {
        "roles": {role.value: about for role, about in access.ABOUT.items()},
        "routes": [
            {
                "method": rule.method,
                "path": rule.path,
                "about": rule.about,
                "roles": None if rule.roles is None else sorted(rule.roles),
            }
            for rule in access.RULES
        ],
    }


def now_text() -> str:
    """Give the present time, as every view has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def finite(view: View) -> View:
    """Put None in the place of numbers that JSON has no word for."""
    return {key: _finite(each) for key, each in view.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
