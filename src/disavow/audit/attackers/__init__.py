"""Who plays against the challenger, by name. All share the protocol `Attacker` of `disavow.audit.game`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from disavow.audit.attackers.alignment import UpdateAlignment
from disavow.audit.attackers.lira import OfflineLira, OnlineLira
from disavow.audit.attackers.loss import LossThreshold
from disavow.audit.attackers.subject import SubjectLevel
from disavow.audit.game import Attacker

__all__ = ["ATTACKERS", "LossThreshold", "OfflineLira", "OnlineLira", "SubjectLevel", "UpdateAlignment"]

_ALL: tuple[Attacker, ...] = (LossThreshold(), OnlineLira(), OfflineLira(), SubjectLevel(), UpdateAlignment())

ATTACKERS: Mapping[str, Attacker] = MappingProxyType({attacker.name: attacker for attacker in _ALL})
"""In the order of reports."""
