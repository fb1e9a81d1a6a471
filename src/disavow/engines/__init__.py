"""Engines train the clients of a round. One protocol, one contract suite: see `federation.local_training`."""

from disavow.engines.choice import build, trainer_for

__all__ = ["build", "trainer_for"]
