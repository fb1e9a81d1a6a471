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
    from disavow.checks import check_run
    from disavow.federation import Callbacks, Federation
    from disavow.results import Answer, ExportedModel, Prospect, Status

_APPLICATION = {
    "checks": ("check_run",),
    "federation": ("Callbacks", "Federation"),
    "results": ("Answer", "ExportedModel", "Prospect", "Status"),
}
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
    for module, names in _APPLICATION.items():
        if name in names:
            return getattr(import_module(f"disavow.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
