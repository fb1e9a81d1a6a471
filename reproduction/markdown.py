"""Tables in Markdown whose columns stand under each other, so that the plain text reads as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDEST = 144
"""Characters of the widest line of a table."""
NOT_RUN, NOT_MEASURED = "not run", "not measured"


@dataclass(frozen=True)
class Piece:
    """A part of a table that fits on a page: a caption, headings, and rows of as many cells.

    `remarks` are written below it, each behind the mark that its cells bear.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: Mapping[str, str]

    def markdown(self) -> str:
        """The piece, first column left, all others right."""
        lines = [f"**{self.caption}**", "", *aligned(self.headings, self.rows)]
        if self.remarks:
            lines += ["", "; ".join(f"{mark}: {remark}" for mark, remark in self.remarks.items()) + "."]
        return "\n".join(lines) + "\n"


class Remarks:
    """Hands out one mark for each different remark: a, b, c, ..."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, remark: str) -> str:
        """The mark of a remark, new or known."""
        return self._marks.setdefault(remark, _mark_of(len(self._marks)))

    def by_mark(self) -> dict[str, str]:
        """All that were made, by their marks."""
        return {mark: remark for remark, mark in self._marks.items()}


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    r"""The lines of a Markdown table, padded.

    >>> print("\n".join(aligned(("row", "k=4"), [("MNIST-iid", "0.9"), ("x", "10.25")])))
    | row       |   k=4 |
    |:----------|------:|
    | MNIST-iid |   0.9 |
    | x         | 10.25 |
    """
    widths = [max(3, *(len(line[at]) for line in (headings, *rows))) for at in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return f"| {' | '.join(padded)} |"

    rule = "|".join([":" + "-" * (widths[0] + 1), *("-" * (width + 1) + ":" for width in widths[1:])])
    return [line(headings), f"|{rule}|", *map(line, rows)]


def _mark_of(number: int) -> str:
    """A to z, then aa, ab, ...

    >>> [_mark_of(number) for number in (0, 25, 26, 27)]
    ['a', 'z', 'aa', 'ab']
    """
    before, last = divmod(number, 26)
    return (_mark_of(before - 1) if before else "") + chr(ord("a") + last)
