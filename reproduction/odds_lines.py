"""What noise buys and what it costs: one federation with one σ, as one line of a results file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from reproduction import records
from reproduction.lines import Amount, Count, Network, Number, Share, Versions
from reproduction.records import CHECKED, OnNote

FORMAT: Literal["disavow-odds/1"] = "disavow-odds/1"


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class OddsLine:
    """A run without requests: its accuracy, FedAvg's on the same data, and the odds of section 4 of the design."""

    format: Literal["disavow-odds/1"] = FORMAT
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    clients: Number
    samples_per_client: Amount
    """On average."""
    k: Number
    sigma: Amount
    """Noise, as a multiple of what its mode says: a cluster's spread, or the sensitivity of the round."""
    seed: Count
    rounds: Count
    """That stand; fewer than were asked for where noise destroyed the model before."""
    network: Network
    device: str
    commit: str
    versions: Versions
    accuracy: Share
    fedavg_accuracy: Share
    log10_gamma_round: Amount | None
    """log10 γ of a round, the median over clients and rounds; none without noise, which hides nothing."""
    log10_gamma_composed: Amount | None
    """log10 γ over all rounds, the median over clients."""
    worst_round: Amount | None
    """log10 γ of a round, the largest."""
    worst_composed: Amount | None
    """log10 γ over all rounds, of the client for which it is largest."""
    seconds: Amount
    noise: Literal["paper", "sensitivity"] = "paper"
    """Its mode: what sigma is a multiple of."""
    representatives: Number = 1
    epochs: Number = 3
    """Local ones in each round."""


def read(path: Path, on_note: OnNote = lambda note: None) -> list[OddsLine]:
    """Every line of a file; none where there is no file. A torn last line is passed over, with a note."""
    return records.read(path, OddsLine, on_note)


def append(path: Path, line: OddsLine, on_note: OnNote = lambda note: None) -> None:
    """Add a line, whole and on disk, or not at all. A torn last line is taken out first, with a note."""
    records.append(path, line, on_note)
