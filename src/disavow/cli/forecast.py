"""The account of a run that is only thought of: what so much noise would give, or the noise for a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from disavow.cli.claims import (
    NAMES,
    Row,
    against_update,
    epsilon_or_nan,
    noise_as_json,
    print_rows,
    print_small_print,
    rows_of,
    say,
    times,
    useless,
)
from disavow.cli.curves import Curve, figure
from disavow.cli.options import require, write_plot
from disavow.cli.output import print_json, results
from disavow.privacy import gaussian, sampling
from disavow.privacy.accountants import OBSERVER, Claim, account, sampled, unconditional
from disavow.privacy.calibration import Setting, prefixes, sampled_tau, unconditional_tau
from disavow.privacy.events import fixed_sizes
from disavow.privacy.odds import OBSERVER as ODDS_OBSERVER
from disavow.privacy.odds import least_confidence, ratio_for, sigma_for
from disavow.privacy.theorem import claimed_epsilon

DELTA = 1e-5
POINTS = 40
"""Of a curve, at most."""

_CLIP = 1.0
_MODEL = "lenet5"
_DIGITS = 5


@dataclass(frozen=True)
class AccountOptions:
    """What was said on the command line; None for what was not."""

    rounds: int | None = None
    clients: int | None = None
    k: int | None = None
    representatives: int | None = None
    sigma: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    model: str | None = None
    parameters: int | None = None
    odds: float | None = None


def foretell(options: AccountOptions, *, plot: Path | None, as_json: bool) -> None:
    """What so much noise would give."""
    setting, delta, sigma = _setting(options), options.delta or DELTA, options.sigma or 1.0
    tau, parameters = setting.tau_of(sigma), _parameters(options)
    claims = claims_of(setting, sigma, delta)
    if plot is not None:
        write_plot(plot, figure(_curves_of_plan(setting, sigma, delta), _title(setting, delta)))
    if as_json:
        document = {
            **_setting_as_json(setting, delta, parameters),
            "sigma": sigma,
            "tau": tau,
            **noise_as_json(tau, setting.clip, parameters),
            "plain": plain_epsilon(setting, sigma, delta),
            "drawing": drawing_epsilon(setting, sigma, delta),
            "claims": [asdict(claim) for claim in claims],
        }
        print_json(document)
        return
    console = results()
    console.print(_title(setting, delta), style="bold")
    say(_assumed(setting))
    say(
        f"Noise σ = {sigma:g} on each cluster, in units of {_unit(setting)}, is τ = {tau:.4g} on the aggregate "
        f"(C = {setting.clip:g}), {against_update(tau, setting.clip, parameters, _network(options))}."
    )
    console.print()
    print_rows(_rows_of_plan(setting, sigma, delta, claims))
    print_small_print(claims)


def claims_of(setting: Setting, sigma: float, delta: float) -> tuple[Claim, ...]:
    """What each accountant would say, of fixed clusters."""
    return account(setting.events(setting.tau_of(sigma), fixed=True), delta)


def plain_epsilon(setting: Setting, sigma: float, delta: float) -> float:
    """One cluster's noise alone: nobody is drawn, nothing is summed."""
    return gaussian.epsilon_of(delta, math.sqrt(setting.rounds) / sigma)


def drawing_epsilon(setting: Setting, sigma: float, delta: float) -> float:
    """One cluster's noise, and that a client matters only if it is drawn."""
    return sampling.epsilon_of(((sampling.Sampled(setting.rate, 2 * sigma), setting.rounds),), delta)


def _rows_of_plan(setting: Setting, sigma: float, delta: float, claims: Sequence[Claim]) -> Iterator[Row]:
    by_name = {claim.name: claim for claim in claims}
    drawn = f"{setting.representatives} in {min(setting.sizes)}"
    yield Row("plain", plain_epsilon(setting, sigma, delta), "the noise of one cluster alone: no draw, no sum")
    yield Row("drawing", drawing_epsilon(setting, sigma, delta), f"a client matters only if it is drawn, {drawn}")
    yield from rows_of(by_name["sampled"], "the draw, and the sum of all clusters' noises")
    yield from rows_of(by_name["unconditional"], "the same τ, any clustering: neither draw nor sum")
    yield from rows_of(by_name["paper"], "as printed; it does not hold, see below")


