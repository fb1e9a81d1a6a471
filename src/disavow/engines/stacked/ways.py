"""In which ways launches may run here: compiled, as CUDA graphs, or plainly; what fails once is not tried again."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import torch

Compile = Literal["never", "always"]
Graphs = Literal["auto", "never"]
ClientAxis = Literal["auto", "padded", "exact"]
Result = TypeVar("Result")

GRAPH_FROM = 2
"""What a call launches less often in one form is not captured: capturing takes as long as a few launches."""


class WayClosed(Exception):
    """A way that does not work here: go on without it. Never leaves this package."""


@dataclass
class Ways:
    """What the user allows, less what turned out not to work."""

    device: torch.device
    compile: Compile = "never"
    graphs: Graphs = "auto"
    client_axis: ClientAxis = "auto"
    closed: set[str] = field(default_factory=set)

    @property
    def compiles(self) -> bool:
        """Whether steps are compiled."""
        return self.compile == "always" and "compile" not in self.closed

    def captures(self, launches: int) -> bool:
        """Whether a form that a call launches so often becomes a CUDA graph."""
        allowed = self.graphs == "auto" and self.device.type == "cuda" and "graphs" not in self.closed
        return allowed and launches >= GRAPH_FROM

    @property
    def fixed_widths(self) -> bool:
        """Whether the client axis is padded: it pays where every new width must be prepared."""
        if self.client_axis == "auto":
            return self.compiles or self.captures(GRAPH_FROM)
        return self.client_axis == "padded"

    def attempt(self, way: str, what: str, work: Callable[[], Result]) -> Result:
        """The work's result; or, after one warning, `WayClosed`. Running out of memory is another matter."""
        try:
            return work()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self.closed.add(way)
            warnings.warn(
                f"{what} failed; going on without, more slowly ({type(error).__name__}: {error})",
                RuntimeWarning,
                stacklevel=2,
            )
            raise WayClosed(way) from error
