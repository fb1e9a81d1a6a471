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
from disavow.errors import DisavowError

if TYPE_CHECKING:
    from disavow.federation import Answer, Callbacks, ExportedModel, Federation, Prospect, Status, check_run
    from disavow.tasks.task import Task, task

__version__ = _version("disavow")

_APPLICATION = ("Answer", "Callbacks", "ExportedModel", "Federation", "Prospect", "Status", "check_run")
"""What needs the extra `ledger`; an auditor, who imports this package too, has only the base install."""

_TASKS = ("Task", "task")
"""What needs the extra `train`, because it imports torch."""

__all__ = [
    "Answer",
    "Callbacks",
    "Cluster",
    "DisavowError",
    "ErasureRequest",
    "Evaluation",
    "ExportedModel",
    "Federation",
    "Layout",
    "Member",
    "Policy",
    "Prospect",
    "Round",
    "Slot",
    "Status",
    "Task",
    "TensorSpec",
    "Verdict",
    "__version__",
    "check_run",
    "task",
]


def __getattr__(name: str) -> Any:
    if name in _APPLICATION:
        return getattr(import_module("disavow.federation"), name)
    if name in _TASKS:
        return getattr(import_module("disavow.tasks.task"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
