"""What a federation of TOFU's authors is trained with, by name, and who of them leaves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from disavow import config

PROJECTIONS: dict[str, tuple[str, ...]] = {
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "all": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    "output": ("o_proj",),
}


@dataclass(frozen=True)
class AuthorSettings:
    """Everything that decides what a federation of authors learns.

    Attributes:
        authors: How many clients; see `reproduction.tofu.questions.clients_of`.
        rounds: How many.
        epochs: Local epochs of a round.
        batch_size: Questions of a local step.
        learning_rate: Of AdamW.
        rank: Of the adapter.
        alpha: Scales it, with the rank.
        projections: Which matrices of the base get one, a key of `PROJECTIONS`.
        freeze_a: Train the B matrices alone.
        length: Tokens of a text at most.
        k: Clients of a cluster at least.
        representatives: Members of each cluster that are drawn.
        x: Who could be taken for a leaver: a deniable departure leaves x + representatives - 1 in each cluster.
        sigma: How much noise, as its mode counts it; 0: none.
        noise: The mode of the noise.
        precision: Of products on a GPU.
        engine: What trains; `auto`: the fastest here.
        seed: Of the run.

    """

    authors: int = 200
    rounds: int = 30
    epochs: int = 4
    batch_size: int = 5
    learning_rate: float = 0.02
    rank: int = 16
    alpha: float = 32.0
    projections: str = "all"
    freeze_a: bool = True
    length: int = 128
    k: int = 10
    representatives: int = 5
    x: int = 2
    sigma: float = 0.0005
    noise: str = "paper"
    precision: Literal["float32", "tf32", "bf16"] = "tf32"
    engine: Literal["auto", "sequential"] = "auto"
    seed: int = 1

    @property
    def key(self) -> str:
        """What tells these settings from others, short enough for a folder."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def settings(self, base: Path, data: Path, test: Path, *, device: str) -> config.Settings:
        """Give the settings of a run.

        Args:
            base: The folder of the base.
            data: The clients' texts.
            test: Held-out questions.
            device: Where to train.

        """
        options: dict[str, Any] = {
            "model": str(base),
            "data": str(data),
            "test": str(test),
            "rank": self.rank,
            "alpha": self.alpha,
            "modules": list(PROJECTIONS[self.projections]),
            "freeze_a": self.freeze_a,
            "length": self.length,
        }
        noise = {"mode": self.noise, "sigma": self.sigma} if self.sigma > 0 else {"mode": "none"}
        values: dict[str, Any] = {
            "rounds": self.rounds,
            "seed": self.seed,
            "task": {"factory": "adapters", "options": options},
            "training": {
                "epochs": self.epochs,
                "batch_size": self.batch_size,
                "learning_rate": self.learning_rate,
            },
            "clustering": {"k": self.k, "representatives": self.representatives},
            "deniability": {"x": self.x},
            "noise": noise,
            "engine": {
                "name": self.engine,
                "device": device,
                "precision": self.precision if device == "cuda" else "float32",
            },
        }
        return config.from_values(values, source="tofu")


FIRST_MEASURED = AuthorSettings(
    epochs=2,
    batch_size=10,
    learning_rate=0.005,
    rank=8,
    alpha=16.0,
    projections="attention",
    length=256,
    k=10,
    representatives=3,
    x=3,
)
"""What was trained first: 49,152 numbers learned next to nothing."""

CANDIDATES: dict[str, AuthorSettings] = {
    "r16": AuthorSettings(),
    "r16-steps": AuthorSettings(batch_size=2, learning_rate=0.01),
    "r32": AuthorSettings(rank=32, alpha=64.0, learning_rate=0.01),
    "r16-rounds": AuthorSettings(rounds=60, epochs=2),
    "r16-40-authors": AuthorSettings(authors=40, rounds=100),
    "first": replace(FIRST_MEASURED, length=128),
}
"""What `sweep` tries, by name; the most promising first."""

CHOSEN = "r16"
"""What `federation` trains unless another is named."""

SMOKE = AuthorSettings(
    authors=20,
    rounds=3,
    epochs=1,
    batch_size=10,
    rank=2,
    alpha=4.0,
    projections="attention",
    length=160,
    k=5,
    representatives=2,
    engine="sequential",
)
"""For a test."""
