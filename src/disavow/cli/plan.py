"""`disavow plan`: what erasures will cost, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from disavow.cli.options import check_plot, require, write_plot
from disavow.cli.output import Bar, print_json, progress, results
from disavow.erasure.plan import CLUSTERINGS, UNITS, Clustering, Estimate, Federation, Plan, Unit
from disavow.erasure.plan import plan as simulate
from disavow.erasure.simulated import Fresh, Sticky
from disavow.federation import Federation as OpenRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COSTS = "  k   x  clusters            rollbacks       retrained rounds  no rollback at all"
HEADER = f"{_COSTS}  likely at request"
_HEADER_OF_PURGES = f"{_COSTS}     rounds of purges"
"""With purges; the request at which a rollback becomes likely is in the JSON alone, so that a terminal has room."""
_FEWEST = 2
_LARGEST = 50_000_000
_MOST_SIMULATIONS = 10_000_000
_LARGEST_SEED = 2**32 - 1
_MOST_DAYS = 3_650
_MOST_ROUNDS_A_DAY = 100_000
# blue and vermillion of Okabe and Ito's palette, and two shapes: told apart by everyone, and in grey
_LOOKS: dict[Clustering, dict[str, Any]] = {
    Fresh.name: {"color": "#D55E00", "marker": "o"},
    Sticky.name: {"color": "#0072B2", "marker": "D"},
}


def plan(
    run: Path | None = None,
    *,
    clients: int | None,
    rounds: int | None,
    ks: Sequence[int],
    xs: Sequence[int],
    representatives: int | None = None,
    request_rate: float,
    unit: str = "client",
    simulations: int,
    seed: int,
    plot: Path | None,
    as_json: bool,
    purge_every: str | None = None,
    rounds_per_day: float = 1.0,
) -> None:
    """Simulate every choice with both kinds of clusters; print, and plot when asked to.

    What is not given is that of the run.
    """
    if run is not None:
        with OpenRun.open(run) as found:
            policy = found.ledger.policy
            clients = len(found.clients()) if clients is None else clients
            rounds = found.settings.rounds if rounds is None else rounds
        ks, xs = ks or [policy.k], xs or [policy.x]
        representatives = policy.representatives if representatives is None else representatives
    representatives = 1 if representatives is None else representatives
    given = {"clients": clients, "rounds": rounds, "k": ks or None, "x": xs or None}
    for option, value in given.items():
        require(value is not None, option, "not given", "a number, or a RUN to take it from")
    require(unit in UNITS, "unit", unit, " or ".join(UNITS))
    period = _period(purge_every, rounds_per_day)
    federation = Federation(clients or 0, rounds or 0, request_rate, cast("Unit", unit), period)
    _check(federation, ks, xs, representatives, simulations, seed)
    if plot is not None:
        check_plot(plot)
    plans = _simulate(federation, _choices(ks, xs, representatives), representatives, simulations, seed)
    if plot is not None:
        write_plot(plot, figure(federation, plans))
    if as_json:
        document = {**asdict(federation), "representatives": representatives, "seed": seed}
        print_json({**document, "plans": [asdict(found) for found in plans]})
    else:
        _print(federation, plans)


def _period(every: str | None, rounds_per_day: float) -> int | None:
    """How many rounds lie between two purges."""
    if every is None:
        return None
    days = every.removesuffix("d")
    usable = every.endswith("d") and days.isdecimal() and 1 <= int(days) <= _MOST_DAYS
    require(usable, "purge-every", every, f"days such as 30d, 1d to {_MOST_DAYS}d")
    fits = 0 < rounds_per_day <= _MOST_ROUNDS_A_DAY
    require(fits, "rounds-per-day", rounds_per_day, f"a number above 0, up to {_MOST_ROUNDS_A_DAY:,}")
    return max(1, round(int(days) * rounds_per_day))


def _check(
    federation: Federation, ks: Sequence[int], xs: Sequence[int], representatives: int, simulations: int, seed: int
) -> None:
    """Refuse, before any work, what no run could have."""
    clients, rounds, rate = federation.clients, federation.rounds, federation.request_rate
    require(clients >= _FEWEST, "clients", clients, f"a whole number of at least {_FEWEST}")
    require(rounds >= 1, "rounds", rounds, "a whole number of at least 1")
    fits = clients * rounds <= _LARGEST
    require(fits, "rounds", rounds, f"clients times rounds up to {_LARGEST:,}; there are {clients} clients")
    require(0 <= rate <= 1, "request-rate", rate, "0 to 1, the chance of a request after each round")
    for k in ks:
        require(_FEWEST <= k <= clients, "k", k, f"{_FEWEST} to the number of clients, which is {clients}")
    for x in xs:
        require(1 <= x <= max(ks), "x", x, f"1 to the largest --k, which is {max(ks)}")
    require(representatives >= 1, "representatives", representatives, "a whole number of at least 1")
    needed = min(xs) + representatives - 1
    for k in ks:  # what was asked for must not drop out of the table unsaid
        require(k >= min(xs), "k", k, f"at least the smallest --x, which is {min(xs)}")
        fits = needed <= k and (representatives < k or representatives == 1)
        most = max(1, min(k - 1, k - min(xs) + 1))
        require(fits, "representatives", representatives, f"1 to {most}: fewer than k, and x + s - 1 are needed")
    fits = _FEWEST <= simulations <= _MOST_SIMULATIONS
    require(fits, "simulations", simulations, f"{_FEWEST} to {_MOST_SIMULATIONS:,}")
    require(0 <= seed <= _LARGEST_SEED, "seed", seed, f"0 to {_LARGEST_SEED}")


def _choices(ks: Sequence[int], xs: Sequence[int], representatives: int) -> list[tuple[int, int]]:
    return [(k, x) for k in sorted(set(ks)) for x in sorted(set(xs)) if x + representatives - 1 <= k]


def _simulate(
    federation: Federation, choices: Sequence[tuple[int, int]], representatives: int, simulations: int, seed: int
) -> list[Plan]:
    """Fresh and sticky, one after the other, for each choice. With s drawn of each cluster, x + s - 1 survivors of
    one must be left.
    """
    found = []
    with Bar(progress(), "simulating runs", 2 * len(choices) * simulations) as shown:
        for k, x in choices:
            for clustering in CLUSTERINGS:
                # each starts from the same seed, so that no row depends on which others were asked for
                rng = np.random.default_rng(seed)
                made = simulate(
                    federation,
                    k=k,
                    x=x + representatives - 1,
                    clustering=clustering,
                    simulations=simulations,
                    rng=rng,
                    on_progress=shown.advance,
                )
                found.append(replace(made, x=x))
    return found


def _print(federation: Federation, plans: Sequence[Plan]) -> None:
    console = results()
    console.print(f"{_about(federation, plans)}; 95 % intervals in brackets\n")
    console.print(_HEADER_OF_PURGES if federation.purge_every else HEADER, style="bold")
    for row in plans:
        console.print(line(row))
    console.print()
    for sentence in reading(federation, plans):
        console.print(sentence)


def _about(federation: Federation, plans: Sequence[Plan]) -> str:
    rate, rounds = federation.request_rate, federation.rounds
    what = "requests for records" if federation.unit == "record" else "requests"
    return (
        f"{federation.clients} clients, {rounds} rounds, request rate {rate:g} (about {rate * rounds:.3g} {what} "
        f"a run),\n{_purged(federation)}{plans[0].simulations:,} simulated runs a row"
    )


def _purged(federation: Federation) -> str:
    every = federation.purge_every
    return "" if every is None else f"leavers purged every {every} rounds and after the last,\n"


def line(row: Plan) -> str:
    """One row under `HEADER`."""
    none, likely = row.chance_of_none, f"not within {row.requests_within}"
    chance = f"{none.mean:.1%} ({none.low:.1%}-{none.high:.1%})".replace("%-", "-").replace("100.0", "100")
    last = f"{row.likely_at or likely:>18}" if row.purged_rounds is None else f"{_shown(row.purged_rounds, 1):>20}"
    return (
        f"{row.k:3d} {row.x:3d}  {row.clustering:8} {_shown(row.rollbacks, 2):>20} "
        f"{_shown(row.retrained_rounds, 1):>22} {chance:>19} {last}"
    )


def _shown(value: Estimate, digits: int) -> str:
    return f"{value.mean:.{digits}f} ({value.low:.{digits}f}-{value.high:.{digits}f})"


def reading(federation: Federation, plans: Sequence[Plan]) -> Iterator[str]:
    """What the table says, in sentences."""
    if all(row.rollbacks.mean == 0 for row in plans):
        yield "No simulated run rolled back: each of these choices is expected to cost no retraining."
    else:
        # x is what a leaver is promised, so only choices of equal x are compared
        least = [_least([row for row in plans if row.x == x]) for x in sorted({row.x for row in plans})]
        yield f"The least retraining, on top of {federation.rounds} rounds: {'; '.join(least)}."
    yield from _what_sticky_buys(plans)
    if any(row.purged_rounds is not None for row in plans):
        yield "Rounds of purges come on top of retrained rounds: everybody is answered at once, and removed later."
    if len({(row.k, row.x) for row in plans}) > 1:
        yield "Retraining is not all: a smaller x promises a leaver less, a larger k draws fewer clients a round."
    early = [row for row in plans if row.ended_early.mean > 0]
    if early:
        most = max(row.ended_early.mean for row in early)
        yield (
            f"Up to {most:.1%} of the runs were left with fewer than k clients and ended there: "
            "what they could not retrain is not counted."
        )


def _what_sticky_buys(plans: Sequence[Plan]) -> Iterator[str]:
    pairs = [(fresh.retrained_rounds.mean, sticky.retrained_rounds.mean) for fresh, sticky in _pairs(plans)]
    saved = sorted((fresh - sticky) / fresh for fresh, sticky in pairs if fresh > 0)
    if not saved:
        return
    span = f"{saved[0]:.0%}" if len(saved) == 1 else f"{saved[0]:.0%} to {saved[-1]:.0%}"
    if len(pairs) == 1:
        span = f"{pairs[0][0] - pairs[0][1]:.1f} of {pairs[0][0]:.1f} retrained rounds ({span})"
    else:
        span += " of the retrained rounds, depending on k and x"
    yield f"Sticky clusters save {span}." if saved[0] >= 0 else f"Sticky clusters do not pay everywhere: {span}."


def _pairs(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Plan]]:
    fresh = {(row.k, row.x): row for row in plans if row.clustering == Fresh.name}
    return ((fresh[row.k, row.x], row) for row in plans if row.clustering == Sticky.name)


def _least(rows: Sequence[Plan]) -> str:
    """The choice that needs the least retraining, with those that cannot be told from it."""
    lowest = min((row.retrained_rounds for row in rows), key=lambda value: value.mean)
    names = [f"k = {row.k} {row.clustering}" for row in rows if row.retrained_rounds.low <= lowest.high]
    return f"at x = {rows[0].x}, {' or '.join(names)} ({lowest.mean:.1f})"


def figure(federation: Federation, plans: Sequence[Plan]) -> Figure:
    """Three panels side by side, a line for each choice, an interval for each estimate."""
    from matplotlib.figure import Figure

    choices = list(dict.fromkeys((row.k, row.x) for row in plans))
    drawn = Figure(figsize=(10, 2.1 + 0.42 * len(choices)), dpi=150, layout="constrained")
    panels = drawn.subplots(1, 3, sharey=True)
    _panel(panels[0], plans, [row.rollbacks for row in plans], "rollbacks per run")
    _panel(panels[1], plans, [row.retrained_rounds for row in plans], "retrained rounds per run")
    percent = [Estimate(*(100 * value for value in asdict(row.chance_of_none).values())) for row in plans]
    _panel(panels[2], plans, percent, "runs without any rollback [%]")
    panels[2].set_xlim(-4, 104)
    panels[0].set_yticks(range(len(choices)), [f"k = {k}, x = {x}" for k, x in choices])
    panels[0].set_ylim(len(choices) - 0.5, -0.5)
    panels[0].set_ylabel("choice")
    handles, labels = panels[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    drawn.suptitle(f"{_about(federation, plans)}; means and 95 % intervals", fontsize="medium")
    return drawn


def _panel(panel: Axes, plans: Sequence[Plan], values: Sequence[Estimate], title: str) -> None:
    choices = list(dict.fromkeys((row.k, row.x) for row in plans))
    for clustering, offset in zip(CLUSTERINGS, (-0.13, 0.13), strict=True):
        chosen = [(row, value) for row, value in zip(plans, values, strict=True) if row.clustering == clustering]
        panel.errorbar(
            [value.mean for _, value in chosen],
            [choices.index((row.k, row.x)) + offset for row, _ in chosen],
            xerr=np.array([[v.mean - v.low, v.high - v.mean] for _, v in chosen]).T,
            linestyle="none",
            markersize=4.5,
            capsize=4.5,
            label=f"{clustering} clusters",
            **_LOOKS[clustering],
        )
    panel.set_xlabel(title)
    right = max(1.0, *(value.high for value in values)) * 1.04
    panel.set_xlim(-0.04 * right, right)
    panel.grid(axis="x", color="0.85")
    for place in range(0, len(choices), 2):
        panel.axhspan(place - 0.5, place + 0.5, color="0.955", zorder=0)
    panel.tick_params(axis="y", length=0)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
