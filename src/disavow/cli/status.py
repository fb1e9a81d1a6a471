"""`disavow status` and `disavow clients`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from disavow.cli import rounds
from disavow.cli.options import check_plot, write_plot
from disavow.cli.output import print_json, results, size
from disavow.domain import Policy, escaped
from disavow.domain.strategies import NOISES
from disavow.errors import ConfigError
from disavow.federation import Federation
from disavow.ledger import RoundSummary
from disavow.ledger.odds import Odds
from disavow.proof.bounds import as_odds, noise_in_words
from disavow.proof.summary import EXCLUDES_NOBODY, rebuilt_in_words
from disavow.request_register import DueRequest
from disavow.results import KeptModels, PurgeOutlook, Spending, Status


def status(directory: Path, *, as_json: bool, plot: Path | None = None) -> None:
    """Show a run without touching it."""
    if plot is not None:
        check_plot(plot)
    with Federation.open(directory) as federation:
        found = federation.status()
    if plot is not None:
        _draw(plot, found)
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)


def _draw(plot: Path, found: Status) -> None:
    from disavow.cli.curves import metrics_figure

    superseded = len(found.rounds) - len(found.standing)
    undone = f", {superseded} superseded" if superseded else ""
    drawn = metrics_figure(found.rounds, f"{Path(found.run).name}: {len(found.standing)} rounds stand{undone}")
    if drawn is None:
        raise ConfigError(f"--plot is {plot}; allowed: no plot, because no round of this run was measured")
    write_plot(plot, drawn)


def clients(directory: Path, *, as_json: bool) -> None:
    """List who is in a run."""
    with Federation.open(directory) as federation:
        found = federation.clients()
    if as_json:
        print_json({"run": str(directory), "clients": list(found)})
        return
    console = results()
    for client in found:
        console.print(escaped(client))


def _print(found: Status) -> None:
    console, odds, standing = results(), found.odds, found.standing
    for name, fact in _facts(found).items():
        if fact is not None:
            console.print(f"  {fact}", heading=f"{name:>9}")
    protection = None if odds is None else noise_in_words(odds.worst_composed)
    if protection is not None:
        console.print(f"\n{protection}")
    if standing:
        metrics = rounds.metrics_of(standing)
        console.print(f"\n{rounds.header(metrics)}", style="bold")
        for summary in standing:
            console.print(rounds.line(summary, metrics))
        if more := rounds.metrics_of(standing, most=None)[len(metrics) :]:
            console.print(f"not shown: {', '.join(map(escaped, more))}; `--json` and `--plot` have them")


def _facts(found: Status) -> dict[str, str | None]:
    policy, odds, standing, settings = found.policy, found.odds, found.standing, found.settings
    superseded, wanted = len(found.rounds) - len(standing), settings.rounds
    rebuilt = sum(summary.rebuilt for summary in standing)
    on_nodes = settings.engine.name == "flower"
    state = "its Flower server app goes on" if on_nodes else f"`disavow resume {found.run}` goes on"
    if len(standing) >= wanted:
        state = "complete"
    elif found.obstacle is not None:
        state = f"no more can be trained: {found.obstacle}"
    return {
        "run": f"{found.run_id}, started {found.created_at:%Y-%m-%d %H:%M} UTC by {found.created_by}",
        "policy": _policy(policy),
        "clusters": f"{'sticky ' if policy.sticky else ''}{policy.clustering} by {policy.metric}",
        "noise": _noise(policy),
        "likeness": likeness_in_words(policy, standing),
        "odds": odds_in_words(odds),
        "drawn": drawn_in_words(odds),
        "budget": _budget(found.budget),
        "clients": "unknown: the keyring is not here" if found.clients is None else str(found.clients),
        "rounds": f"{len(standing)} of {wanted}; {state}"
        + (f"; {superseded} superseded" if superseded else "")
        + (f"; {rebuilt_in_words(rebuilt)}" if rebuilt else ""),
        "requests": _requests(found.due),
        "rebuild": found.unsettled.unfinished,
        "leavers": _leavers(found.purge),
        "restored": found.unsettled.forgotten,
        "engine": _engine(found),
        "mechanism": settings.mechanism.name,
        "log": found.log,
        "on disk": size(found.stored_bytes),
        "models": _models(found.models),
        "model": found.model,
    }


def _leavers(purge: PurgeOutlook | None) -> str | None:
    """Whose updates may be in the model, and when they are purged; None where nobody's are."""
    if purge is None or not purge.unpurged:
        return None
    whose = "1 leaver's updates" if purge.unpurged == 1 else f"{purge.unpurged} leavers' updates"
    line = f"{whose} may be in the model that is served"
    if purge.due is None or purge.begins_at is None:
        return f"{line}; `disavow purge` removes them" if purge.forecast else line
    risks = [why for number in purge.deadlines if (why := purge.at_risk(number)) is not None]
    due = f"to be purged by {purge.due:%Y-%m-%d %H:%M} UTC"
    if risks:
        return f"{line}; {due}, AT RISK: {risks[0]}"
    return f"{line}; {due}, which begins by itself from {purge.begins_at:%Y-%m-%d %H:%M} UTC on"


