"""The paper's tables, ours beside it: accuracy, time and work per request, disk; and models at the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import get_args

from reproduction import published
from reproduction.lines import PLAIN, Line, Method, Network, PaperRow, named
from reproduction.markdown import NOT_MEASURED, NOT_RUN, Piece, Remarks
from reproduction.numbers import amount, points, share, times
from reproduction.quantities import (
    MEAN_OF,
    SETTLED,
    accuracy_at_answers,
    accuracy_at_last_answer,
    averaged_accuracy,
    client_epochs,
    client_epochs_per_request,
    megabytes,
    seconds_per_request,
    settled_accuracy,
)
from reproduction.quantities import accuracy as accuracy_of
from reproduction.selection import KS, Cell, Quantity, Selection, cell_of, possible_xs, select
from reproduction.storage_table import storage
from reproduction.table import NETWORKS, TITLES, Show, Table, Value, column, provenance, text

__all__ = ["accuracy", "answers", "storage", "time"]

ROWS: tuple[PaperRow, ...] = get_args(PaperRow)
BASELINES: tuple[Method, ...] = ("fedavg", "federaser")
CLUSTERED: tuple[Method, ...] = ("published", "sticky", "sticky-3")
OF_A_K: tuple[Method, ...] = (*CLUSTERED, "fedavg-sampled")
"""Methods that have a k."""
_OF_EDITION_1: tuple[Method, ...] = ("published", "sticky")
"""Those of them that the first edition had."""
_HEADINGS: dict[Method, str] = {
    "published": "published",
    "sticky": "sticky",
    "sticky-3": "s=3",
    "fedavg-sampled": "1/k",
}
"""Where columns are narrow."""

_SHORT: dict[Network, str] = {"lenet5": "lenet5", "resnet-mini": "resnet", "convnet": "convnet"}

_PAPERS = (
    "*paper*: as printed, ± its standard deviation over x. *published*: the paper's method on correct code (fresh "
    "clusters in each round, one representative). *sticky*: ours, sticky clusters with one representative"
)
_SINCE_EDITION_2 = (
    "; *s=3*: with three, for which a cluster of four can keep enough survivors at x = 2 alone. *fedAvg 1/k*: a "
    "random 1/k of the clients in each round, no clusters, retrained from the first round in which a leaver took "
    "part"
)
_SIZES = (
    ". *unequal sizes* is the paper's noniid. Cells of a k are means over x = 2, 3, 4 and seeds, ± half of "
    "Student's 95 % interval over seeds, each with a stream of requests of its own."
)
_RETIRED = (
    " **The runs of *sticky* were judged by the retired criterion `neighbourhood`**, under which hardly anything "
    "rolls back: their work and time are too small, and `python -m reproduction work` has them as they are."
)


_DIFFERENCE = "minus fedAvg's of the same seed and requests, in percentage points: the worst x and seed"
_LAST = f"Accuracy after the last round {_DIFFERENCE}"
_SETTLED = f"Mean accuracy of the last {SETTLED} rounds {_DIFFERENCE}"
_AVERAGED = (
    f"The same of the mean of the newest {MEAN_OF} models, minus that of fedAvg's models as they are, in "
    "percentage points: the worst x and seed"
)
_LESS = "Times less than fedAvg with retraining"

CellOf = Callable[[Selection, str, Method, int], Cell | None]


def accuracy(lines: Iterable[Line], network: Network) -> Table:
    """Test accuracy after the last round and all requests: the paper's Tables 2 and 3."""
    selection = select(lines, network, (*BASELINES, *OF_A_K))
    name = f"{_SHORT[network]}-accuracy"
    table = _printed(name)
    worst: list[tuple[str, str, CellOf]] = [
        (_LAST, "worst-difference-to-fedavg", partial(_worst, quantity=accuracy_of)),
        (_SETTLED, "worst-settled-difference-to-fedavg", partial(_worst, quantity=settled_accuracy)),
    ]
    if any(line.averaged for line in selection.lines):
        # against fedAvg's models as they are: those lose by being averaged
        against = partial(_worst, quantity=averaged_accuracy, fedavgs=settled_accuracy)
        worst.append((_AVERAGED, "worst-averaged-difference-to-fedavg", against))
    return Table(
        name=name,
        title=f"Test accuracy, {NETWORKS[network]}{_beside(table)}",
        about=(_methods(selection), *_made_by(selection, name)),
        pieces=(
            _baselines(selection, "The baselines", table, accuracy_of, share),
            *(_clustered(selection, "Test accuracy", table, k, accuracy_of, share) for k in _ks(selection)),
            *(
                _wide(selection, said, ks, cell, points, NOT_MEASURED)
                for said, _, cell in worst
                for ks in _pairs(selection)
            ),
        ),
        values=(
            *_values(selection, name, "accuracy", table, accuracy_of),
            *(value for _, what, cell in worst for value in _worst_values(selection, name, what, cell)),
        ),
    )


