"""What one federation of the study of odds came to, as one line of a results file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from disavow.experiments import records
from disavow.experiments.lines import Amount, Count, Network, Number, Share, Versions
from disavow.experiments.records import CHECKED, OnNote

FORMAT: Literal["disavow-odds/1"] = "disavow-odds/1"


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Odds:
    """A federation trained with noise, and the odds that the noise leaves.

    Odds are log10 γ, of one round and composed over all rounds; of the client for which they are the median, and of
    the one for which they are worst.
    """

    format: Literal["disavow-odds/1"] = FORMAT
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    clients: Number
    samples_per_client: Amount
    k: Number
    sigma: Amount
    seed: Count
    rounds: Count
    """Fewer than were asked for where noise destroyed the model before."""
    network: Network
    device: str
    commit: str
    versions: Versions
    accuracy: Share
    fedavg_accuracy: Share
    log10_gamma_round: Amount | None
    log10_gamma_composed: Amount | None
    worst_round: Amount | None
    worst_composed: Amount | None
    seconds: Amount


def read(path: Path, on_note: OnNote = lambda note: None) -> list[Odds]:
    """Every line of a results file; none where there is no file."""
    return records.read(path, Odds, on_note)


def append(path: Path, line: Odds, on_note: OnNote = lambda note: None) -> None:
    """Add a line, whole and on disk, or not at all."""
    records.append(path, line, on_note)
