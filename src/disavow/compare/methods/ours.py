"""Plausible deniability: an erasure as `disavow erase` answers it, on a copy of the training's ledger.

A. K. Varshney and V. Torra, "Efficient Federated Unlearning under Plausible Deniability", Machine Learning 2024. A
leaver whose clusters keep enough survivors is deniable: the model stays. Otherwise the rounds from the first broken
one on are undone and retrained. A purge removes what deniability leaves in the model, by an exact retraining.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from disavow import runs
from disavow.audit.rehearsal import place_request
from disavow.compare.metered import MeteredFederation
from disavow.compare.method import Federation, Forgotten, Method
from disavow.engines.trainer import VectorisedEngine
from disavow.erasure.erase import answer_requests
from disavow.erasure.mechanisms import build as build_mechanism
from disavow.erasure.purge import purge
from disavow.erasure.reporting import Reporting
from disavow.errors import PurgeRefused


@dataclass(frozen=True)
class Ours(Method):
    """One representative of each cluster; the request is answered, and nothing is purged."""

    name = "ours"
    paper = "A. K. Varshney and V. Torra, Efficient Federated Unlearning under Plausible Deniability, 2024"
    scheme = "s1"
    stores = "models"
    claim = "deniable: every round could have come from the survivors of the leaver's clusters; else as retrain"
    purged: ClassVar[bool] = False

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        if not isinstance(federation, MeteredFederation):
            raise TypeError("an erasure takes the federation that a comparison gives")
        problem, training = federation.problem, federation.training
        settings = problem.subject.settings
        mechanism = build_mechanism(settings.mechanism)
        with federation.copied_run() as ledger:
            options = problem.options(training.seed, f"rounds of {self.name}")
            options = replace(options, budget=runs.budget_of(settings))  # as the run's own erasure would
            if options.participation is not None:
                options.participation.clients.remember(problem.subject.clients)
            place_request(problem.subject, ledger, options.clock())
            engine = VectorisedEngine(federation.workload, federation.trainer)
            reporting = Reporting(openings=ledger.directory.with_name("openings"))
            [answer] = answer_requests(ledger, engine, options, mechanism, reporting)
            remark = "; ".join(filter(None, (str(answer.verdict), answer.remark)))
            if self.purged:
                try:
                    purge(ledger, engine, options, mechanism, reporting)
                except PurgeRefused as refusal:
                    remark += f"; not purged: {refusal}"
            served = torch.from_numpy(ledger.model_before(ledger.last_round + 1))
        federation.tell(1, 1)
        return Forgotten(served, remark)


@dataclass(frozen=True)
class OursPurged(Ours):
    """The same, then a purge: an exact retraining from the leaver's first standing round on."""

    name = "ours-purged"
    exact = True
    claim = "until the purge, deniable; after it, the model is one that training without the leaver gives"
    purged = True


@dataclass(frozen=True)
class OursThree(Ours):
    """The mean of three representatives of each cluster."""

    name = "ours-s3"
    scheme = "s3"


@dataclass(frozen=True)
class OursThreePurged(OursPurged):
    """The same, then a purge."""

    name = "ours-s3-purged"
    scheme = "s3"