def time(lines: Iterable[Line], network: Network) -> Table:
    """What a request takes, in seconds and in client-epochs, and how many times less than retraining it is."""
    selection = select(lines, network, (*BASELINES, *OF_A_K))
    name = f"{_SHORT[network]}-time"
    table = _printed(name)
    work, work_ratio = "Client-epochs per request", partial(_ratio, quantity=client_epochs_per_request)
    return Table(
        name=name,
        title=f"Time and work per request, {NETWORKS[network]}{_beside(table)}",
        about=(
            _methods(selection),
            "Means over the requests of a run (the paper prints an average running time and does not say over "
            "what). Seconds depend on the machine; client-epochs (local epochs, summed over clients) do not. A "
            "ratio says how many times less than fedAvg with retraining from scratch, same seeds; *all deniable*: "
            "no request needed any training.",
            *_made_by(selection, name),
        ),
        pieces=(
            _baselines(selection, "Seconds per request, the baselines", table, seconds_per_request, amount),
            *(
                _clustered(selection, "Seconds per request", table, k, seconds_per_request, amount)
                for k in _ks(selection)
            ),
            _baselines(selection, f"{work}, the baselines", None, client_epochs_per_request, amount),
            *(_clustered(selection, work, None, k, client_epochs_per_request, amount) for k in _ks(selection)),
            *(_ratios(selection, table, k) for k in _ks(selection)),
            *(_wide(selection, f"{_LESS}, in client-epochs", ks, work_ratio, _times) for ks in _pairs(selection)),
        ),
        values=(
            *_values(selection, name, "seconds-per-request", table, seconds_per_request),
            *_values(selection, name, "client-epochs-per-request", None, client_epochs_per_request),
            *_ratio_values(selection, name, "seconds-ratio", table, seconds_per_request),
            *_ratio_values(selection, name, "client-epochs-ratio", None, client_epochs_per_request),
        ),
    )


def answers(lines: Iterable[Line], network: Network) -> Table:
    """What is served at the moment of the answer, beside retraining; and the work of whole runs."""
    selection = select(lines, network, (*BASELINES, *OF_A_K))
    name = f"{_SHORT[network]}-answers"
    quantities: list[tuple[str, str, CellOf, Show]] = [
        ("Accuracy, mean over all answers", "accuracy-at-answers", _minus(accuracy_at_answers), points),
        ("Accuracy at the last answer", "accuracy-at-last-answer", _minus(accuracy_at_last_answer), points),
        ("Work of the whole run", "total-work-share", _over(client_epochs), share),
    ]
    return Table(
        name=name,
        title=f"At the answer, {NETWORKS[network]}",
        about=(
            _methods(selection),
            "Accuracies are those of the model that is served right after a request was answered, minus that of "
            "retraining from scratch (fedAvg) at the same request, in percentage points; *last round*: when the "
            "rounds that fedEraser lacks are trained on top. Work (client-epochs) is that of whole runs, training "
            "and the rounds that fedEraser lacks included, as a share of fedAvg's with retraining. fedEraser keeps "
            "updates of every second round, compressed; *disk*: its bytes at the end, as a multiple of those of "
            "sticky clusters after the same requests.",
            *_made_by(selection, name),
        ),
        pieces=(
            _eraser(selection, quantities),
            *(
                _wide(selection, caption, (k,), cell, show, interval=True)
                for caption, _, cell, show in quantities
                for k in _ks(selection)
            ),
        ),
        values=tuple(
            Value.of(name, row, method, k, what, None, cell(selection, row, method, k))
            for _, what, cell, _ in quantities
            for row in _rows(selection)
            for method, k in _columns(selection)
            if method != "fedavg"
        ),
    )


def _is_of_edition_1(selection: Selection) -> bool:
    return bool(selection.lines) and all(line.edition == 1 for line in selection.lines)


def _of_a_k(selection: Selection) -> tuple[Method, ...]:
    """Methods that have a k, of those that there were."""
    return _OF_EDITION_1 if _is_of_edition_1(selection) else OF_A_K


def _methods(selection: Selection) -> str:
    """What the columns are."""
    old = _is_of_edition_1(selection)
    return _PAPERS + ("" if old else _SINCE_EDITION_2) + _SIZES + (_RETIRED if old else "")


def _made_by(selection: Selection, name: str) -> tuple[str, ...]:
    return provenance(selection, name, " --edition 1 --render-only" if _is_of_edition_1(selection) else "")


def _rows(selection: Selection) -> tuple[PaperRow, ...]:
    return selection.shown(ROWS, lambda line: line.row)


def _ks(selection: Selection) -> tuple[int, ...]:
    return selection.shown(KS, lambda line: line.k)


