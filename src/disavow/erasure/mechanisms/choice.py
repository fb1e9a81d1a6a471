"""Which mechanism: what the settings ask for."""

from __future__ import annotations

from disavow.config import MechanismSettings
from disavow.erasure.mechanisms.federaser import FedEraser
from disavow.erasure.mechanisms.mechanism import Mechanism
from disavow.erasure.mechanisms.retrain import Retrain, RetrainFromScratch


def build(settings: MechanismSettings) -> Mechanism:
    """The mechanism that the settings ask for."""
    if settings.name == "federaser":
        return FedEraser(calibration=settings.calibration)
    return RetrainFromScratch() if settings.name == "retrain-from-scratch" else Retrain()
