"""Work per request over many simulated streams of requests: a JSON document, and its table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, Self

from pydantic import TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from disavow.errors import ConfigError
from disavow.ledger.files import write_durably
from reproduction.lines import PLAIN, UNCLUSTERED, Amount, Count, Method, Number, Share
from reproduction.markdown import Piece
from reproduction.records import CHECKED, first_fault
from reproduction.table import TITLES

FORMAT: Literal["disavow-work/2"] = "disavow-work/2"


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Interval:
    """A mean over streams with its 95 % interval."""

    mean: Amount
    low: Amount
    high: Amount

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.mean <= self.high:
            raise ValueError("a mean lies within its interval")
        return self


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class WorkCell:
    """Client-epochs per request of one k, x and method.

    `answering`: what is trained again so that each request is answered at once. `run`: the same with the training
    itself. `deleting`: the training, the answers, and one retraining at the end without whoever is still in the
    model; without clusters nobody is answered before it. `ratio` says how many times less `answering` is than that
    of FedAvg, with its interval; none where no stream needed any training, and its bounds are none where that
    cannot be excluded.
    """

    k: Number
    x: Number
    method: Method
    answering: Interval
    run: Interval
    deleting: Interval
    ratio: Amount | None
    ratio_low: Amount | None
    ratio_high: Amount | None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        known = [each for each in (self.ratio_low, self.ratio, self.ratio_high) if each is not None]
        if known != sorted(known):
            raise ValueError("a ratio lies within its interval")
        return self


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class WorkReport:
    """All cells, and over how many streams."""

    format: Literal["disavow-work/2"] = FORMAT
    clients: Number
    rounds: Number
    epochs: Number
    request_rate: Share
    streams: Number
    seed: Count
    cells: tuple[WorkCell, ...]


def write(path: Path, report: WorkReport) -> None:
    """Write the report, in the place of an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, TypeAdapter(WorkReport).dump_json(report, indent=1) + b"\n")


def read(path: Path) -> WorkReport:
    """The report in a file; what cannot be read is an error by name."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the report {path} cannot be read ({error.strerror})") from None
    try:
        value = json.loads(content)
    except ValueError:
        raise ConfigError(f"the report {path} is damaged: it is no JSON; make it again") from None
    written = value.get("format") if isinstance(value, dict) else None
    if written != FORMAT:
        raise ConfigError(
            f"the report {path} has the format {json.dumps(written)}, this version of disavow reads "
            f"{json.dumps(FORMAT)}; make it again"
        )
    try:
        return TypeAdapter(WorkReport).validate_json(content)
    except ValidationError as error:
        raise ConfigError(
            f"the report {path} does not hold what it should: {first_fault(error)}; make it again"
        ) from None


def markdown(report: WorkReport) -> str:
    """Write all cells as a table in Markdown."""
    sizes = sorted({cell.k for cell in report.cells if cell.method not in PLAIN})
    headings = ("", "a request", "less than FedAvg", "the run", "deleted at its end")
    pieces = [
        Piece(
            f"k = {k}",
            headings,
            tuple(_row(cell) for cell in report.cells if cell.method in PLAIN or cell.k == k),
            {},
        )
        for k in sizes
    ]
    about = (
        f"Client-epochs per request: means over {report.streams:,} streams of requests with their 95 % intervals; "
        f"{report.clients} clients, {report.rounds} rounds of {report.epochs} epochs, a request with probability "
        f"{report.request_rate:g} after each round. *a request*: trained again so that it is answered at once. "
        "*less than FedAvg*: how many times. *the run*: the same and the training itself. *deleted at its end*: "
        "the training, the answers, and one retraining at the end without whoever is still in the model; without "
        "clusters nobody is answered before it."
    )
    made = f"Made by `python -m reproduction work --streams {report.streams}`."
    parts = ["## Work\n", *(piece.markdown() for piece in pieces), f"{about}\n", f"{made}\n"]
    return "\n".join(parts)


def _row(cell: WorkCell) -> tuple[str, ...]:
    name = TITLES[cell.method] + ("" if cell.method in UNCLUSTERED else f", x={cell.x}")
    ratio = "-"
    if cell.ratio is not None:
        least = cell.ratio_low or 0.0
        known = f"{least:,.1f} or more" if cell.ratio_high is None else f"{least:,.1f} to {cell.ratio_high:,.1f}"
        ratio = f"{cell.ratio:,.1f} ({known})"
    return (name, _shown(cell.answering), ratio, _shown(cell.run), _shown(cell.deleting))


def _shown(each: Interval) -> str:
    return f"{each.mean:,.0f} ({each.low:,.0f} to {each.high:,.0f})"
