"""Who plays against the challenger. `ATTACKERS` of `disavow.audit.game` has them by name."""

from disavow.audit.attackers.alignment import UpdateAlignment
from disavow.audit.attackers.before_after import BEFORE_AFTER, BeforeAfter
from disavow.audit.attackers.lira import OfflineLira, OnlineLira
from disavow.audit.attackers.loss import LossThreshold
from disavow.audit.attackers.parameters import ParameterProjection
from disavow.audit.attackers.subject_level import SubjectLevel
from disavow.audit.game import ATTACKERS

__all__ = [
    "ATTACKERS",
    "BEFORE_AFTER",
    "BeforeAfter",
    "LossThreshold",
    "OfflineLira",
    "OnlineLira",
    "ParameterProjection",
    "SubjectLevel",
    "UpdateAlignment",
]
