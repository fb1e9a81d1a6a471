"""Tables of studies beyond the paper's grid: one piece for each row and network, one line for each run of the grid.

What a study shows is a list of columns; which runs it has, its grid says, so that what is missing is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from reproduction.grid import Point
from reproduction.lines import PLAIN, UNCLUSTERED, Line, Method, Network, RowName, named
from reproduction.markdown import NOT_MEASURED, NOT_RUN, Piece, Remarks
from reproduction.numbers import amount, points, share
from reproduction.quantities import (
    MEAN_OF,
    SETTLED,
    averaged_accuracy,
    client_epochs_per_request,
    delta_for_all,
    delta_for_half,
    distance_to_fedavg,
    median_odds,
    rollbacks_per_request,
    settled_accuracy,
    width_over_random,
    width_over_update,
    worst_odds,
)
from reproduction.selection import Cell, Quantity, Selection, cell_of, select
from reproduction.table import NETWORKS, TITLES, Show, Table, Value, provenance, text


@dataclass(frozen=True)
class Column:
    """What a table shows of each run. With `baselines`, its difference to `baseline`'s run of the same seed."""

    heading: str
    name: str
    """Of the quantity in the CSV."""
    quantity: Quantity
    show: Show
    baselines: Callable[[Line], float] | None = None
    baseline: Method = "fedavg"
    worst: bool = False
    """The least over seeds, in place of the mean."""


@dataclass(frozen=True)
class Study:
    """A table: its name, which is that of its grid, what it is about, and its columns."""

    name: str
    title: str
    about: str
    columns: tuple[Column, ...]


_ACCURACY = (
    Column("accuracy", "settled-accuracy", settled_accuracy, share),
    Column("minus fedAvg's", "settled-difference-to-fedavg", settled_accuracy, points, settled_accuracy),
)
_OVER_SAMPLED = Column(
    "minus 1/k",
    "settled-difference-to-fedavg-sampled",
    settled_accuracy,
    points,
    settled_accuracy,
    "fedavg-sampled",
)
_ANSWERS = (
    Column("rollbacks a request", "rollbacks-per-request", rollbacks_per_request, share),
    Column("work a request", "client-epochs-per-request", client_epochs_per_request, amount),
)
_SETTLED = f"*accuracy*: mean over the last {SETTLED} rounds. ± is half of Student's 95 % interval over seeds. "
_VALIDATION = (
    "Accuracy is measured on a tenth of the training data that no client holds; the test set plays no part. "
)
_MINUS_SAMPLED = "*minus 1/k*: minus that of fedAvg 1/k, seed by seed. "
_WORK = "*work*: client-epochs, mean over requests. "
_WIDTH = (
    "*spread*: mean over clusters of the largest distance between two members, as a multiple of that of random "
    "groups of the same sizes (1: clusters are no more alike than any group). "
)

_SKEW_METHODS = (
    "*published*: fresh clusters; *sticky*: ours; *s=3*: three representatives, which at k = 4 cannot leave x + 2 "
    "= 5 survivors"
)
_TWO_LABELS = "*two labels*: every client holds two."

_WORST = Column("worst", "worst-settled-difference", settled_accuracy, points, settled_accuracy, worst=True)
_DISTANCE = Column("distance", "distance-to-fedavg", distance_to_fedavg, amount)
_SPREAD = Column("spread", "spread-over-random-groups", width_over_random, amount)

ACCURACY = Study(
    "accuracy",
    "Accuracy when nobody leaves",
    f"{_SETTLED}*worst*: of all seeds. {_MINUS_SAMPLED}{_WIDTH}*distance*: L2, of the last model to fedAvg's. "
    f"{_SKEW_METHODS}; *fedAvg 1/k*: a random 1/k of the clients in each round. Clients of rows that are not iid "
    "hold different numbers of samples with the same mix of labels.",
    (*_ACCURACY, _WORST, _OVER_SAMPLED, _SPREAD, _DISTANCE),
)

SKEW = Study(
    "skew",
    "Clients with different labels",
    f"Nobody leaves. {_SETTLED}{_MINUS_SAMPLED}{_WIDTH}*Δ for half*, *for all*: a relative Δ at which half of the "
    "clients, or all, could leave without a rollback, by the widest cluster that held each. *distance*: L2, of the "
    f"last model to fedAvg's. {_SKEW_METHODS}; *fedAvg 1/k*: a random 1/k of the clients in each round. "
    f"{_TWO_LABELS}",
    (
        *_ACCURACY,
        _OVER_SAMPLED,
        _SPREAD,
        Column("Δ for half", "delta-for-half", delta_for_half, amount),
        Column("for all", "delta-for-all", delta_for_all, amount),
        _DISTANCE,
    ),
)

SKEW_REQUESTS = Study(
    "skew-requests",
    "Requests of clients with different labels",
    f"{_SETTLED}{_WORK}{_SKEW_METHODS}. Δ is adaptive. {_TWO_LABELS}",
    (_ACCURACY[0], *_ANSWERS),
)

LARGE_K = Study(
    "large-k",
    "Accuracy at large k",
    f"{_SETTLED}{_VALIDATION}*mean of {MEAN_OF}*: the same of the mean of the newest {MEAN_OF} models, minus that "
    f"of fedAvg's models as they are. *worst*: of all seeds. {_MINUS_SAMPLED}*fedAvg 1/k*: a random 1/k of the "
    "clients in each round, without clusters. Nobody leaves. Statistics are those of batch norm, which LeNet5 does "
    "not have.",
    (
        *_ACCURACY,
        _WORST,
        Column(f"mean of {MEAN_OF}", "averaged-difference-to-fedavg", averaged_accuracy, points, settled_accuracy),
        Column("worst", "worst-averaged-difference", averaged_accuracy, points, settled_accuracy, worst=True),
        _OVER_SAMPLED,
    ),
)

