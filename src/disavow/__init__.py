"""disavow: federated learning whose clients can leave."""

from __future__ import annotations

from importlib.metadata import version as _version

from disavow.domain import Cluster, Evaluation, Layout, Member, Policy, Round, Slot, TensorSpec
from disavow.errors import DisavowError

__version__ = _version("disavow")

__all__ = [
    "Cluster",
    "DisavowError",
    "Evaluation",
    "Layout",
    "Member",
    "Policy",
    "Round",
    "Slot",
    "TensorSpec",
    "__version__",
]
