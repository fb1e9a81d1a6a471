"""The settings of a run: frozen, read from TOML once, at the edge.

Every key, its default and its meaning is declared once: `disavow init`, `docs/configuration.md` and the error
messages are made from these declarations.
"""

from disavow.config.declarations import (
    ClusteringSettings,
    DataSettings,
    DeniabilitySettings,
    EngineSettings,
    LedgerSettings,
    MechanismSettings,
    ModelSettings,
    NoiseSettings,
    PrivacySettings,
    RequestSettings,
    TaskSettings,
    TrackingSettings,
    TrainingSettings,
    WitnessServer,
    WitnessSettings,
)
from disavow.config.settings import CHANGEABLE, PROJECTION_LIMIT, UNKEPT, Settings, participants_of
from disavow.config.toml import (
    allowed,
    from_values,
    load,
    meaning,
    parse,
    sections,
    settings_digest,
    to_toml,
    with_policy,
)

__all__ = [
    "CHANGEABLE",
    "PROJECTION_LIMIT",
    "UNKEPT",
    "ClusteringSettings",
    "DataSettings",
    "DeniabilitySettings",
    "EngineSettings",
    "LedgerSettings",
    "MechanismSettings",
    "ModelSettings",
    "NoiseSettings",
    "PrivacySettings",
    "RequestSettings",
    "Settings",
    "TaskSettings",
    "TrackingSettings",
    "TrainingSettings",
    "WitnessServer",
    "WitnessSettings",
    "allowed",
    "from_values",
    "load",
    "meaning",
    "parse",
    "participants_of",
    "sections",
    "settings_digest",
    "to_toml",
    "with_policy",
]
