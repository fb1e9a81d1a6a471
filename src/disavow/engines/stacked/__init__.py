"""Train all clients of a round at once by `torch.func.vmap`: the general trainer for GPUs.

    requests -> clients -> stacks that fit into memory -> steps over a stack -> updates

`network` is a network as a function of stacked tensors, `check` refuses those that cannot be one, `step` is one
step of an optimizer over stacked clients (captured as a CUDA graph), `trainer` decides who takes it together.
"""

from disavow.engines.stacked.trainer import StackedTrainer

__all__ = ["StackedTrainer"]
