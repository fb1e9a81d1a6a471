"""FedEraser: rebuilt from kept updates, approximately."""

from __future__ import annotations

from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms.federaser import FedEraser
from tests.erasure.mechanisms.contract import MechanismContract


class TestFedEraser(MechanismContract):
    """Approximate, and needs updates."""

    def make(self) -> Mechanism:
        return FedEraser()
