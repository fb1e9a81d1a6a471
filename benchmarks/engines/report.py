"""What the passes come to: a row for each contestant, what to bear in mind, and everything as JSON."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.engines.passes import Contestant, Pass
from disavow import __version__
from disavow.rounds.threads import cores
from reproduction.provenance import processor

ALIKE = 0.1
"""An accuracy further than this from the median of all is pointed out: that contestant may do other work."""
QUIET = 0.1
"""Cores that others may keep busy in a machine that is still called quiet."""


@dataclass(frozen=True)
class Row:
    """A contestant's seconds a round: the median over its passes of each pass's median, and the extremes.

    `ratios` says for each peer how many times as fast as that peer this contestant is.
    """

    contestant: str
    ours: bool
    seconds: float
    fastest: float
    slowest: float
    accuracy: float
    ratios: Mapping[str, float]


@dataclass(frozen=True)
class Report:
    """A benchmark that was run."""

    settings: Mapping[str, Any]
    data: str
    at: datetime
    contestants: tuple[Contestant, ...]
    passes: tuple[Pass, ...]
    absent: Mapping[str, str]
    """Peers that did not take part, and why."""


def rows(report: Report) -> list[Row]:
    """One row for each contestant that was timed, the fastest first."""
    timed = [one for one in report.contestants if _passes(report, one)]
    seconds = {one.name: [median(done.seconds) for done in _passes(report, one)] for one in timed}
    peers = [one.name for one in timed if not one.ours]
    found = [
        Row(
            contestant=one.name,
            ours=one.ours,
            seconds=median(seconds[one.name]),
            fastest=min(seconds[one.name]),
            slowest=max(seconds[one.name]),
            accuracy=median(done.accuracy for done in _passes(report, one) if done.accuracy is not None),
            ratios={peer: median(seconds[peer]) / median(seconds[one.name]) for peer in peers},
        )
        for one in timed
    ]
    return sorted(found, key=lambda row: row.seconds)


def fastest_peer(report: Report) -> str | None:
    """The peer with the fewest seconds a round."""
    return next((row.contestant for row in rows(report) if not row.ours), None)


def remarks(report: Report) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = [f"{name} did not take part: {why}" for name, why in report.absent.items()]
    found += [f"{done.contestant} failed: {done.failure}" for done in report.passes if done.failure is not None]
    if (many := report.settings["federations"]) > 1:
        found.append(f"Our rounds are rounds of {many} federations at once; the peers' are rounds of one.")
    busiest = max((done.others or 0.0 for done in report.passes), default=0.0)
    if busiest > QUIET:
        found.append(f"The machine was not quiet: before a pass, others kept {busiest:.1f} cores busy.")
    accuracies = {row.contestant: row.accuracy for row in rows(report)}
    usual = median(accuracies.values()) if accuracies else 0.0
    found += [
        f"{name} may not do the same work: its accuracy is {accuracy:.3f}, that of all about {usual:.3f}."
        for name, accuracy in accuracies.items()
        if abs(accuracy - usual) > ALIKE
    ]
    return found


def as_json(report: Report) -> dict[str, Any]:
    """Everything: the machine, what was asked, every single time."""
    return {
        "machine": machine(str(report.settings["device"])),
        "at": report.at.isoformat(timespec="seconds"),
        "asked": dict(report.settings),
        "data": report.data,
        "contestants": {
            one.name: {"ours": one.ours, "command": _portable(one.command)} for one in report.contestants
        },
        "passes": [asdict(done) for done in report.passes],
        "rows": [asdict(row) for row in rows(report)],
        "fastest_peer": fastest_peer(report),
        "remarks": remarks(report),
    }


def _portable(command: Sequence[str]) -> list[str]:
    """The command without the folders of this machine."""

    def portable(part: str) -> str:
        option, sign, value = part.rpartition("=")
        return option + sign + (Path(value).name if Path(value).is_absolute() else value)

    return [portable(part) for part in command]


def machine(device: str) -> dict[str, Any]:
    """Where it was run."""
    return {
        "processor": processor(),
        "cores": cores(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "disavow": __version__,
    }


def _passes(report: Report, contestant: Contestant) -> list[Pass]:
    return [done for done in report.passes if done.contestant == contestant.name and done.seconds]
