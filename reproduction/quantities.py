"""What a run is measured by: each a function of its result line, without a value where the run has none."""

from __future__ import annotations

from statistics import fmean

from reproduction.lines import Line
from reproduction.series import answers

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


def rollbacks_per_request(line: Line) -> float | None:
    """The share of the requests that had to be answered by a rollback; none without requests."""
    return fmean(request.verdict == "rollback" for request in line.requests) if line.requests else None


def client_epochs(line: Line) -> float:
    """Local epochs of the whole run, summed over clients: training, requests, and rounds trained on top."""
    return line.client_epochs


def accuracy_at_answers(line: Line) -> float | None:
    """Mean over the requests of the accuracy right after each was answered; none without requests."""
    return fmean(found) if (found := answers(line)) else None


def accuracy_at_last_answer(line: Line) -> float | None:
    """The accuracy right after the last request was answered; none without requests."""
    return found[-1] if (found := answers(line)) else None


def width_over_random(line: Line) -> float | None:
    """Mean spread of the clusters, as a multiple of that of random groups; none without clusters."""
    return line.width.over_random if line.width else None


def width_over_update(line: Line) -> float | None:
    """Mean spread of the clusters, as a multiple of the median update's norm; none without clusters."""
    return line.width.over_update if line.width else None


def median_odds(line: Line) -> float | None:
    """log10 of the odds over all standing rounds, of the median client; none where nothing hides anybody."""
    return line.hidden.median_composed if line.hidden else None


def worst_odds(line: Line) -> float | None:
    """The same of the client that is worst off."""
    return line.hidden.worst_composed if line.hidden else None


def delta_for_half(line: Line) -> float | None:
    """The relative Δ at which half of the clients could leave at once; none without clusters, or not measured."""
    return None if line.needed_delta is None else line.needed_delta.relative[len(line.needed_delta.relative) // 2]


def delta_for_all(line: Line) -> float | None:
    """The relative Δ at which all of them could."""
    return None if line.needed_delta is None else line.needed_delta.relative[-1]


def distance_to_fedavg(line: Line) -> float | None:
    """L2 distance of the last model to FedAvg's; none where that was not at hand."""
    return line.distance_to_fedavg[-1] if line.distance_to_fedavg else None
