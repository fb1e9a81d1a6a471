"""`disavow account`: what a run has cost in privacy, or would cost, or the noise for what it may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from disavow.cli.claims import (
    NAMES,
    against_update,
    epsilon_or_nan,
    noise_as_json,
    print_rows,
    print_small_print,
    rows_of,
    say,
)
from disavow.cli.curves import Curve, figure
from disavow.cli.forecast import DELTA, POINTS, AccountOptions, calibrate, calibrate_odds, foretell
from disavow.cli.options import check_plot, require, write_plot
from disavow.cli.output import print_json, results
from disavow.cli.status import drawn_in_words, odds_in_words
from disavow.domain import Policy
from disavow.errors import ConfigError
from disavow.privacy.accountants import Claim, account
from disavow.privacy.calibration import prefixes
from disavow.privacy.events import Event

_FEWEST = 2
_MOST_ROUNDS = 100_000
_MOST_CLIENTS = 10_000_000
_MOST_PARAMETERS = 10**15
_SIGMAS = (1e-3, 1e6)
_NUMBERS = (1e-12, 1e12)
_ODDS = (1.001, 1e12)


def account_for(run: Path | None, options: AccountOptions, *, plot: Path | None, as_json: bool) -> None:
    """The account of a run, or of one that is only thought of."""
    _check(run, options)
    require(plot is None or options.odds is None, "plot", plot, "nothing beside --odds, which draws no curve")
    if plot is not None:
        check_plot(plot)
    if run is not None:
        _of_run(run, options, plot=plot, as_json=as_json)
    elif options.odds is not None:
        calibrate_odds(options.rounds or 1, options.odds, as_json=as_json)
    elif options.epsilon is not None:
        calibrate(options, options.epsilon, plot=plot, as_json=as_json)
    else:
        foretell(options, plot=plot, as_json=as_json)


def _check(run: Path | None, options: AccountOptions) -> None:
    """Refuse, before any work, what no run could have."""
    given = {name: value for name, value in asdict(options).items() if value is not None}
    delta = given.get("delta", DELTA)
    require(0 < delta < 1, "delta", delta, "a number above 0 and below 1")
    if run is not None:
        for name in given.keys() - {"delta"}:
            require(False, name, given[name], "nothing beside RUN, which has its own; only --delta may be changed")
        return
    if options.odds is not None:
        _check_odds(given)
        return
    for name in ("rounds", "clients", "k"):
        require(name in given, name, "not set", "a whole number; or name a RUN, which has its own")
    rounds, clients, k = given["rounds"], given["clients"], given["k"]
    require(1 <= rounds <= _MOST_ROUNDS, "rounds", rounds, f"1 to {_MOST_ROUNDS:,}")
    require(_FEWEST <= clients <= _MOST_CLIENTS, "clients", clients, f"{_FEWEST} to {_MOST_CLIENTS:,}")
    require(_FEWEST <= k <= clients, "k", k, f"{_FEWEST} to the number of clients, which is {clients}")
    drawn = given.get("representatives", 1)
    require(1 <= drawn < k, "representatives", drawn, f"1 to {k - 1}, fewer than k")
    one = ("sigma" in given) != ("epsilon" in given)
    require(one, "sigma", given.get("sigma", "not set"), "either --sigma, or --epsilon to find the noise for it")
    sigma, (least, most) = given.get("sigma", 1.0), _SIGMAS
    require(least <= sigma <= most, "sigma", sigma, f"{least:g} to {most:,.0f}")
    for name in ("epsilon", "clip"):
        value, (least, most) = given.get(name, 1.0), _NUMBERS
        require(least <= value <= most, name, value, f"{least:g} to {most:g}")
    require(
        "model" not in given or "parameters" not in given, "model", options.model, "nothing beside --parameters"
    )
    parameters = given.get("parameters", 1)
    require(1 <= parameters <= _MOST_PARAMETERS, "parameters", parameters, f"1 to {_MOST_PARAMETERS:,}")


def _check_odds(given: Mapping[str, Any]) -> None:
    """The noise for odds over so many rounds follows from these two alone."""
    for name in given.keys() - {"rounds", "odds"}:
        require(False, name, given[name], "nothing beside --odds, for which --rounds is enough")
    require("rounds" in given, "rounds", "not set", "a whole number")
    require(1 <= given["rounds"] <= _MOST_ROUNDS, "rounds", given["rounds"], f"1 to {_MOST_ROUNDS:,}")
    least, most = _ODDS
    require(least <= given["odds"] <= most, "odds", given["odds"], f"{least:g} to {most:g}")


def _of_run(directory: Path, options: AccountOptions, *, plot: Path | None, as_json: bool) -> None:
    """What its executed rounds have cost."""
    from disavow.ledger import Ledger
    from disavow.runs import budget_of, settings_of

    with Ledger.open(directory) as ledger:
        settings, policy, events = settings_of(directory), ledger.policy, ledger.events()
        superseded = sum(not summary.standing for summary in ledger.summaries())
        rebuilt = sum(summary.rebuilt for summary in ledger.summaries())
        parameters, odds = ledger.layout.size, ledger.odds()
    delta = options.delta or settings.privacy.delta
    claims, budget = account(events, delta), budget_of(settings)
    spent = budget.spent(events) if budget else None
    if plot is not None:
        if all(claim.epsilon is None for claim in claims):
            raise ConfigError(f"--plot is {plot}; allowed: nothing, this run has no figure to draw")
        write_plot(
            plot,
            figure(
                _curves_of_run(events, delta), f"{directory}, δ = {delta:g}", budget.epsilon if budget else None
            ),
        )
    calibrated = policy.accounted and policy.clip is not None and policy.tau is not None
    noise = noise_as_json(policy.tau or 0.0, policy.clip or 1.0, parameters) if calibrated else None
    if as_json:
        document = {
            "run": str(directory),
            "rounds_executed": len(events),
            "rounds_superseded": superseded,
            "rounds_rebuilt": rebuilt,
            "delta": delta,
            "noise": {"mode": policy.noise, "clip": policy.clip, "tau": policy.tau, **(noise or {})},
            "parameters": parameters,
            "void": policy.draws == "seeded",
            "budget": {**asdict(budget), "spent": spent} if budget else None,
            "log10_odds": asdict(odds) if odds else None,
            "claims": [asdict(claim) for claim in claims],
            "events": [asdict(event) for event in events],
        }
        print_json(document)
        return
    results().print(f"{directory}: {_executed(len(events), superseded, rebuilt)}, δ = {delta:g}", style="bold")
    if budget:
        say(f"Budget: ε = {spent:.4g} of {budget.epsilon:g} is spent at δ = {budget.delta:g}.")
    _print(policy, claims, parameters)
    if odds is not None:
        say(f"Odds: {odds_in_words(odds)}.")
        say(f"Drawn {drawn_in_words(odds)}.")


def _print(policy: Policy, claims: Sequence[Claim], parameters: int) -> None:
    """The claims about a run of this policy, or why there are none."""
    if policy.accounted and policy.tau is not None and policy.clip is not None:
        against = against_update(policy.tau, policy.clip, parameters)
        say(f"{policy.noise.capitalize()} noise, C = {policy.clip:g}, τ = {policy.tau:g}, {against}.")
    if policy.draws == "seeded":
        say('Every claim below is void: draws = "seeded", so whoever knows the seed can repeat all draws.')
    reasons = {claim.why_not for claim in claims}
    if all(claim.epsilon is None for claim in claims) and len(reasons) == 1:
        say(f"No differential-privacy figure: {reasons.pop().removeprefix('no figure for ')}.")
        return
    results().print()
    abouts = {
        "unconditional": "whatever the clusters depend on",
        "sampled": "the draw counts, and the clusters' weights",
        "paper": "as printed; it does not hold, see below",
    }
    print_rows(row for claim in claims for row in rows_of(claim, abouts[claim.name]))
    print_small_print(claims)


def _executed(count: int, superseded: int, rebuilt: int = 0) -> str:
    """How many rounds were executed.

    >>> _executed(50, 12), _executed(1, 0)
    ('50 rounds executed, 12 of them superseded', '1 round executed')
    >>> _executed(7, 3, 2)
    '7 rounds executed, 3 of them superseded, 2 rebuilt without noise'
    """
    parts = [f"{count} round{'' if count == 1 else 's'} executed"]
    parts += [f"{superseded} of them superseded"] if superseded else []
    parts += [f"{rebuilt} rebuilt without noise"] if rebuilt else []
    return ", ".join(parts)


def _curves_of_run(events: Sequence[Event], delta: float) -> list[Curve]:
    rounds = prefixes(len(events), POINTS)
    claims = [account(events[:count], delta) for count in rounds]
    return [
        Curve(
            NAMES.get(name, name) + (" (hypothetical)" if any(c.hypothetical for c in column) else ""),
            rounds,
            [epsilon_or_nan(claim) for claim in column],
        )
        for column in zip(*claims, strict=True)
        for name in [column[0].name]
    ]