LAST_BATCH = Study(
    "last-batch",
    "Large k on CIFAR-10 without a last batch of four images",
    f"{_SETTLED}{_VALIDATION}Each client has 896 images, seven batches of 128; in the table of large k it has 900. "
    "Nobody leaves.",
    LARGE_K.columns,
)

TRADE_OFF = Study(
    "trade-off",
    "What Δ and s trade",
    f"{_SETTLED}{_VALIDATION}{_WORK}*spread*: mean of the clusters, as a multiple of the median update's norm. "
    "*odds*: log10 of γ over all standing rounds, for the median client and for the one that is worst off, against "
    "whoever has the models and all updates of a cluster. Where Δ is not named it is adaptive, which excludes "
    "nobody; where s is not named it is 1.",
    (
        *_ACCURACY,
        *_ANSWERS,
        Column("spread", "spread-over-update", width_over_update, amount),
        Column("odds", "median-log10-odds", median_odds, amount),
        Column("worst odds", "worst-log10-odds", worst_odds, amount),
    ),
)

SINCE_EDITION = 2
"""No study has lines of an older one."""
STUDIES = {study.name: study for study in (ACCURACY, SKEW, SKEW_REQUESTS, LARGE_K, LAST_BATCH, TRADE_OFF)}


def study_table(study: Study, grid_points: Sequence[Point], lines: Iterable[Line]) -> Table:
    """Make the table of a study.

    Args:
        study: What it shows.
        grid_points: All runs of its grid, made or not.
        lines: The runs that are made.

    """
    rows = {point.row for point in grid_points}  # another study may keep its runs in the same files
    lines = [line for line in lines if line.row in rows]
    pieces: list[Piece] = []
    values: list[Value] = []
    everything: list[Line] = []
    for network in dict.fromkeys(point.network for point in grid_points):
        selection = select(lines, network)
        everything += selection.lines
        for row in dict.fromkeys(point.row for point in grid_points if point.network == network):
            places = dict.fromkeys(
                _Place.of(point) for point in grid_points if (point.network, point.row) == (network, row)
            )
            pieces.append(_piece(study, selection, network, row, list(places)))
            values += _values(study, selection, network, row, list(places))
    whole = Selection(tuple(everything), any(line.quick for line in everything), 0)
    return Table(
        name=study.name,
        title=study.title,
        about=(study.about, *provenance(whole, study.name)),
        pieces=tuple(pieces),
        values=tuple(values),
    )


@dataclass(frozen=True)
class _Place:
    """A line of a piece: runs that differ in their seed alone."""

    method: Method
    variant: str
    k: int
    x: int

    @classmethod
    def of(cls, run: Point | Line) -> _Place:
        return cls(run.method, run.variant, run.k, run.x)


def _titled(place: _Place) -> str:
    said = [place.variant or TITLES[place.method]]
    if place.method not in PLAIN:
        said.append(f"k={place.k}")
    if place.method not in UNCLUSTERED:
        said.append(f"x={place.x}")
    return ", ".join(said)


def _piece(study: Study, selection: Selection, network: Network, row: RowName, places: Sequence[_Place]) -> Piece:
    remarks, body = Remarks(), []
    seeds = len({line.seed for line in selection.lines if line.row == row})
    for place in places:
        runs = _runs(selection, row, place)
        cells = [_shown(column, runs, selection, remarks, seeds) for column in study.columns]
        body.append((_titled(place), *cells))
    headings = ("", *(column.heading for column in study.columns))
    return Piece(f"{named(row)}, {NETWORKS[network]}", headings, tuple(body), remarks.by_mark())


def _shown(column: Column, runs: Sequence[Line], selection: Selection, remarks: Remarks, seeds: int) -> str:
    if not runs:
        return NOT_RUN
    cell = _cell(column, runs, selection)
    if cell is None:  # such as the spread of a method without clusters
        return "-" if runs[0].method in UNCLUSTERED else NOT_MEASURED
    return text(cell, column.show, remarks, seeds)


def _runs(selection: Selection, row: RowName, place: _Place) -> list[Line]:
    return [line for line in selection.lines if line.row == row and _Place.of(line) == place]


def _cell(column: Column, runs: Sequence[Line], selection: Selection) -> Cell | None:
    found = []
    for line in runs:
        value = column.quantity(line)
        if value is not None and column.baselines is not None:
            base = selection.baseline(line, column.baseline)
            value = None if base in (None, line) else value - column.baselines(base)
        if value is not None:
            found.append((line, value))
    if not found:
        return None
    cell = cell_of(found, (runs[0].x,))
    return replace(cell, mean=min(value for _, value in found), interval=None) if column.worst else cell


def _values(
    study: Study, selection: Selection, network: Network, row: RowName, places: Sequence[_Place]
) -> Iterable[Value]:
    for place in places:
        runs = _runs(selection, row, place)
        for column in study.columns:
            cell = _cell(column, runs, selection) if runs else None
            yield Value.of(
                study.name,
                row,
                place.method,
                place.k,
                column.name,
                None,
                cell,
                place.variant,
                network,
            )
