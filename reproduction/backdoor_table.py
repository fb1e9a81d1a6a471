"""How well a leaver's backdoor still works after each kind of answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from disavow.compare.report import Estimate
from reproduction.backdoor import ANSWERS, BackdoorLine
from reproduction.lines import Method, named
from reproduction.markdown import NOT_RUN, Piece, Remarks
from reproduction.numbers import amount, share
from reproduction.table import NETWORKS, Show, Table, Value

_METHODS: dict[str, Method] = {"plain": "fedavg", "deniable": "sticky", "rollback": "sticky"}

_COLUMNS: tuple[tuple[str, str, Callable[[BackdoorLine], float], Show], ...] = (
    ("success before", "backdoor-before", lambda line: line.before, share),
    ("after", "backdoor-after", lambda line: line.after, share),
    ("accuracy before", "accuracy-before", lambda line: line.accuracy_before, share),
    ("after", "accuracy-after", lambda line: line.accuracy_after, share),
    ("client-epochs", "client-epochs", lambda line: line.client_epochs, amount),
)

_ABOUT = (
    "One client of twenty holds nothing but records with a trigger, all with one label. *success*: the share of "
    "test records of other labels that get that label once they carry the trigger. *retrained from scratch* and "
    "*fedEraser*: plain federated averaging; the others: sticky clusters of four, one representative. ± is half of "
    "Student's 95 % interval over seeds. Models that never met the trigger have the success that *retrained from "
    "scratch* (plain averaging) and *purged* (clusters) have afterwards."
)


def backdoor(lines: Sequence[BackdoorLine], *, quick: bool = False) -> Table:
    """Make the table.

    Args:
        lines: Of all rows, networks, answers and seeds.
        quick: Whether they are of the small version.

    """
    lines = list({(line.row, line.network, line.answer, line.seed): line for line in lines}.values())
    seeds = len({line.seed for line in lines})
    places = dict.fromkeys((line.row, line.network) for line in lines)
    pieces, values = [], []
    for row, network in places:
        remarks, body = Remarks(), []
        for answer, (case, _) in ANSWERS.items():
            runs = [line for line in lines if (line.row, line.network, line.answer) == (row, network, answer)]
            cells = []
            missing = f" {remarks.mark(f'{len(runs)} of {seeds} seeds were run')}" if 0 < len(runs) < seeds else ""
            for _, name, quantity, show in _COLUMNS:
                found = Estimate(tuple(quantity(line) for line in runs)) if runs else None
                cells.append(NOT_RUN if found is None else _shown(found, show) + missing)
                values.append(_value(row, network, answer, case, name, found))
            body.append((answer, *cells))
        headings = ("", *(heading for heading, *_ in _COLUMNS))
        pieces.append(Piece(f"{named(row)}, {NETWORKS[network]}", headings, tuple(body), remarks.by_mark()))
    return Table(
        name="backdoor",
        title="A leaver who planted a backdoor",
        about=(_ABOUT, _provenance(lines, quick=quick)),
        pieces=tuple(pieces),
        values=tuple(values),
    )


def _shown(found: Estimate, show: Show) -> str:
    half = _half(found)
    return show(found.mean) if half is None else f"{show(found.mean)} ± {show(half)}"


def _half(found: Estimate) -> float | None:
    return None if found.interval is None else (found.interval.high - found.interval.low) / 2


def _value(row: str, network: str, answer: str, case: str, name: str, found: Estimate | None) -> Value:
    return Value(
        table="backdoor",
        row=row,
        column=answer,
        method="federaser" if answer == "fedEraser" else _METHODS[case],
        k=1 if case == "plain" else 4,
        quantity=name,
        paper=None,
        ours=None if found is None else found.mean,
        interval=None if found is None else _half(found),
        runs=0 if found is None else len(found.values),
        seeds=0 if found is None else len(found.values),
        variant=answer,
        network=network,
    )


def _provenance(lines: Sequence[BackdoorLine], *, quick: bool) -> str:
    command = f"Made by `python -m reproduction backdoor{' --quick' * quick}`"
    if not lines:
        return f"{command}; nothing has been run yet."
    seeds = sorted({line.seed for line in lines})
    return (
        f"{command} from {len(lines)} lines; seeds: {', '.join(map(str, seeds))}. "
        f"Device: {', '.join(dict.fromkeys(line.device for line in lines))}. "
        f"Commit: {', '.join(dict.fromkeys(line.commit[:12] for line in lines))}."
    )