def _pairs(selection: Selection) -> tuple[tuple[int, ...], ...]:
    """Sizes of clusters that share a piece, so that it fits on a page."""
    ks = _ks(selection)
    return tuple(ks[at : at + 2] for at in range(0, len(ks), 2))


def _columns(selection: Selection) -> tuple[tuple[Method, int], ...]:
    return (
        *((method, 1) for method in BASELINES),
        *((method, k) for k in _ks(selection) for method in _of_a_k(selection)),
    )


def _eraser(selection: Selection, quantities: Sequence[tuple[str, str, CellOf, Show]]) -> Piece:
    remarks, rows = Remarks(), []
    for row in _rows(selection):
        all_answers, the_last, work = (
            (cell(selection, row, "federaser", 1), show) for _, _, cell, show in quantities
        )
        after = (_minus(accuracy_of)(selection, row, "federaser", 1), points)
        shown = (all_answers, the_last, after, work, (_disk(selection, row), times))
        cells = [text(cell, show, remarks, len(selection.seeds)) for cell, show in shown]
        rows.append((named(row), *cells))
    headings = ("all answers", "the last", "last round", "work", "disk")
    return Piece("fedEraser beside retraining", ("", *headings), tuple(rows), remarks.by_mark())


def _disk(selection: Selection, row: str) -> Cell | None:
    """The bytes of fedEraser, as a multiple of the mean of sticky clusters' of the same seed."""
    found = []
    for line in selection.runs(row, "federaser"):
        sticky = (one for k in KS for one in selection.runs(row, "sticky", k) if one.seed == line.seed)
        if ours := [megabytes(one) for one in sticky]:
            found.append((line, megabytes(line) / fmean(ours)))
    return cell_of(found, possible_xs("federaser", 1)) if found else None


def _beside_fedavg(quantity: Quantity, combined: Callable[[float, float], float]) -> CellOf:
    """Each run beside fedAvg's of the same seed."""

    def cell(selection: Selection, row: str, method: Method, k: int) -> Cell | None:
        found = [
            (line, combined(ours, theirs))
            for line in selection.runs(row, method, k)
            if (base := selection.baseline(line)) is not None
            and (ours := quantity(line)) is not None
            and (theirs := quantity(base)) is not None
        ]
        return cell_of(found, possible_xs(method, k)) if found else None

    return cell


def _minus(quantity: Quantity) -> CellOf:
    return _beside_fedavg(quantity, lambda ours, theirs: ours - theirs)


def _over(quantity: Quantity) -> CellOf:
    return _beside_fedavg(quantity, lambda ours, theirs: ours / theirs if theirs else float("inf"))


def _printed(name: str) -> published.TableName | None:
    """The table of the paper that has these cells; the ConvNet's are in figures alone."""
    return next((table for table in get_args(published.TableName) if table == name), None)


def _beside(table: published.TableName | None) -> str:
    return f", beside {published.printed(table)} of the paper" if table else ""


def _paper(table: published.TableName | None, row: str, method: Method, k: int) -> published.Cell | None:
    return published.cell(table, row, column(method, k)) if table else None


def _paper_text(table: published.TableName | None, row: str, method: Method, k: int) -> str:
    found = _paper(table, row, method, k)
    return "-" if found is None else found.text


def _baselines(
    selection: Selection, caption: str, table: published.TableName | None, quantity: Quantity, show: Show
) -> Piece:
    remarks, rows = Remarks(), []
    for row in _rows(selection):
        cells: list[str] = [named(row)]
        for method in BASELINES:
            cells += [_paper_text(table, row, method, 1)] if table else []
            cells.append(text(selection.cell(row, method, 1, quantity), show, remarks, len(selection.seeds)))
        rows.append(tuple(cells))
    columns = ("paper", "ours") if table else ("ours",)
    headings = tuple(f"{TITLES[method]}: {whose}" for method in BASELINES for whose in columns)
    return Piece(caption, ("", *headings), tuple(rows), remarks.by_mark())


def _clustered(
    selection: Selection,
    caption: str,
    table: published.TableName | None,
    k: int,
    quantity: Quantity,
    show: Show,
) -> Piece:
    """For one k the paper's cell, the paper's method, ours, and as many clients without clusters."""
    remarks, rows = Remarks(), []
    for row in _rows(selection):
        cells: list[str] = [named(row), *([_paper_text(table, row, "published", k)] if table else [])]
        for method in _of_a_k(selection):
            found = selection.cell(row, method, k, quantity)
            cells.append(text(found, show, remarks, len(selection.seeds)))
        rows.append(tuple(cells))
    whose = (*(["paper"] if table else []), *(TITLES[method] for method in _of_a_k(selection)))
    return Piece(f"{caption}, k = {k}", ("", *(f"k={k} {each}" for each in whose)), tuple(rows), remarks.by_mark())


