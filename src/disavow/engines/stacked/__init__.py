"""All clients of a round in one stack: the way of the fast engine on a GPU.

    asks -> rows -> chunks that fit -> launches -> updates

A *row* is one client of one federation. Rows are independent, so federations share a stack wherever their networks
are built alike. A *launch* is one step of some rows at once: `schedule` says which, `step` is the arithmetic,
`launcher` the way to run it, `memory` how many rows fit.
"""

from disavow.engines.stacked.trainer import StackedTrainer

__all__ = ["StackedTrainer"]
