"""The GPU way for convolutions, batch norms, sums and dense layers: clients stacked, a step in a few dozen kernels,
replayed as a graph.
"""

from disavow.engines.fused.network import NotFusable
from disavow.engines.fused.trainer import FusedTrainer

__all__ = ["FusedTrainer", "NotFusable"]
