"""Claims as people and machines read them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from disavow.cli.output import results
from disavow.privacy.accountants import OBSERVER, Claim
from disavow.privacy.calibration import HOPELESS, noise_ratio

NAMES = {"paper": "paper's theorem"}
"""Where a claim is called otherwise than in the code."""

_WIDTH = 100
_THOUSAND = 1000
_ABOUT = 51
"""Where the last column begins."""


@dataclass(frozen=True)
class Row:
    """One line of a table: a figure, and what it counts."""

    name: str
    epsilon: float | None
    about: str


def noise_as_json(tau: float, clip: float, parameters: int) -> dict[str, Any]:
    """The size of the noise for machines."""
    ratio = noise_ratio(tau, clip, parameters)
    return {"noise_over_largest_update": ratio, "useful": ratio <= HOPELESS}


def figure(value: float) -> str:
    """Four digits, and all those before the point.

    >>> figure(1.41862), figure(25949.3)
    ('1.419', '25,949')
    """
    return f"{value:,.0f}" if value >= _THOUSAND else f"{value:.4g}"


def against_update(tau: float, clip: float, parameters: int, network: str = "") -> str:
    """The size of the noise in words."""
    named = f", {network}" if network else ""
    held = f"{times(tau, clip, parameters)} the largest update (√d·τ/C, d = {parameters:,}{named})"
    return held + useless(tau, clip, parameters)


def times(tau: float, clip: float, parameters: int) -> str:
    """The length of the noise as a multiple of the largest update's."""
    ratio = noise_ratio(tau, clip, parameters)
    return f"{ratio:,.0f} times" if ratio >= _WIDTH else f"{ratio:.3g} times"


def useless(tau: float, clip: float, parameters: int) -> str:
    """What to say of noise that is too much; "" of other noise."""
    return ": no useful model" if noise_ratio(tau, clip, parameters) > HOPELESS else ""


def epsilon_or_nan(claim: Claim) -> float:
    """Its figure, for a curve."""
    return math.nan if claim.epsilon is None else claim.epsilon


def rows_of(claim: Claim, about: str) -> Iterator[Row]:
    """The line of a claim, and those of the figures beside it."""
    status = [word for word in ("void", "hypothetical") if getattr(claim, word)]
    yield Row(NAMES.get(claim.name, claim.name), claim.epsilon, "; ".join([*status, claim.why_not or about]))
    for name, value in claim.beside:
        yield Row(f"  {name}", value, "")


def print_rows(rows: Iterable[Row]) -> None:
    """The table."""
    console = results()
    console.print("claim                                          ε   what it counts", style="bold")
    for row in rows:
        shown = "-" if row.epsilon is None else figure(row.epsilon)
        about = textwrap.wrap(row.about, _WIDTH - _ABOUT) or [""]
        console.print(f"{row.name:38} {shown:>9}   {about[0]}".rstrip())
        for more in about[1:]:
            console.print(" " * _ABOUT + more)


def print_small_print(claims: Sequence[Claim]) -> None:
    """Against whom each figure holds, what it assumes, and where the paper's goes wrong."""
    results().print()
    for claim in claims:
        if claim.refuted:
            say(f"The {NAMES[claim.name]} does not hold: {'; '.join(claim.remarks)}.")
        else:
            remarks = "".join(f" Here {remark}." for remark in claim.remarks)
            say(f"{claim.name} assumes: {'; '.join(claim.assumptions)}.{remarks}")
    say(f"unconditional and sampled hold {OBSERVER}.")


def say(text: str) -> None:
    """A paragraph that fits a narrow terminal."""
    results().print(textwrap.fill(text, _WIDTH, subsequent_indent="  "))
