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
from disavow.errors import DisavowError

if TYPE_CHECKING:
    __version__: str
    from disavow.federation import Answer, Callbacks, ExportedModel, Federation, Prospect, Status, check_run

_APPLICATION = ("Answer", "Callbacks", "ExportedModel", "Federation", "Prospect", "Status", "check_run")
"""What needs the extra `ledger`; an auditor, who imports this package too, has only the base install."""

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
    "TensorSpec",
    "Verdict",
    "__version__",
    "check_run",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("disavow")
    if name in _APPLICATION:
        return getattr(import_module("disavow.federation"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
