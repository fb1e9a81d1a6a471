"""Odds over all rounds, before and after they could be chosen: which runs are of one scheme, and their table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from disavow.proof.bounds import as_odds
from reproduction.markdown import Piece
from reproduction.odds_lines import OddsLine


class Scheme(NamedTuple):
    """How federations are trained and perturbed."""

    noise: str
    representatives: int
    rounds: int
    epochs: int

    def __str__(self) -> str:
        noise = "the paper's noise" if self.noise == "paper" else "noise by sensitivity"
        return f"{noise}, {self.representatives} drawn, {self.rounds} rounds of {self.epochs} epochs"


def by_scheme(lines: Iterable[OddsLine]) -> dict[Scheme, list[OddsLine]]:
    """Runs with odds, by their scheme; those that noise destroyed before the last round are left out."""
    held = [line for line in {line.key: line for line in lines}.values() if line.worst_composed]
    longest: dict[tuple[str, int, int], int] = {}
    for line in held:
        alike = line.noise, line.representatives, line.epochs
        longest[alike] = max(longest.get(alike, 0), line.rounds)
    found: dict[Scheme, list[OddsLine]] = {}
    for line in held:
        rounds = longest[line.noise, line.representatives, line.epochs]
        if line.rounds == rounds:
            found.setdefault(Scheme(line.noise, line.representatives, rounds, line.epochs), []).append(line)
    return dict(sorted(found.items()))


def points_lost(line: OddsLine) -> float:
    """Accuracy minus that of FedAvg with the same rounds and epochs, in points."""
    return 100 * (line.accuracy - line.fedavg_accuracy)


def composed_odds_table(lines: Iterable[OddsLine]) -> str:
    """Accuracy, and the odds over all rounds of the median client and of the worst: a table in Markdown."""
    lines = list(lines)
    tried: dict[_Federation, set[int]] = {}
    for line in lines:
        tried.setdefault(_federation(line), set()).add(line.seed)
    pieces = [
        Piece(
            str(scheme),
            ("clients", "σ", "accuracy", "of FedAvg's", "points", "seeds", "median client", "worst client"),
            tuple(
                _row([line for line in runs if (line.clients, line.sigma) == at], tried)
                for at in sorted({(line.clients, line.sigma) for line in runs})
            ),
            {},
        ).markdown()
        for scheme, runs in by_scheme(lines).items()
    ]
    about = (
        "Odds are means over seeds of their logarithms; points: mean, and range over seeds. Models that noise "
        "destroyed before the last round are left out: *2 of 3* is the mean of two seeds where the third was "
        "destroyed; where all were, there is no line."
    )
    return "\n".join([f"# Odds over all rounds\n\n{about}\n", *pieces])


_Federation = tuple[str, int, int, int, float]


def _federation(line: OddsLine) -> _Federation:
    """What seeds of a line of the table share: not the rounds, fewer where noise destroyed the model."""
    return line.noise, line.representatives, line.epochs, line.clients, line.sigma


def _row(runs: Sequence[OddsLine], tried: Mapping[_Federation, set[int]]) -> tuple[str, ...]:
    lost = [points_lost(line) for line in runs]
    seeds, of = len({line.seed for line in runs}), len(tried[_federation(runs[0])])
    return (
        f"{runs[0].clients:,}",
        f"{runs[0].sigma:g}",
        f"{fmean(line.accuracy for line in runs):.3f}",
        f"{fmean(line.fedavg_accuracy for line in runs):.3f}",
        f"{fmean(lost):+.1f} ({min(lost):+.1f} to {max(lost):+.1f})",
        f"{seeds}" if seeds == of else f"{seeds} of {of}",
        as_odds(fmean(line.log10_gamma_composed or 0.0 for line in runs)),
        as_odds(fmean(line.worst_composed or 0.0 for line in runs)),
    )