def _curves_of_plan(setting: Setting, sigma: float, delta: float) -> list[Curve]:
    rounds = prefixes(setting.rounds, POINTS)
    some = [replace(setting, rounds=count) for count in rounds]
    tau = setting.tau_of(sigma)
    return [
        Curve(
            "unconditional", rounds, [epsilon_or_nan(unconditional(s.events(tau, fixed=True), delta)) for s in some]
        ),
        Curve("plain", rounds, [plain_epsilon(s, sigma, delta) for s in some]),
        Curve(NAMES["paper"], rounds, [claimed_epsilon(math.sqrt(s.rounds) / sigma, delta) for s in some]),
        Curve("drawing", rounds, [drawing_epsilon(s, sigma, delta) for s in some]),
        Curve("sampled", rounds, [epsilon_or_nan(sampled(s.events(tau, fixed=True), delta)) for s in some]),
    ]


# -- the noise for a figure --------------------------------------------------------------------------------------


def calibrate(options: AccountOptions, epsilon: float, *, plot: Path | None, as_json: bool) -> None:
    """The noise that keeps to ε."""
    setting, delta, parameters = _setting(options), options.delta or DELTA, _parameters(options)
    found = {
        "unconditional": rounded_up(unconditional_tau(setting, epsilon, delta)),
        "sampled": rounded_up(sampled_tau(setting, epsilon, delta)),
    }
    if plot is not None:
        write_plot(plot, figure(_curves_of_calibration(setting, found, delta), _title(setting, delta), epsilon))
    if as_json:
        noises = {
            name: {"tau": tau, "sigma": setting.sigma_of(tau), **noise_as_json(tau, setting.clip, parameters)}
            for name, tau in found.items()
        }
        print_json({**_setting_as_json(setting, delta, parameters), "epsilon": epsilon, "noise": noises})
        return
    console = results()
    console.print(f"Noise for ε = {epsilon:g}: {_title(setting, delta)}", style="bold")
    say(_assumed(setting))
    console.print()
    named = ", ".join([f"d = {parameters:,}", *filter(None, [_network(options)])])
    console.print(
        f"claim                  τ           σ  √d·τ/C, against the largest update ({named})", style="bold"
    )
    for name, tau in found.items():
        size = times(tau, setting.clip, parameters) + useless(tau, setting.clip, parameters)
        console.print(f"{name:13} {tau:>10.5g}  {setting.sigma_of(tau):>10.4g}  {size}")
    console.print()
    say(
        f'In the settings: noise.mode "calibrated", noise.clip {setting.clip:g}, noise.tau as above, '
        f"privacy.epsilon {epsilon:g}, privacy.delta {delta:g}. The smaller τ is enough only with "
        'clustering.method "fixed" and clients of equal shares; with unequal ones the heaviest cluster decides, '
        "and the budget stops the run earlier. Rounds that an erasure retrains are spent again."
    )
    say(f"σ is each cluster's noise over {_unit(setting)} that adds up to the same. Both hold {OBSERVER}.")


