"""What the server promises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """What the server promises before the first round. Part of the ledger, never of a single round.

    `delta` is a fixed distance, or None for *adaptive*: each round's largest spread. `mechanism` is what rebuilds a
    model after a rollback: it decides what the run keeps beside its models.
    """

    k: int
    x: int
    criterion: str
    delta: float | None
    clustering: str
    sticky: bool
    metric: str
    noise: str
    distribution: str
    sigma: float
    clip: float | None
    tau: float | None
    draws: str
    mechanism: str = "retrain"
