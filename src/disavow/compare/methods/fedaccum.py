"""FedAccum: add up the stored updates of those who remain, round by round, without training. Approximate.

The baseline of G. Liu, X. Ma, Y. Yang, C. Wang and J. Liu, "FedEraser: Enabling Efficient Client-Level Data Removal
from Federated Learning Models" (2021): what FedEraser would be without its calibration.
"""

from __future__ import annotations

from dataclasses import dataclass

from disavow.compare.averages import stored_updates, weighted_mean
from disavow.compare.method import Federation, Forgotten, Method
from disavow.rounds.vectors import Model, floor_variances


@dataclass(frozen=True)
class FedAccum(Method):
    """See `Method`."""

    name = "fedaccum"
    paper = "Liu et al., FedEraser: Enabling Efficient Client-Level Data Removal, IWQoS 2021 (their baseline)"
    stores = "updates"
    claim = "nothing: stored updates after the first round were made from models that the leaver had a part in"
    records = False  # a client's stored update cannot be split by its records

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        training = federation.training
        vector = training.initial.clone()
        for trained in training.rounds:
            clients, samples, updates = stored_updates(trained, federation.remaining)
            if clients:
                vector = vector + weighted_mean(updates, samples)
            federation.tell(trained.number, len(training.rounds))
        # sums of updates that were made from other models can leave a running variance below zero
        return Forgotten(floor_variances(Model(training.layout, vector), 0.0).vector)
