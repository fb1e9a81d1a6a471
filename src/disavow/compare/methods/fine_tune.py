"""Train on without the leaver and wait for the model to forget by itself. No guarantee."""

from __future__ import annotations

from dataclasses import dataclass

from disavow.compare.method import Federation, Forgotten, Method
from disavow.compare.methods.rounds import share_of_rounds, train_on


@dataclass(frozen=True)
class FineTune(Method):
    """See `Method`. `share` of the training's rounds are run once more with those who remain."""

    name = "fine-tune"
    paper = "natural forgetting: the baseline of most papers on unlearning"
    claim = "nothing"

    share: float = 0.2

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        rounds = share_of_rounds(federation, self.share)
        return Forgotten(train_on(federation, federation.training.served, rounds), f"{rounds} more rounds")
