"""Which engine trains a run, and why no faster one does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EngineChoice:
    """Name the engine that trains, and the faster ones that cannot.

    Args:
        name: What trains, such as `compiled`, `pool` or `sequential on cuda`.
        passed_over: Faster engines, each with the reason why it does not train.

    >>> str(EngineChoice("sequential", (("pool", "one core"), ("stacked", "no GPU"))))
    'sequential (pool: one core; stacked: no GPU)'
    """

    name: str
    passed_over: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        reasons = "; ".join(f"{engine}: {reason}" for engine, reason in self.passed_over)
        return f"{self.name} ({reasons})" if reasons else self.name

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {"name": self.name, "passed_over": dict(self.passed_over)}

    def to_text(self) -> str:
        """As the ledger stores it."""
        return json.dumps(self.to_json())

    @classmethod
    def from_text(cls, text: str) -> EngineChoice:
        """Read back what `to_text` wrote."""
        found = json.loads(text)
        return cls(str(found["name"]), tuple((str(k), str(v)) for k, v in found["passed_over"].items()))
