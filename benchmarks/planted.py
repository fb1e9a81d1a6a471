"""How often an audit finds a leak that a server planted, and how often it accuses one that did nothing wrong.

Every erasure goes back to round 1. A clean server retrains exactly; a leaking one does too, and then brings back
something of the model that it had before. Clean audits may accuse in 5 % of cases, over all attackers together.

python -m benchmarks.planted clean 100
python -m benchmarks.planted fewest 100    the same with 32 worlds, the fewest that an audit takes
python -m benchmarks.planted leaks 10
python -m benchmarks.planted statistics 10
python -m benchmarks.planted pairs 100
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from disavow import config
from disavow.audit.attackers.before_after import ranks
from disavow.audit.audit import Effort, audit
from disavow.audit.intervals import clopper_pearson
from disavow.audit.rehearsal import rehearse
from disavow.audit.report import Audit
from disavow.audit.signals import client_losses
from disavow.audit.subject import Subject, subject_of
from disavow.audit.worlds import Kind, World, WorldKey, train_worlds
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.federation import Federation
from disavow.ledger import Ledger
from disavow.rounds.aggregate import aggregate
from disavow.rounds.broadcast import Broadcast
from disavow.rounds.local_training import Engine
from disavow.rounds.options import RoundOptions
from disavow.rounds.round import run_round
from disavow.rounds.vectors import Model, Updates

CLIENT = "client-02"

OVERFITTED: dict[str, Any] = {
    "rounds": 3,
    "draws": "seeded",
    "data": {"clients": 4, "test_fraction": 0.94},
    "clustering": {"k": 2},
    "deniability": {"x": 2},
    "noise": {"mode": "none"},
    "training": {"epochs": 10, "batch_size": 4},
}
"""27 samples a client, which it learns by heart; whoever leaves takes its cluster below x, in round 1 already."""

NORMALISED: dict[str, Any] = {**OVERFITTED, "model": {"name": "resnet-mini"}}
"""The same with batch norm."""

TWENTY: dict[str, Any] = {"rounds": 10, "draws": "seeded", "deniability": {"x": 4}}
"""The default federation of 20 clients, with an x that no cluster of four keeps without one of them."""

EFFORT = Effort(worlds=64, shadows=4, forgings=1)
FEWEST = replace(EFFORT, worlds=32)
"""The least that an audit takes: what is no leak must not look like one with few worlds, either."""


@dataclass(frozen=True)
class History:
    """What a server has at hand when it makes the model of a round: the models that it had, one a round, and the
    round's number; `update_of` trains a client, from the round's model.
    """

    superseded: dict[int, Model]
    number: int
    update_of: Callable[[str], Updates]
    clients: int

    @property
    def old(self) -> Model:
        """The model that was served."""
        return self.superseded[max(self.superseded)]

    @property
    def ends(self) -> bool:
        """Whether this is the last round, whose model is served."""
        return self.number == max(self.superseded)


Leak = Callable[[Model, History], Model]
"""The honestly retrained model of a round, and what the server records instead."""


def blend(share: float, *, only: Callable[[str], bool] = lambda tensor: True) -> Leak:
    """So much of the old model in the last one, in the tensors of these names."""

    def leak(honest: Model, history: History) -> Model:
        vector = honest.vector.clone()
        old = history.old.vector.to(vector)  # read from the ledger, and not from where the clients were trained
        for spec, start, end in honest.layout.spans():
            if history.ends and only(spec.name):
                vector[start:end] = (1 - share) * vector[start:end] + share * old[start:end]
        return Model(honest.layout, vector)

    return leak


def added_back(factor: float) -> Leak:
    """The leaver's update in the last round, times its share of the federation, times a factor."""

    def leak(honest: Model, history: History) -> Model:
        if not history.ends:
            return honest
        update = history.update_of(CLIENT).vectors[0].to(honest.vector)
        return Model(honest.layout, honest.vector + factor / history.clients * update)

    return leak


LEAKS: dict[str, Leak] = {
    "old dense layers": blend(1.0, only=lambda tensor: tensor.startswith("fc")),
    "20 % blend": blend(0.2),
    "full share added back": added_back(1.0),
    "tenth of it added back": added_back(0.1),
}

CLEAN = "clean"
STATISTICS = "old batch-norm statistics"
WARM = "warm start"
"""Retraining begins at the old model instead of the initial one: not a change of what a round gives."""

PRETENDED = "only pretends to retrain"

_ALL: dict[str, Leak] = {
    **LEAKS,
    STATISTICS: blend(1.0, only=lambda tensor: "running_" in tensor),
    PRETENDED: lambda honest, history: history.superseded[history.number],
}


@dataclass(frozen=True)
class Leaking(Retrain):
    """A server that retrains, and leaks."""

    leak: str = ""

    def rebuild_next(self, ledger: Ledger, engine: Engine, options: RoundOptions) -> None:
        """A round like any other, whose model is replaced by what the leak makes of it."""
        layout, number = ledger.layout, ledger.last_round + 1
        superseded = {
            each.number: Model(layout, torch.from_numpy(ledger.store.read(layout, each.after)))
            for each in ledger.summaries()
            if not each.standing
        }
        old, warm = superseded[max(superseded)], self.leak == WARM and number == 1

        def leaking(opening: Broadcast, *rest: Any, **more: Any) -> Model:
            if self.leak == WARM:
                return aggregate(replace(opening, model=old) if warm else opening, *rest, **more)
            history = History(
                superseded,
                number,
                lambda client: engine.train(opening.model, [client], number),
                len(ledger.clients()) + 1,
            )
            return _ALL[self.leak](aggregate(opening, *rest, **more), history)

        with patch("disavow.rounds.round.aggregate", leaking):
            run_round(ledger, _Elsewhere(engine, old) if warm else engine, options)