def _requests(due: Sequence[DueRequest]) -> str | None:
    """How many requests are open, and when the first of them is due."""
    if not due:
        return None
    overdue = sum(each.overdue for each in due)
    first = due[0].request
    late = f"; {overdue} overdue" if overdue else ""
    return f"{len(due)} open{late}; request {first.number} is due {first.due:%Y-%m-%d %H:%M} UTC"


def _engine(found: Status) -> str | None:
    """What trained last and why nothing faster did; and what trained which rounds, where that was not one."""
    trained = rounds.trainers(found.standing)
    if found.engine is None:
        return trained
    several = len({summary.trainer for summary in found.standing} - {None}) > 1
    return f"{found.engine}; {trained}" if several else str(found.engine)


def _policy(policy: Policy) -> str:
    drawn = f"{policy.representatives} drawn of each cluster"
    limit = "" if policy.odds is None else f", odds of at most {policy.odds:g}"
    return f"k = {policy.k}, x = {policy.x}, {drawn}, Δ {delta_of(policy)}{limit}"


def _models(models: KeptModels) -> str:
    where = "" if models.url is None else f" in {models.url}"
    kept = f"{models.kept} of {models.kept + models.thinned} kept, {size(models.kept_bytes)}{where}"
    budget = models.retention
    return f"{kept}; ledger.retention is {size(budget)}" if isinstance(budget, int) else kept


def _budget(budget: Spending | None) -> str | None:
    if budget is None:
        return None
    return f"ε = {budget.spent:.4g} of {budget.epsilon:g} spent at δ = {budget.delta:g} ({budget.claim} claim)"


def _noise(policy: Policy) -> str:
    seeded = (
        "; draws are seeded, so its privacy claims are void and the seed tells who takes part in which round"
        if policy.draws == "seeded"
        else ""
    )
    return NOISES[policy.noise].describe(policy) + seeded


# -- odds, chances and likeness in words --------------------------------------------------------------------------


def odds_in_words(odds: Odds | None) -> str | None:
    """The worst client's odds beside the median client's; None before anybody took part."""
    if odds is None:
        return None
    worst = f"worst client {as_odds(odds.worst_round)} a round, {as_odds(odds.worst_composed)} over all that stand"
    median = f"median client {as_odds(odds.median_round)}, {as_odds(odds.median_composed)}"
    of_some = "" if odds.sampled is None else f"; of {odds.sampled} clients drawn at random"
    return f"{worst}; {median} (95 % quantiles{of_some})"


def drawn_in_words(odds: Odds | None) -> str | None:
    """How likely a client was drawn at least once; None before anybody took part."""
    if odds is None:
        return None
    if f"{odds.worst_drawn:.1%}" == f"{odds.median_drawn:.1%}":
        return f"at least once in the rounds that stand with a chance of {odds.worst_drawn:.1%}"
    worst, median = f"{odds.worst_drawn:.1%}", f"{odds.median_drawn:.1%}"
    return f"at least once in the rounds that stand with a chance of up to {worst}; median client {median}"


def likeness_in_words(policy: Policy, standing: Sequence[RoundSummary]) -> str | None:
    """How wide the newest round's widest cluster is against its updates, and how many pairs Δ takes for alike."""
    newest = next((each for each in reversed(standing) if not each.rebuilt), None)
    if newest is None or newest.spread is None or policy.k == 1:
        return None
    wide = (
        f"widest cluster {newest.spread / newest.update_norm:.2f}x the median update" if newest.update_norm else ""
    )
    parts = [
        wide,
        f"{newest.pairs_within:.0%} of all pairs are within Δ",
        EXCLUDES_NOBODY if policy.adaptive else "",
    ]
    return f"round {newest.number}: " + "; ".join(part for part in parts if part)


def delta_of(policy: Policy) -> str:
    """How near counts as alike."""
    if policy.relative_delta is not None:
        return f"{policy.relative_delta:g}x the median update norm"
    return "adaptive" if policy.delta is None else f"{policy.delta:g}"
