"""Local training in compiled code, for networks that are a chain of convolutions and dense layers."""

from disavow.engines.compiled.build import NoKernels
from disavow.engines.compiled.chain import NotAChain
from disavow.engines.compiled.trainer import CompiledTrainer

__all__ = ["CompiledTrainer", "NoKernels", "NotAChain"]
