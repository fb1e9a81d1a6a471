"""Rounds on real Flower nodes: `KIPFedAvg` in place of FedAvg in a ServerApp. Needs the extra `flower`.

The client's side, which no app has to use, is in `disavow.engines.flower.client`.
"""

from __future__ import annotations

from disavow.engines.flower.strategy import KIPFedAvg

__all__ = ["KIPFedAvg"]
