"""What rollbacks do to accuracy: the same run with the strictest x and with the least strict one.

A larger x rolls more requests back, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import fmean

from reproduction.lines import Line, Network
from reproduction.markdown import NOT_RUN, Piece
from reproduction.quantities import SETTLED, settled_accuracy
from reproduction.selection import KS, XS, Selection, select
from reproduction.table import NETWORKS

_LEAST, _MOST = XS[0], XS[-1]
_SIZES = {"iid": "iid", "noniid": "unequal sizes"}
_HEADINGS = ("network, clients, k", "pairs of runs", "more rollbacks a run", "points, mean", "points, largest")


def rollback_effect_table(lines: Iterable[Line]) -> str:
    """Accuracy with x = 4 minus that with x = 2, of the paper's method: a table in Markdown.

    Args:
        lines: The runs of the paper's tables.

    """
    lines = list(lines)
    rows = [row for network in ("lenet5", "resnet-mini") for row in _rows(select(lines, network), network)]
    text = Piece(f"Accuracy with x = {_MOST} minus x = {_LEAST}, published", _HEADINGS, tuple(rows), {}).markdown()
    return (
        f"## What rollbacks do to accuracy\n\n{text}\nA pair has the same row, seed, k and requests; accuracy is "
        f"the mean over the last {SETTLED} rounds. *largest*: in absolute value.\n\nMade by `python -m "
        "reproduction rollbacks`, with `--edition 1 --render-only` from the runs of edition 1.\n"
    )


def _rows(selection: Selection, network: Network) -> Iterator[tuple[str, ...]]:
    for sizes, said in _SIZES.items():
        for k in KS:
            pairs = list(_pairs(selection, sizes, k))
            name = f"{NETWORKS[network]}, {said}, k={k}"
            if not pairs:
                yield (name, *[NOT_RUN] * (len(_HEADINGS) - 1))
                continue
            points = [100 * (settled_accuracy(strict) - settled_accuracy(mild)) for mild, strict in pairs]
            more = fmean(_rollbacks(strict) - _rollbacks(mild) for mild, strict in pairs)
            largest = max(map(abs, points))
            yield name, str(len(pairs)), f"{more:.1f}", f"{fmean(points):+.2f}", f"{largest:.2f}"


def _pairs(selection: Selection, sizes: str, k: int) -> Iterator[tuple[Line, Line]]:
    """Runs that differ in x alone: the least strict, and the strictest."""
    found = {
        (line.row, line.seed, line.x): line
        for line in selection.lines
        if line.method == "published" and line.k == k and line.row.endswith(f"-{sizes}")
    }
    for row, seed, x in found:
        if x == _LEAST and (row, seed, _MOST) in found:
            yield found[row, seed, _LEAST], found[row, seed, _MOST]


def _rollbacks(line: Line) -> int:
    return sum(request.verdict == "rollback" for request in line.requests)
