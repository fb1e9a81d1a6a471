"""A comparison as tables: what is left of the leaver, and what it cost; as text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from disavow.compare.report import BY_NAME, Comparison, Estimate, Row, Scatter, SchemeReport, Unit

BEYOND = "†"
"""Marks what another exact retraining would hardly have given."""

NOTHING = "–"

_LEFT = ("agreement", "best_attacker", "backdoor", "relearning", "reconstruction")
_COSTS = ("work", "client_epochs", "bytes_sent", "bytes_stored", "seconds")
_UNITS = ("B", "kB", "MB", "GB", "TB")
_STEP = 1000


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        title: Above it.
        headings: Of its columns.
        rows: One text a column.

    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables_of(comparison: Comparison) -> tuple[Table, Table]:
    """Make both tables: what is left, and what it cost.

    Args:
        comparison: What was found.

    """
    return _left(comparison), _costs(comparison)


def _left(comparison: Comparison) -> Table:
    classes = any("accuracy" in row.estimates for row in comparison.rows)
    names = (*(("accuracy", "leaver_accuracy") if classes else ("loss", "leaver_loss")), *_LEFT)
    shown = [name for name in names if any(name in row.estimates for row in comparison.rows)]
    several, rows = len(comparison.schemes) > 1, []
    for name, scheme in comparison.schemes.items():
        of = f", {name}" if several else ""
        rows.append((f"before{of}", *(_estimated(scheme.before.get(each), each, comparison) for each in shown)))
        count = len(next(iter(scheme.references.values())).values)
        cells = (_scattered(scheme.references.get(each), each, comparison) for each in shown)
        rows.append((f"{count} exact retrainings{of}", *cells))
        rows += [
            (row.method.name, *(_held_against(row, each, scheme, comparison) for each in shown))
            for row in comparison.rows
            if row.scheme == name
        ]
    metric = comparison.described.get("accuracy_is", "accuracy")
    titles = (BY_NAME[each].title.replace("accuracy", metric) for each in shown)
    return Table("What is left", ("method", *titles), tuple(rows))


def _costs(comparison: Comparison) -> Table:
    headings = (
        "method",
        *(BY_NAME[each].title for each in _COSTS),
        "stores",
        "leaver helps",
        "public data",
        "exact",
    )
    rows = [
        (
            row.method.name,
            *(_estimated(row.estimates.get(each), each, comparison) for each in _COSTS),
            row.method.stores,
            _yes(row.method.leaver_helps),
            _yes(row.method.needs_public_data),
            _yes(row.method.exact),
        )
        for row in comparison.rows
    ]
    return Table("What it cost", headings, tuple(rows))


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _held_against(row: Row, figure: str, scheme: SchemeReport, comparison: Comparison) -> str:
    estimate, scatter = row.estimates.get(figure), scheme.references.get(figure)
    text = _estimated(estimate, figure, comparison)
    beyond = estimate is not None and scatter is not None and not scatter.expects(estimate)
    return f"{text} {BEYOND}" if beyond else text


def _estimated(estimate: Estimate | None, figure: str, comparison: Comparison) -> str:
    if estimate is None:
        return NOTHING
    interval, unit = estimate.interval, BY_NAME[figure].unit
    if unit == "rounds" and _partly_given_up(estimate.values, comparison):
        return f"≥ {shown(estimate.mean, unit)}"
    text = shown(estimate.mean, unit, comparison.relearning_cap)
    if interval is None or unit in ("bytes", "epochs") or figure == "work":
        return text
    return f"{text} ± {shown(interval.width / 2, unit)}"


def _scattered(scatter: Scatter | None, figure: str, comparison: Comparison) -> str:
    if scatter is None:
        return NOTHING
    unit = BY_NAME[figure].unit
    if unit == "rounds" and _partly_given_up(scatter.values, comparison):
        return f"≥ {shown(scatter.mean, unit)}"
    return f"{shown(scatter.mean, unit, comparison.relearning_cap)} (sd {shown(scatter.deviation, unit)})"


def _partly_given_up(rounds: Sequence[float], comparison: Comparison) -> bool:
    """Whether relearning was given up with some seeds, which count one round more, and not with others."""
    return min(rounds) <= comparison.relearning_cap < max(rounds)


def shown(value: float, unit: Unit, most: int | None = None) -> str:
    """Write a number as people read it.

    >>> shown(0.91234, "share"), shown(2_345_678, "bytes"), shown(11, "rounds", 10)
    ('0.912', '2.3 MB', '> 10')

    Args:
        value: The number.
        unit: What it is of.
        most: Rounds after which relearning was given up.

    """
    if unit == "bytes":
        units = list(_UNITS)
        while value >= _STEP and len(units) > 1:
            value, units = value / _STEP, units[1:]
        return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"
    if unit == "rounds":
        return f"> {most}" if most is not None and value > most else f"{value:.1f}"
    if unit == "epochs":
        return f"{value:,.0f}"
    if unit == "seconds":
        return f"{value:.1f}"
    return f"{value:.3f}"


def notes_of(comparison: Comparison) -> Iterator[str]:
    """Say what a reader of the tables must know.

    Args:
        comparison: What was found.

    """
    described = comparison.described
    seeds = described["seeds"]
    over = (
        "one seed, so without intervals" if seeds == 1 else f"{seeds} seeds; ± is half of a 95 % Student interval"
    )
    yield f"Over {over}. {BEYOND}: the median of seeds is beyond the 95 % prediction interval of exact retrainings."
    yield (
        "The best attacker's figure is how far its advantage (2·AUC - 1) on the model is from that on exact "
        "retrainings, in either direction; agreement is with exact retrainings; reconstruction is 0 where nothing "
        "of the leaver came back. Work is in units of a retraining from scratch."
    )
    if comparison.recomputed:
        yield "Updates that the run did not keep were recomputed from the clients' data, which no server could do."
    for row in comparison.rows:
        remarks = sorted({remark for remark in row.remarks if remark})
        if remarks:
            yield f"{row.method.name}: {'; '.join(remarks)}."
    for name, reason in comparison.skipped.items():
        yield f"{name} is left out: {reason}."
    for name, reason in comparison.left_out.items():
        yield f"The attacker {name} is left out: {reason}."
    for name, reason in comparison.unmeasured.items():
        yield f"{BY_NAME[name].title} is not measured: {reason}."


def to_markdown(comparison: Comparison) -> str:
    """Write both tables, with what must be known to read them.

    Args:
        comparison: What was found.

    """
    described = comparison.described
    policy = described["policy"]
    lines = [
        f"# Methods of federated unlearning: {comparison.leaver} to be forgotten",
        "",
        f"{described['clients']} clients, {described['rounds']} rounds of {described['epochs']} local epochs, "
        f"{described['parameters']:,} parameters, k = {policy['k']}, x = {policy['x']}, "
        f"s = {policy['representatives']}; {described['leaving_records']} records leave.",
        "",
    ]
    for table in tables_of(comparison):
        lines += [f"## {table.title}", "", *_markdown(table), ""]
    lines += ["## Notes", "", *(f"- {note}" for note in notes_of(comparison)), ""]
    lines += ["## Claims", "", *(f"- `{row.method.name}`: {row.method.claim}." for row in comparison.rows), ""]
    return "\n".join(lines)


def _markdown(table: Table) -> Iterator[str]:
    yield _piped(table.headings)
    yield _piped(["---", *("---:" for _ in table.headings[1:])])
    for row in table.rows:
        yield _piped(row)


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def to_csv(comparison: Comparison) -> str:
    """Write every figure of every method in a line of its own, with what exact retrainings had.

    Args:
        comparison: What was found.

    """
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    written.writerow(
        ["method", "scheme", "figure", "unit", "mean", "low", "high", "reference_mean", "reference_sd", "beyond"]
    )
    for row in comparison.rows:
        references = comparison.schemes[row.scheme].references
        for name, estimate in row.estimates.items():
            interval, scatter = estimate.interval, references.get(name)
            written.writerow(
                [
                    row.method.name,
                    row.scheme,
                    name,
                    BY_NAME[name].unit,
                    repr(estimate.mean),
                    "" if interval is None else repr(interval.low),
                    "" if interval is None else repr(interval.high),
                    "" if scatter is None else repr(scatter.mean),
                    "" if scatter is None else repr(scatter.deviation),
                    "" if scatter is None else _yes(not scatter.expects(estimate)),
                ]
            )
    return text.getvalue()
