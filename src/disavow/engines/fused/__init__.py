"""The GPU way for networks that are chains: clients stacked, a step in a few fused kernels, replayed as a graph."""

from disavow.engines.fused.trainer import FusedTrainer

__all__ = ["FusedTrainer"]
