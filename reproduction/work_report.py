"""Work per request over many simulated streams of requests: a JSON document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, Self

from pydantic import TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from disavow.errors import ConfigError
from disavow.ledger.files import write_durably
from reproduction.lines import Amount, Count, Method, Number, Share
from reproduction.records import CHECKED, first_fault

FORMAT: Literal["disavow-work/1"] = "disavow-work/1"


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class WorkCell:
    """Client-epochs per request of one k, x and method: the mean over streams with its 95 % interval.

    `ratio` says how many times less than FedAvg with retraining, with its interval; none where no stream needed any
    training, and its bounds are none where that cannot be excluded.
    """

    k: Number
    x: Number
    method: Method
    mean: Amount
    low: Amount
    high: Amount
    ratio: Amount | None
    ratio_low: Amount | None
    ratio_high: Amount | None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        known = [each for each in (self.ratio_low, self.ratio, self.ratio_high) if each is not None]
        if not self.low <= self.mean <= self.high or known != sorted(known):
            raise ValueError("a mean lies within its interval")
        return self


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class WorkReport:
    """All cells, and over how many streams."""

    format: Literal["disavow-work/1"] = FORMAT
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