def calibrate_odds(rounds: int, odds: float, *, as_json: bool) -> None:
    """The noise that keeps every client's odds over all rounds."""
    sigma, ratio = sigma_for(odds, rounds), ratio_for(odds)
    if as_json:
        document = {"rounds": rounds, "odds": odds, "ratio": ratio, "mode": "sensitivity", "sigma": sigma}
        print_json({**document, "least_confidence": least_confidence(ratio), "observer": ODDS_OBSERVER})
        return
    results().print(
        f"Noise for odds of {odds:g} over {rounds:,} round{'' if rounds == 1 else 's'}: σ = {sigma:g}", style="bold"
    )
    say(
        f'In the settings: noise.mode "sensitivity", noise.sigma {sigma:g}, and deniability.odds {odds:g} to hold '
        f"answers to it. Each round's ratio is at most {1 / sigma:.4g}, that of all rounds {ratio:.4g}, for every "
        "client, however many there are and however unequal their clusters. Whoever kept the models of superseded "
        "rounds has seen more rounds: count them in --rounds."
    )
    say(
        "The noise in the model is σ·p·spread/s of the widest cluster: it shrinks with more clients, with more "
        "representatives (clustering.representatives) and with fewer rounds (training.epochs makes them longer)."
    )
    say(
        f"The odds hold {ODDS_OBSERVER}. They are exceeded for 5 of 100 draws of the noise; for at most "
        f"{100 * (1 - least_confidence(ratio)):.1f} where ratios depend on earlier noise in the worst way."
    )


def rounded_up(tau: float) -> float:
    """Five digits, and never less: what is printed is what keeps to the figure.

    >>> rounded_up(0.3212208)
    0.32123
    """
    step = 10.0 ** (math.floor(math.log10(tau)) - _DIGITS + 1)
    shown = float(f"{math.ceil(tau / step) * step:.{_DIGITS}g}")
    return shown if shown >= tau else float(f"{shown + step:.{_DIGITS}g}")


def _curves_of_calibration(setting: Setting, found: dict[str, float], delta: float) -> list[Curve]:
    rounds = prefixes(setting.rounds, POINTS)
    accountants = {"unconditional": unconditional, "sampled": sampled}
    return [
        Curve(
            f"{name}, τ = {tau:.4g}",
            rounds,
            [epsilon_or_nan(accountants[name](setting.events(tau, fixed=True)[:count], delta)) for count in rounds],
        )
        for name, tau in found.items()
    ]


def _setting(options: AccountOptions) -> Setting:
    sizes = fixed_sizes(options.clients or 0, options.k or 1)
    return Setting(options.rounds or 1, sizes, options.clip or _CLIP, options.representatives or 1)


def _unit(setting: Setting) -> str:
    """How far another representative moves the mean of a cluster's."""
    return "2C" if setting.representatives == 1 else f"2C/{setting.representatives}"


def _parameters(options: AccountOptions) -> int:
    """How many numbers the model has; networks are those for 28x28 pixels and ten classes, as in the paper."""
    if options.parameters is not None:
        return options.parameters
    from disavow.engines.state import layout_of
    from disavow.models import NETWORKS, build

    name = options.model or _MODEL
    require(name in NETWORKS, "model", name, ", ".join(NETWORKS))
    return layout_of(build(name, (1, 28, 28), 10, seed=0)).size


def _network(options: AccountOptions) -> str:
    return "" if options.parameters is not None else options.model or _MODEL


def _title(setting: Setting, delta: float) -> str:
    rounds = f"{setting.rounds} round{'' if setting.rounds == 1 else 's'}"
    least, most, count = min(setting.sizes), max(setting.sizes), len(setting.sizes)
    clusters = f"{count} cluster{'' if count == 1 else 's'} of {least}" + (f" to {most}" if most > least else "")
    drawn = "" if setting.representatives == 1 else f", {setting.representatives} drawn of each"
    return f"{rounds}, {sum(setting.sizes)} clients in {clusters}{drawn}, δ = {delta:g}"


def _assumed(setting: Setting) -> str:
    return (
        "Clusters are taken to be fixed ones (by a hash of ids, as equal as can be, and anchored) of clients with "
        f"equal shares of the data: the largest weight is {max(setting.weights):.4g}."
    )


def _setting_as_json(setting: Setting, delta: float, parameters: int) -> dict[str, Any]:
    return {
        "rounds": setting.rounds,
        "clients": sum(setting.sizes),
        "cluster_sizes": list(setting.sizes),
        "representatives": setting.representatives,
        "clip": setting.clip,
        "delta": delta,
        "parameters": parameters,
    }
