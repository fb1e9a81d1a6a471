"""The table of a benchmark."""

from __future__ import annotations

from rich import box
from rich.table import Table

from benchmarks.engines.report import Report, fastest_peer, rows


def table(report: Report) -> Table:
    """A row for each contestant, the fastest first; how many times as fast as each peer it is."""
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    found, fastest = rows(report), fastest_peer(report)
    peers = list(found[0].ratios) if found else []
    shown.add_column("contestant", no_wrap=True)
    for heading in ("s/round", "of passes", "accuracy", "x fastest", *(f"x {_short(peer)}" for peer in peers)):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in found:
        shown.add_row(
            row.contestant,
            _seconds(row.seconds),
            f"{_seconds(row.fastest)}-{_seconds(row.slowest)}",
            f"{row.accuracy:.3f}",
            *(_ratio(row.ratios.get(peer)) for peer in (fastest or "", *peers)),
            style="bold" if row.ours else None,
        )
    return shown


def _short(peer: str) -> str:
    """A peer without its version: the first column has it."""
    return peer.partition(" ")[0]


def _seconds(value: float) -> str:
    """Three digits, whatever the size.

    >>> [_seconds(value) for value in (12.345, 1.2345, 0.012345)]
    ['12.3', '1.23', '0.0123']
    """
    digits = 1 if value >= 10 else 2 if value >= 1 else 3 if value >= 0.1 else 4
    return f"{value:.{digits}f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
