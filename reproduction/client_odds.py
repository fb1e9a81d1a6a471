"""How well noise hides each client of a run: the odds of its rounds, and composed over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from disavow.ledger import Ledger
from disavow.proof.bounds import Bounds, bounds_of, total_ratio
from disavow.rounds.noise import noise_named


@dataclass(frozen=True)
class ClientOdds:
    """log10 γ for each client: of its rounds, and composed over them. None: no noise hides anybody."""

    rounds: list[float] | None
    composed: list[float] | None


def odds_of_clients(ledger: Ledger) -> ClientOdds:
    """Compute the odds of all clients of a run without requests, whose noise is Gaussian.

    Args:
        ledger: The run.

    """
    drawn = ledger.policy.representatives
    noise = noise_named(ledger.policy)
    bounds: dict[str, list[Bounds]] = {}
    for summary in ledger.summaries():
        clusters = ledger.round(summary.number).clusters
        tau = noise.tau(ledger.policy, [(each.weight, each.spread) for each in clusters])
        for each in clusters:
            mine = bounds_of(weight=each.weight, spread=each.spread, tau=tau, representatives=drawn)
            for client in each.clients:
                bounds.setdefault(client, []).append(mine)
    per_round = [each.log10_odds for many in bounds.values() for each in many]
    composed = [Bounds(0.0, total_ratio(many)).log10_odds for many in bounds.values()]
    return ClientOdds(_all_known(per_round), _all_known(composed))


def _all_known(each_of: Sequence[float | None]) -> list[float] | None:
    known = [each for each in each_of if each is not None]
    return known if len(known) == len(each_of) else None