def _wide(
    selection: Selection,
    caption: str,
    ks: Sequence[int],
    cell: CellOf,
    show: Show,
    lacking: str = NOT_RUN,
    *,
    interval: bool = False,
) -> Piece:
    """Some k, without the paper, which has nothing to put beside it.

    `lacking` stands where there are runs, but not what the piece shows of them.
    """
    remarks, rows = Remarks(), []
    for row in _rows(selection):
        cells: list[str] = [named(row)]
        for method, k in product(_of_a_k(selection), ks):
            found = cell(selection, row, method, k)
            shown = text(found, show, remarks, len(selection.seeds), interval=interval)
            cells.append(lacking if found is None and selection.runs(row, method, k) else shown)
        rows.append(tuple(cells))
    headings = (f"{_HEADINGS[method]} k={k}" for method, k in product(_of_a_k(selection), ks))
    said = " and ".join(map(str, ks))
    return Piece(f"{caption}, k = {said}", ("", *headings), tuple(rows), remarks.by_mark())


def _values(
    selection: Selection, name: str, quantity_name: str, table: published.TableName | None, quantity: Quantity
) -> list[Value]:
    found = []
    for row in _rows(selection):
        for method, k in _columns(selection):
            paper = _paper(table, row, method, k) if method != "fedavg-sampled" else None
            cell = selection.cell(row, method, k, quantity)
            found.append(Value.of(name, row, method, k, quantity_name, paper.mean if paper else None, cell))
    return found


def _worst(
    selection: Selection,
    row: str,
    method: Method,
    k: int,
    quantity: Quantity,
    fedavgs: Callable[[Line], float] | None = None,
) -> Cell | None:
    """The accuracy minus fedAvg's of the same seed, of the x and the seed where it is worst.

    `fedavgs` says what is taken of fedAvg, where that is another quantity.
    """
    found = [
        (line, ours - theirs)
        for line in selection.runs(row, method, k)
        if (base := selection.baseline(line)) is not None
        and (ours := quantity(line)) is not None
        and (theirs := (fedavgs or quantity)(base)) is not None
    ]
    if not found:
        return None
    worst = min(difference for _, difference in found)
    return replace(cell_of(found, possible_xs(method, k)), mean=worst, interval=None)


def _worst_values(selection: Selection, name: str, quantity_name: str, cell: CellOf) -> list[Value]:
    return [
        Value.of(name, row, method, k, quantity_name, None, cell(selection, row, method, k))
        for row in _rows(selection)
        for method, k in _columns(selection)
        if method not in PLAIN
    ]


def _ratio(selection: Selection, row: str, method: Method, k: int, quantity: Quantity) -> Cell | None:
    """FedAvg's mean over this cell's seeds by this cell's; infinite where this cell is 0."""
    cell = selection.cell(row, method, k, quantity)
    if cell is None:
        return None
    base = selection.cell(row, "fedavg", 1, lambda line: quantity(line) if line.seed in cell.seeds else None)
    if base is None or base.seeds != cell.seeds:
        return None
    ratio = base.mean / cell.mean if cell.mean else float("inf")
    return replace(cell, mean=ratio, interval=None)


def _times(ratio: float) -> str:
    return "all deniable" if ratio == float("inf") else times(ratio)


def _paper_ratio(table: published.TableName | None, row: str, k: int) -> float | None:
    base, cell = _paper(table, row, "fedavg", 1), _paper(table, row, "published", k)
    return base.mean / cell.mean if base and cell else None


def _ratios(selection: Selection, table: published.TableName | None, k: int) -> Piece:
    remarks, rows = Remarks(), []
    for row in _rows(selection):
        paper = _paper_ratio(table, row, k)
        cells: list[str] = [named(row), "-" if paper is None else times(paper)]
        for method in _of_a_k(selection):
            cell = _ratio(selection, row, method, k, seconds_per_request)
            cells.append(text(cell, _times, remarks, len(selection.seeds)))
        rows.append(tuple(cells))
    headings = (f"k={k} {whose}" for whose in ("paper", *(TITLES[method] for method in _of_a_k(selection))))
    return Piece(f"{_LESS}, in seconds, k = {k}", ("", *headings), tuple(rows), remarks.by_mark())


def _ratio_values(
    selection: Selection, name: str, quantity_name: str, table: published.TableName | None, quantity: Quantity
) -> list[Value]:
    found = []
    for row in _rows(selection):
        for method, k in _columns(selection):
            if method != "fedavg":
                paper = _paper_ratio(table, row, k) if method in CLUSTERED else None
                cell = _ratio(selection, row, method, k, quantity)
                found.append(Value.of(name, row, method, k, quantity_name, paper, cell))
    return found
