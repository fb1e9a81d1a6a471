"""disavow: federated learning whose clients can leave."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from disavow.audit.game import Attacker
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
    from disavow.erasure.judge import Criterion
    from disavow.erasure.mechanisms import Mechanism
    from disavow.erasure.purge import PurgeForecast
    from disavow.errors import DisavowError
    from disavow.federation import Callbacks, Federation
    from disavow.results import Answer, ExportedModel, Prospect, Purged, PurgeOutlook, Status
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
    "Cluster": "disavow.domain",
    "Clustering": "disavow.rounds.clustering",
    "Criterion": "disavow.erasure.judge",
    "DisavowError": "disavow.errors",
    "Distribution": "disavow.rounds.noise",
    "ErasureRequest": "disavow.domain",
    "Evaluation": "disavow.domain",
    "ExportedModel": "disavow.results",
    "Federation": "disavow.federation",
    "Geometry": "disavow.rounds.clustering.geometry",
    "Layout": "disavow.domain",
    "MLflow": "disavow.tracking.mlflow",
    "Mechanism": "disavow.erasure.mechanisms",
    "Member": "disavow.domain",
    "Noise": "disavow.rounds.noise",
    "Policy": "disavow.domain",
    "Prospect": "disavow.results",
    "PurgeForecast": "disavow.erasure.purge",
    "PurgeOutlook": "disavow.results",
    "Purged": "disavow.results",
    "Round": "disavow.domain",
    "Slot": "disavow.domain",
    "Status": "disavow.results",
    "Stream": "disavow.rounds.randomness",
    "Task": "disavow.tasks.task",
    "TensorBoard": "disavow.tracking.tensorboard",
    "TensorSpec": "disavow.domain",
    "Tracker": "disavow.tracking.tracker",
    "Verdict": "disavow.domain",
    "check_run": "disavow.run_checks",
    "register": "disavow.domain.strategies",
    "task": "disavow.tasks.task",
}
"""Where each name is; imported when it is used: the base install, an auditor's, does not have all of it."""

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
    "PurgeForecast",
    "PurgeOutlook",
    "Purged",
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
