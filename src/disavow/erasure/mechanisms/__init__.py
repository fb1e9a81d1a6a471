"""How a model is rebuilt after a rollback. One interface for all mechanisms."""

from disavow.erasure.mechanisms.mechanism import Mechanism, Step, Work, build, refuse_another
from disavow.erasure.mechanisms.without_retraining import DECLINED, WithoutRetraining

__all__ = ["DECLINED", "Mechanism", "Step", "WithoutRetraining", "Work", "build", "refuse_another"]
