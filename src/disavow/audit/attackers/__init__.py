"""Who plays against the challenger, by name. All share the protocol `Attacker` of `disavow.audit.game`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from disavow.audit.attackers.alignment import UpdateAlignment
from disavow.audit.attackers.before_after import BeforeAfter
from disavow.audit.attackers.lira import OfflineLira, OnlineLira
from disavow.audit.attackers.loss import LossThreshold
from disavow.audit.attackers.parameters import ParameterProjection
from disavow.audit.attackers.subject import SubjectLevel
from disavow.audit.game import Attacker

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

_ALL: tuple[Attacker, ...] = (
    LossThreshold(),
    OnlineLira(),
    OfflineLira(),
    SubjectLevel(),
    UpdateAlignment(),
    ParameterProjection(),
)

ATTACKERS: Mapping[str, Attacker] = MappingProxyType({attacker.name: attacker for attacker in _ALL})
"""Those who may accuse a server, in the order of reports."""

BEFORE_AFTER: Attacker = BeforeAfter()
"""The one who has the superseded models too, and accuses nobody."""
