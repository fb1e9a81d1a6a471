"""`disavow status`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from disavow.cli import rounds
from disavow.cli.odds import delta_of, drawn_in_words, likeness_in_words, odds_in_words
from disavow.cli.output import print_json, results, size
from disavow.cli.unsettled import Unsettled, unsettled
from disavow.config import Settings
from disavow.domain import Policy
from disavow.errors import DisavowError
from disavow.ledger import Ledger
from disavow.ledger.keys import default_folder
from disavow.proof.bounds import noise_in_words
from disavow.proof.report import rebuilt_in_words
from disavow.rounds.conduct import room_for
from disavow.rounds.participation import participation_of
from disavow.runs import budget_of, conduct_of, on_nodes, settings_of


def status(directory: Path, *, as_json: bool) -> None:
    """Show a run without touching it."""
    with Ledger.open(directory) as ledger:
        settings = settings_of(directory)
        summaries = ledger.summaries()
        standing = [summary for summary in summaries if summary.standing]
        open_work = unsettled(ledger)
        if as_json:
            print_json(
                {
                    "run": str(directory),
                    "run_id": ledger.run_id,
                    "created_at": ledger.created_at.isoformat(),
                    "created_by": ledger.created_by,
                    "policy": asdict(ledger.policy),
                    "clients": len(ledger.clients()),
                    "log": _log(ledger),
                    "mechanism": settings.mechanism.model_dump(),
                    "rounds_wanted": settings.rounds,
                    "complete": len(standing) >= settings.rounds and not open_work,
                    **open_work.to_json(),
                    "stored_bytes": ledger.stored_bytes(),
                    "models": _models_as_json(ledger, settings),
                    "model": ledger.digest_before(len(standing) + 1),
                    "budget": _budget_as_json(ledger, settings),
                    "log10_odds": asdict(odds) if (odds := ledger.odds()) else None,
                    "rounds": [rounds.as_json(summary) for summary in summaries],
                }
            )
            return
        _print(directory, ledger, settings, open_work)


def _print(directory: Path, ledger: Ledger, settings: Settings, open_work: Unsettled) -> None:
    console, policy, wanted = results(), ledger.policy, settings.rounds
    standing = [summary for summary in ledger.summaries() if summary.standing]
    superseded = len(ledger.summaries()) - len(standing)
    rebuilt = sum(summary.rebuilt for summary in standing)
    odds = ledger.odds()
    left = len(ledger.clients())
    further = "its Flower server app goes on" if on_nodes(settings) else f"`disavow resume {directory}` goes on"
    state = "complete" if len(standing) >= wanted else further
    if len(standing) < wanted and left < policy.k:
        state = f"no more can be trained: {left} clients are fewer than k"
    elif len(standing) < wanted and _budget_is_spent(ledger, settings, len(standing) + 1):
        state = "no more can be trained: the privacy budget is spent"
    facts = {
        "run": f"{ledger.run_id}, started {ledger.created_at:%Y-%m-%d %H:%M} UTC by {ledger.created_by}",
        "policy": _policy(policy),
        "clusters": f"{'sticky ' if policy.sticky else ''}{policy.clustering} by {policy.metric}",
        "noise": _noise(ledger),
        "likeness": likeness_in_words(policy, standing),
        "odds": odds_in_words(odds),
        "drawn": drawn_in_words(odds),
        "budget": _budget(ledger, settings),
        "clients": str(left),
        "rounds": f"{len(standing)} of {wanted}; {state}"
        + (f"; {superseded} superseded" if superseded else "")
        + (f"; {rebuilt_in_words(rebuilt)}" if rebuilt else ""),
        "rebuild": open_work.unfinished,
        "restored": open_work.forgotten,
        "trainer": rounds.trainers(standing),
        "mechanism": settings.mechanism.name,
        "log": _log(ledger),
        "on disk": size(ledger.stored_bytes()),
        "models": _models(ledger, settings),
        "model": ledger.digest_before(len(standing) + 1),
    }
    for name, fact in facts.items():
        if fact is None:
            continue
        console.print(Text.assemble((f"{name:>9}", "bold"), f"  {fact}"))
    protection = None if odds is None else noise_in_words(odds.worst_composed)
    if protection is not None:
        console.print(f"\n{protection}")
    if standing:
        console.print(f"\n{rounds.HEADER}", style="bold")
        for summary in standing:
            console.print(rounds.line(summary))


def _policy(policy: Policy) -> str:
    drawn = f"{policy.representatives} drawn of each cluster"
    limit = "" if policy.odds is None else f", odds of at most {policy.odds:g}"
    return f"k = {policy.k}, x = {policy.x}, {drawn}, Δ {delta_of(policy)}{limit}"


def _budget_is_spent(ledger: Ledger, settings: Settings, number: int) -> bool:
    """Whether the budget has no room for a round; False where the key is not here that says who is in it."""
    try:
        participation = participation_of(settings, ledger, default_folder())
    except DisavowError:
        return False
    return room_for(ledger, conduct_of(settings, participation=participation), number).obstacle is not None


def _models_as_json(ledger: Ledger, settings: Settings) -> dict[str, Any]:
    """How many models of standing rounds are kept, the initial one among them, and within which budget."""
    found = ledger.checkpoints()
    kept = [each for each in found if each.kept]
    return {
        "retention": settings.ledger.retention,
        "kept": len(kept),
        "thinned": len(found) - len(kept),
        "kept_bytes": sum(each.stored_bytes for each in kept),
        "kept_rounds": [each.round - 1 for each in kept],
    }


def _models(ledger: Ledger, settings: Settings) -> str:
    told = _models_as_json(ledger, settings)
    kept = f"{told['kept']} of {told['kept'] + told['thinned']} kept, {size(told['kept_bytes'])}"
    budget = told["retention"]
    return kept if budget == "all" else f"{kept}; ledger.retention is {size(budget)}"


def _budget_as_json(ledger: Ledger, settings: Settings) -> dict[str, Any] | None:
    budget = budget_of(settings)
    if budget is None:
        return None
    claim = "sampled" if ledger.policy.clustering == "fixed" else "unconditional"
    return {**asdict(budget), "spent": budget.spent(ledger.events()), "claim": claim}


def _budget(ledger: Ledger, settings: Settings) -> str | None:
    told = _budget_as_json(ledger, settings)
    if told is None:
        return None
    return f"ε = {told['spent']:.4g} of {told['epsilon']:g} spent at δ = {told['delta']:g} ({told['claim']} claim)"


def _log(ledger: Ledger) -> str:
    leaves, key = ledger.log_length(), ledger.log_key()
    signed = f"signed by {key.name} ({key.id[:16]})" if key else "not signed: there is no key (`disavow keygen`)"
    return f"{leaves} leaves, {signed}"


def _noise(ledger: Ledger) -> str:
    policy = ledger.policy
    modes = {
        "paper": f"paper, {policy.distribution}, σ = {policy.sigma:g}",
        "calibrated": f"calibrated, clip {policy.clip}, τ = {policy.tau}",
        "none": "none",
    }
    seeded = (
        "; draws are seeded, so its privacy claims are void and the seed tells who takes part in which round"
        if policy.draws == "seeded"
        else ""
    )
    return modes[policy.noise] + seeded