@dataclass(frozen=True)
class _Elsewhere:
    """An engine that trains from another model than it is asked to."""

    engine: Engine
    start: Model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def train(self, model: Model, *rest: Any, **more: Any) -> Updates:  # noqa: ARG002
        return self.engine.train(self.start, *rest, **more)


def audited(
    folder: Path, values: dict[str, Any], effort: Effort = EFFORT, mechanism: Mechanism | None = None
) -> Audit:
    """Train a federation, and audit a client of it."""
    with Federation.create(
        folder / "run", config.from_values(values, source="planted"), keys=folder / "keys"
    ) as run:
        run.train()
    report = audit(
        subject_of(folder / "run", CLIENT, keys=folder / "keys"),
        effort,
        work=folder / "work",
        keys=folder / "keys",
        mechanism=mechanism or Retrain(),
    )
    if report.answer.verdict is None or report.answer.verdict.round != 1:
        raise RuntimeError(f"{report.answer.verdict}: this is not the case to be measured")
    return report


def count(
    cases: Sequence[str], seeds: range, values: dict[str, Any] = OVERFITTED, effort: Effort = EFFORT
) -> list[dict[str, Any]]:
    """How many audits accuse in each case, and which attackers."""
    accused, by = Counter[str](), {case: Counter[str]() for case in cases}
    for seed in seeds:
        kept: dict[WorldKey, World] = {}
        for case in cases:
            mechanism = Retrain() if case == CLEAN else Leaking(leak=case)
            with tempfile.TemporaryDirectory(prefix="disavow-planted-") as folder, sharing(kept):
                report = audited(Path(folder), {**values, "seed": seed}, effort, mechanism)
            found_by = [found.attacker for found in (*report.remembering, *report.unlike)]
            accused[case] += not report.clean
            by[case].update(found_by)
            print(f"{case}, seed {seed}: {', '.join(found_by) or 'nothing'}", file=sys.stderr, flush=True)
    return [
        {
            "case": case,
            "audits": len(seeds),
            "accused": accused[case],
            "at_most": clopper_pearson(accused[case], len(seeds), 0.9).high,  # one-sided, 95 %
            "by": dict(by[case]),
        }
        for case in cases
    ]


@contextmanager
def sharing(kept: dict[WorldKey, World]) -> Iterator[None]:
    """Train worlds that never had the client once for all cases of a seed: how it is erased is nothing to them."""

    def train(subject: Subject, wanted: Sequence[WorldKey], folder: Path, **more: Any) -> dict[Kind, list[World]]:
        found = train_worlds(subject, [key for key in wanted if key not in kept], folder, **more)
        trained = {world.key: world for worlds in found.values() for world in worlds}
        kept.update({key: world for key, world in trained.items() if key.kind is not Kind.WITH})
        return {kind: [(kept | trained)[key] for key in wanted if key.kind is kind] for kind in Kind}

    with patch("disavow.audit.audit.train_worlds", train):
        yield


def count_pairs(seeds: range) -> dict[str, Any]:
    """How often the leaver is ranked first by who has both models, in clean rollbacks of 20 clients."""
    found_ranks = []
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="disavow-planted-") as name:
            folder = Path(name)
            settings = config.from_values({**TWENTY, "seed": seed}, source="planted")
            with Federation.create(folder / "run", settings, keys=folder / "keys") as run:
                run.train()
            subject = subject_of(folder / "run", CLIENT, keys=folder / "keys")
            with rehearse(subject, folder, keys=folder / "keys", mechanism=Retrain()) as rehearsal:
                before, after = (
                    client_losses(subject, model)[None] for model in (rehearsal.before, rehearsal.served)
                )
                verdict = rehearsal.answer.verdict
            if verdict is None or verdict.round != 1:
                raise RuntimeError(f"{verdict}: this is not the case to be measured")
        found_ranks.append(int(ranks(before, after)[0]))
        print(f"seed {seed}: {found_ranks[-1]} of {before.shape[1]}", file=sys.stderr, flush=True)
    first = found_ranks.count(1)
    interval = clopper_pearson(first, len(found_ranks), 0.95)
    return {
        "rollbacks": len(found_ranks),
        "clients": before.shape[1],
        "leaver_first": first,
        "interval": [interval.low, interval.high],
        "ranks": sorted(found_ranks),
    }


def main(what: str, seeds: range) -> None:
    """Measure, and print one line of JSON for each case."""
    if what == "pairs":
        rows = [count_pairs(seeds)]
    elif what == "leaks":
        rows = count((*LEAKS, WARM), seeds)
    elif what == "statistics":
        rows = count((STATISTICS,), seeds, NORMALISED)
    else:
        rows = count((CLEAN,), seeds, effort=FEWEST if what == "fewest" else EFFORT)
    for line in rows:
        print(json.dumps(line))


if __name__ == "__main__":
    number, begin = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    main(sys.argv[1], range(begin, begin + number))
