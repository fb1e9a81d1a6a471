"""What a run is measured by: each a function of its result line, without a value where the run has none."""

from __future__ import annotations

from statistics import fmean

from reproduction.lines import Line

SETTLED = 10
"""Rounds at the end of a run over which its accuracy is averaged."""

MEAN_OF = 5
"""Newest models of which the mean is taken where it is said that models are averaged."""


def accuracy(line: Line) -> float:
    """Of the last standing round, as a fraction."""
    return line.accuracy


def settled_accuracy(line: Line) -> float:
    """Mean over the last standing rounds: neighbouring rounds differ by chance, the more the fewer clusters."""
    standing = {done.number: done.accuracy for done in line.rounds}  # of each number, the one executed last
    return fmean(standing[number] for number in sorted(standing)[-SETTLED:])


def averaged_accuracy(line: Line) -> float | None:
    """Mean over the last standing rounds, each time of the mean of the newest models; none in older lines."""
    return fmean(line.averaged) if line.averaged else None


def seconds_per_request(line: Line) -> float | None:
    """Mean over the requests of what honouring one took; none without requests."""
    return fmean(request.seconds for request in line.requests) if line.requests else None


def client_epochs_per_request(line: Line) -> float | None:
    """Mean over the requests of the local epochs that all clients together ran for one; none without requests."""
    return fmean(request.client_epochs for request in line.requests) if line.requests else None


def retrained_rounds(line: Line) -> float:
    """Rounds that all requests together had retrained or rebuilt."""
    return float(sum(request.rounds for request in line.requests))


def megabytes(line: Line) -> float:
    """On disk at the end; a megabyte is 10⁶ bytes."""
    return line.bytes.total / 1e6
