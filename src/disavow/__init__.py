"""disavow: federated learning whose clients can leave."""

from __future__ import annotations

from importlib import import_module
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
    __version__: str
    from disavow.audit.game import Attacker
    from disavow.erasure.judge import Criterion
    from disavow.erasure.mechanisms import Mechanism
    from disavow.federation import Callbacks, Federation
    from disavow.results import Answer, ExportedModel, Prospect, Status
    from disavow.rounds.clustering import Clustering
    from disavow.rounds.clustering.geometry import Geometry
    from disavow.rounds.noise import Distribution, Noise
    from disavow.rounds.randomness import Stream
    from disavow.run_checks import check_run
    from disavow.tasks.task import Task, task
    from disavow.tracking.mlflow import MLflow
    from disavow.tracking.tensorboard import TensorBoard
    from disavow.tracking.tracker import Tracker

_LAZY = {
    "Answer": "disavow.results",
    "Attacker": "disavow.audit.game",
    "Callbacks": "disavow.federation",
    "Clustering": "disavow.rounds.clustering",
    "Criterion": "disavow.erasure.judge",
    "Distribution": "disavow.rounds.noise",
    "ExportedModel": "disavow.results",
    "Federation": "disavow.federation",
    "Geometry": "disavow.rounds.clustering.geometry",
    "MLflow": "disavow.tracking.mlflow",
    "Mechanism": "disavow.erasure.mechanisms",
    "Noise": "disavow.rounds.noise",
    "Prospect": "disavow.results",
    "Status": "disavow.results",
    "Stream": "disavow.rounds.randomness",
    "Task": "disavow.tasks.task",
    "TensorBoard": "disavow.tracking.tensorboard",
    "Tracker": "disavow.tracking.tracker",
    "check_run": "disavow.run_checks",
    "task": "disavow.tasks.task",
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
    "Geometry",
    "Layout",
    "MLflow",
    "Mechanism",
    "Member",
    "Noise",
    "Policy",
    "Prospect",
    "Round",
    "Slot",
    "Status",
    "Stream",
    "Task",
    "TensorBoard",
    "TensorSpec",
    "Tracker",
    "Verdict",
    "__version__",
    "check_run",
    "register",
    "task",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("disavow")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
