"""The nouns of disavow: frozen, comparable, free of torch, numpy and databases.

A *client* is known by a stable string id, never by its position in a list. A *round* holds *clusters*, a
cluster holds *slots*, and a slot is filled by one *member*. When a client leaves, its slot stays, nameless.
"""

from disavow.domain.anchors import Anchor, Anchors, Place, TakingPart
from disavow.domain.engine_choice import EngineChoice
from disavow.domain.escaping import escaped
from disavow.domain.evidence import ClusterEvidence, RebuiltEvidence
from disavow.domain.history import Deadline, Decision, EventKind, RequestEvent
from disavow.domain.layout import VARIANCE_FLOOR, VARIANCE_SUFFIX, ConstantTensor, Layout, TensorSpec
from disavow.domain.policy import Policy
from disavow.domain.records import Exclusions
from disavow.domain.release import Release
from disavow.domain.request import Approval, Cost, ErasureRequest, RequestState
from disavow.domain.round import Cluster, Evaluation, Member, Rebuilt, Round, Slot
from disavow.domain.size_class import size_class
from disavow.domain.trained_by import OWN_CODE, TrainedBy
from disavow.domain.verdict import Verdict, VerdictKind, model_name

__all__ = [
    "OWN_CODE",
    "VARIANCE_FLOOR",
    "VARIANCE_SUFFIX",
    "Anchor",
    "Anchors",
    "Approval",
    "Cluster",
    "ClusterEvidence",
    "ConstantTensor",
    "Cost",
    "Deadline",
    "Decision",
    "EngineChoice",
    "ErasureRequest",
    "Evaluation",
    "EventKind",
    "Exclusions",
    "Layout",
    "Member",
    "Place",
    "Policy",
    "Rebuilt",
    "RebuiltEvidence",
    "Release",
    "RequestEvent",
    "RequestState",
    "Round",
    "Slot",
    "TakingPart",
    "TensorSpec",
    "TrainedBy",
    "Verdict",
    "VerdictKind",
    "escaped",
    "model_name",
    "size_class",
]
