"""How a model is rebuilt after a rollback. One interface for all mechanisms."""

from disavow.erasure.mechanisms.declined import DECLINED, WithoutRetraining
from disavow.erasure.mechanisms.mechanism import Mechanism, Step, Work, build, refuse_another

__all__ = ["DECLINED", "Mechanism", "Step", "WithoutRetraining", "Work", "build", "refuse_another"]
