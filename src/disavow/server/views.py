"""What REST and pages show, as values that JSON can hold. Clients are named only to whoever may see them.

One function for each thing to look at, called by `api` and by `pages`, so that a page and its `.json` say the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from disavow.domain import ErasureRequest, RequestState
from disavow.errors import BadRequest, MissingExtra, how_to_install
from disavow.federation import Federation
from disavow.proof.merkle import consistency_of, path_to
from disavow.results import Prospect
from disavow.server import access
from disavow.server.access import Identity
from disavow.server.open_runs import OpenRuns, request_id
from disavow.server.state import State

View = dict[str, Any]

_DAY_SECONDS = 86_400.0


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
        "unsettled": federation.unsettled().to_json(),
        "log": {"leaves": ledger.log_length(), "signed": ledger.log_key() is not None},
        "progress": progress(name, state),
    }


def run(name: str, federation: Federation, state: State) -> View:
    """Show a run: what it promises, what it holds, what it costs."""
    told = federation.status().to_json()
    told.pop("rounds")
    told.pop("run")  # a path of this machine
    return finite({**run_in_short(name, federation, state), **told, "rounds": federation.ledger.last_round})


def rounds(name: str, federation: Federation, *, standing: bool = False) -> View:
    """Show the rounds of a run, superseded ones too unless only those that stand are asked for."""
    found = [each.to_json() for each in federation.ledger.summaries() if each.standing or not standing]
    return finite({"run": name, "rounds": found})


def progress(name: str, state: State) -> View | None:
    """Show how far a worker is with a run; None where none has worked on it."""
    row = state.row("SELECT * FROM progress WHERE run = ?", (name,))
    if row is None:
        return None
    told = {key: row[key] for key in ("phase", "done", "total", "detail")}
    return {**told, "updated_at": _moment(row["updated_at"])}


# -- requests ------------------------------------------------------------------------------------------------------


def request(name: str, found: ErasureRequest, identity: Identity) -> View:
    """Show a request; who asks only to whoever may see it."""
    told = {"id": request_id(name, found.number), "run": name, **found.to_json()}
    if identity.sees_clients:
        told["client"] = found.client
    else:
        for event in told.get("history", ()):
            event.pop("actor", None)
            event.pop("reason", None)
    return finite(told)


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
    told: View = {
        "verdict": None,
        "refusal": None if prospect.refusal is None else prospect.refusal.code,
        "answered_before": sorted(each.number for each in prospect.before.values()),
    }
    if found is not None:
        told |= {
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
    return finite({**told, "digest": prospect.digest})


_NEAREST: dict[str, tuple[int, datetime | None, timedelta | None]] = {}
"""By run: its count of changes, the nearest deadline, and the least time left of a request that is paused."""


def days_to_deadline(federation: Federation) -> float | None:
    """Count the days to the nearest deadline of an open request, negative once it has passed; None without one.

    All open requests are read only after something has changed: with thousands of them that takes a while.
    """
    ledger, now = federation.ledger, federation.clock()
    changes = ledger.changes()
    kept = _NEAREST.get(ledger.run_id)
    if kept is None or kept[0] != changes:
        open_ones = [each.request for each in federation.due(now)]
        running = [each.due for each in open_ones if not each.paused]
        paused = [each.deadline.left(now) for each in open_ones if each.paused]
        kept = _NEAREST[ledger.run_id] = changes, min(running, default=None), min(paused, default=None)
    _, due, left = kept
    least = [each for each in (None if due is None else due - now, left) if each is not None]
    return min(least).total_seconds() / _DAY_SECONDS if least else None


# -- the rest of a run -------------------------------------------------------------------------------------------


def departures(name: str, federation: Federation, *, skip: int, most: int) -> View:
    """Show who could leave now, with the verdict that each would get alone."""
    found = federation.departures(skip=skip, most=most)
    total = federation.ledger.count_clients() or 0
    return {
        "run": name,
        "clients": total,
        "skip": skip,
        "next": skip + most if skip + most < total else None,
        "departures": [
            {"client": client, "verdict": verdict.kind.value, "rollback_to_round": verdict.undoes}
            for client, verdict in found
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


def checkpoint(name: str, federation: Federation) -> View:
    """Show the head of the log, signed where the log is."""
    ledger = federation.ledger
    head, key = ledger.log_head(), ledger.log_key()
    return {
        "run": name,
        "size": head.size,
        "root": head.root.hex(),
        "checkpoint": ledger.signed_head(),
        "key": None if key is None else {"id": key.id, "name": key.name},
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
