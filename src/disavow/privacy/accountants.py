"""Accountants: events and δ in, a claim out. What cannot be claimed is refused with a reason, never approximated.

*Unconditional.* Clipped updates are no longer than C, what a cluster releases is the mean of s of them, drawn
places without a client counting as 0, and weights sum to at most 1: so the aggregate is no longer than C, and no
change of one client, however it rearranges the clusters, moves it by more than 2C, whatever s is. A round is a
Gaussian mechanism of shift 2C/τ; rounds add up in squares, and δ(ε) is exact.

*Sampled.* For anchored clusters (`rounds.clustering.fixed`): borders, weights and numbers of places are public
and stay as they are when a client leaves, whose place is then empty. s of a cluster's m places are drawn without
replacement; how many of them are the client's is hypergeometric: 1 with chance q = s/m, else 0. Let its cluster
have weight p. Take the draw of s - 1 places and of one other place j from the rest as given. With the client the
round is (1 - q)·N(p·u_j/s) + q·N(p·u/s), without it (1 - q)·N(p·u_j/s) + q·N(0), about the same mean, which holds
the s - 1 places and the other clusters: where the client is drawn, it takes the place of j, and once it has left,
0 does. Hockey-stick divergences are jointly convex, so averaging over these draws makes no difference larger. What
dominates such a pair, with both contributions no longer than p·C/s, is in `sampling`. Rate and weight are each
taken at their worst over the round's clusters, so that the bound holds for every client, whatever cluster it is
in. A client whose updates are replaced by any others moves the round by up to twice as much: its figure is that of
half the noise.

*Paper.* The theorem as printed; see `theorem`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disavow.domain.strategies import NOISES
from disavow.privacy import gaussian, sampling, theorem
from disavow.privacy.events import REBUILT, Event

OBSERVER = (
    "against an observer of the global models only (no log, no proof, no spreads), with the number of rounds and "
    "the rollbacks taken as given; no claim against the server, which sees every update"
)

REPLACED = "replaced, by Rényi divergences"

_NOTHING = "no round was executed: nothing was released"


@dataclass(frozen=True)
class Claim:
    """What an accountant says. `epsilon` is None where there is no figure, and `why_not` says why.

    `hypothetical`: an assumption does not hold in this run. `void`: the draws are predictable, so nothing is
    claimed. `refuted`: as printed elsewhere, and not true. `beside` holds further figures by what they are.
    """

    name: str
    epsilon: float | None
    delta: float
    observer: str
    assumptions: tuple[str, ...]
    why_not: str = ""
    hypothetical: bool = False
    void: bool = False
    refuted: bool = False
    beside: tuple[tuple[str, float], ...] = ()
    remarks: tuple[str, ...] = ()


Accountant = Callable[[Sequence[Event], float], Claim]


def why_not(events: Sequence[Event]) -> str:
    """Return why these rounds have no figure; "" where they have one."""
    reasons = {_reason(event.mode) for event in events}
    return "; ".join(sorted(filter(None, reasons))) or ("" if events else _NOTHING)


def _reason(mode: str) -> str:
    if mode == REBUILT:
        return "no figure for rebuilt rounds: a mechanism released them without noise"
    reason = NOISES[mode].no_figure
    return f'no figure for noise.mode "{mode}": {reason}' if reason else ""


def unconditional(events: Sequence[Event], delta: float) -> Claim:
    """Claim what holds for any clustering: exact, by the sensitivity 2C of the whole aggregate.

    Args:
        events: What was released.
        delta: The δ of the figure.

    """
    reason = why_not(events)
    return Claim(
        name="unconditional",
        epsilon=None if reason else unconditional_epsilon(events, delta),
        delta=delta,
        observer=OBSERVER,
        assumptions=("any clustering and any weights, whatever they depend on; one client replaced or removed",),
        why_not=reason,
        void=_void(events),
    )


def unconditional_epsilon(events: Sequence[Event], delta: float) -> float:
    """Compute the figure of the unconditional claim.

    Args:
        events: What was released.
        delta: The δ of the figure.

    Returns:
        ε; 0 for no events.

    """
    return gaussian.epsilon_of(delta, total_shift(events))


def total_shift(events: Sequence[Event]) -> float:
    """Compute the shift μ of all rounds together."""
    return math.sqrt(math.fsum(event.shift**2 for event in events))


def sampled(events: Sequence[Event], delta: float) -> Claim:
    """Claim what holds where clusters are anchored: the client matters only if its place is drawn.

    Args:
        events: What was released.
        delta: The δ of the figure.

    Returns:
        The claim; hypothetical where clusters were not anchored.

    """
    reason = why_not(events)
    rounds = () if reason else sampling.counted(map(kind_of, events))
    loose = not all(event.fixed for event in events)
    return Claim(
        name="sampled",
        epsilon=None if reason else sampling.epsilon_of(rounds, delta),
        delta=delta,
        observer=OBSERVER,
        assumptions=(
            'anchored clusters (clustering.method "fixed"): no data decides them, borders and weights are public',
            "one client removed, its place left empty; the same in every round",
            "secret draws of the representatives",
        ),
        why_not=reason,
        hypothetical=loose,
        void=_void(events),
        beside=() if reason else ((REPLACED, sampling.renyi_epsilon_of(rounds, delta)),),
        remarks=('clusters were not fixed: it would hold with clustering.method "fixed"',) if loose else (),
    )


def kind_of(event: Event) -> sampling.Sampled:
    """Return the sampled Gaussian that dominates a round."""
    return sampling.Sampled(event.rate, event.multiplier)


def paper(events: Sequence[Event], delta: float) -> Claim:
    """Claim what the paper's theorem prints, with the true ε of the same noise and the reasons why it differs.

    Args:
        events: What was released.
        delta: The δ of the figure.

    """
    reason = why_not(events)
    shift = 0.0 if reason else math.sqrt(math.fsum(event.sigma**-2 for event in events))
    return paper_claim(shift, delta, reason, void=_void(events))


def paper_claim(shift: float, delta: float, reason: str = "", *, void: bool = False) -> Claim:
    """Claim the same for a given shift.

    Args:
        shift: √T/σ, where σ is each cluster's noise over 2Δ.
        delta: The δ of the figure.
        reason: Why there is no figure.
        void: Whether the draws are predictable.

    """
    claimed, most = theorem.claimed_epsilon(shift, delta), theorem.largest_epsilon(delta)
    beyond = f"the theorem is stated for ε below 8 ln(1/δ) = {most:.1f}; this noise would make it {claimed:.4g}"
    return Claim(
        name="paper",
        epsilon=None if reason or claimed >= most else claimed,
        delta=delta,
        observer="as printed: of the global model after T rounds",
        assumptions=("as printed: clusters of radius Δ, noise of σ·2Δ on each representative, no draw, no sum",),
        why_not=reason or (beyond if claimed >= most else ""),
        void=void,
        refuted=True,
        beside=()
        if reason
        else (
            ("truly, with its analysis noise σ·2Δ", theorem.true_epsilon_of_analysis(shift, delta)),
            ("truly, with Algorithm 1's noise σ·Δ", theorem.true_epsilon_of_algorithm(shift, delta)),
        ),
        remarks=theorem.REASONS,
    )


def _void(events: Sequence[Event]) -> bool:
    return any(event.predictable for event in events)


ACCOUNTANTS: tuple[Accountant, ...] = (unconditional, sampled, paper)
"""All of them, in the order in which a table shows them."""


def account(events: Sequence[Event], delta: float) -> tuple[Claim, ...]:
    """Ask each accountant about these rounds.

    Args:
        events: What was released.
        delta: The δ of the figures.

    """
    return tuple(accountant(events, delta) for accountant in ACCOUNTANTS)
