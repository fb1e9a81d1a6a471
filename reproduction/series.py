"""What a run was like over its rounds: the lines of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Literal

from disavow.compare.report import Estimate
from reproduction.lines import Line

Series = list[float]


def served(line: Line) -> Series:
    """Test accuracy of the model in use at the end of each round, when the requests after it had been honoured."""
    found: list[tuple[int, float]] = []
    for done in line.rounds:
        if done.kind == "trained":
            found.append((done.number, done.accuracy))
        elif found and done.number == found[-1][0]:  # the last of a rebuild has the number of the round it replaces
            found[-1] = (done.number, done.accuracy)
    return [accuracy for _, accuracy in found]


def answers(line: Line) -> Series:
    """Test accuracy of the model that is served right after each request was answered.

    FedEraser rebuilds fewer rounds than it undoes, and the others are trained on top, after the answer.
    """
    found, position, standing = [], 0, 0
    for request in line.requests:
        while standing < request.after_round:
            standing = line.rounds[position].number
            position += 1
        position += request.rounds
        standing = line.rounds[position - 1].number
        found.append(line.rounds[position - 1].accuracy)
    return found


def spent(line: Line, on: Literal["seconds", "client_epochs"]) -> Series:
    """What all requests up to each round had taken together."""
    last = max((done.number for done in line.rounds), default=0)
    by_round = [0.0] * (last + 1)
    for request in line.requests:
        by_round[min(request.after_round, last)] += getattr(request, on)
    return list(accumulate(by_round))[1:]


def distance(line: Line) -> Series | None:
    """To FedAvg's model, after each standing round."""
    return None if line.distance_to_fedavg is None else list(line.distance_to_fedavg)


def mean(lines: Iterable[Line], series: Callable[[Line], Sequence[float] | None]) -> Series:
    """The mean of several runs, round by round, as far as all of them go."""
    found = [one for line in lines if (one := series(line))]
    return [fmean(values) for values in zip(*found, strict=False)]


def at_the_end(lines: Iterable[Line], series: Callable[[Line], Sequence[float] | None]) -> Estimate | None:
    """The last value that every run has: one for each seed, as a mean over x. None without runs."""
    found = [(line.seed, one) for line in lines if (one := series(line))]
    if not found:
        return None
    last = min(len(one) for _, one in found) - 1
    seeds = sorted({seed for seed, _ in found})
    return Estimate(tuple(fmean(one[last] for of, one in found if of == seed) for seed in seeds))
