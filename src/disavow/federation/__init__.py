"""A round: broadcast, local training, cluster, choose and perturb, aggregate, record."""

from disavow.federation.local_training import Engine
from disavow.federation.randomness import Secrets
from disavow.federation.round import close_round, run_round
from disavow.federation.vectors import Model, Updates

__all__ = ["Engine", "Model", "Secrets", "Updates", "close_round", "run_round"]
