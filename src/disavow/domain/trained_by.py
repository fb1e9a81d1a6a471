"""What trains a run: whoever is to train it again must have the same."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class TrainedBy:
    """What trains a run, recorded when it starts and never changed.

    `kind` is "settings" where config.toml describes data, network and engine; "task" where a task does; "flower"
    where the clients are Flower nodes; "python" where it is an engine that the run's maker brings along. `data` is
    the SHA-256 of what the clients hold, None where the run cannot know, or knows it client by client. `frozen` is
    the SHA-256 of the model's frozen parameters, None where it has none.
    """

    kind: Literal["settings", "task", "python", "flower"] = "python"
    data: str | None = None
    frozen: str | None = None

    def to_json(self) -> str:
        """As the ledger stores it."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> TrainedBy:
        """Read back what `to_json` wrote."""
        found = TrainedBy(**json.loads(text))
        if found.kind not in ("settings", "task", "python", "flower"):
            raise ValueError(f"a run trained by {found.kind!r}")
        return found


OWN_CODE = TrainedBy()
"""What trains a run whose maker says nothing else."""
