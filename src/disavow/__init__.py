"""disavow: federated learning whose clients can leave."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

from disavow.domain import (
    Cluster,
    ErasureRequest,
    Evaluation,
    Layout,
    Member,
    Policy,
    Round,
    Slot,
    TensorSpec,
    Verdict,
)
from disavow.domain.strategies import register
from disavow.errors import DisavowError

if TYPE_CHECKING:
    from disavow.audit.game import Attacker
    from disavow.erasure.judge import Criterion
    from disavow.erasure.mechanisms import Mechanism
    from disavow.federation import Answer, Callbacks, ExportedModel, Federation, Prospect, Status, check_run
    from disavow.rounds.clustering import Clustering
    from disavow.rounds.noise import Distribution, Noise

__version__ = _version("disavow")

_LAZY = {
    **dict.fromkeys(
        ("Answer", "Callbacks", "ExportedModel", "Federation", "Prospect", "Status", "check_run"),
        "disavow.federation",
    ),
    "Attacker": "disavow.audit.game",
    "Clustering": "disavow.rounds.clustering",
    "Criterion": "disavow.erasure.judge",
    "Distribution": "disavow.rounds.noise",
    "Mechanism": "disavow.erasure.mechanisms",
    "Noise": "disavow.rounds.noise",
}
"""What needs more than the base install, which is all that an auditor has; by where it is."""

__all__ = [
    "Answer",
    "Attacker",
    "Callbacks",
    "Cluster",
    "Clustering",
    "Criterion",
    "DisavowError",
    "Distribution",
    "ErasureRequest",
    "Evaluation",
    "ExportedModel",
    "Federation",
    "Layout",
    "Mechanism",
    "Member",
    "Noise",
    "Policy",
    "Prospect",
    "Round",
    "Slot",
    "Status",
    "TensorSpec",
    "Verdict",
    "__version__",
    "check_run",
    "register",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
