"""What every mechanism owes: one suite, inherited by one test class a mechanism; and the toy federation it runs on.

    class TestRetrain(MechanismContract):
        def make(self) -> Mechanism: ...

The toy federation is real in everything but its training: ledger, journal, clusters, draws and files are those of
any run, and a round takes milliseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from disavow import config, runs
from disavow.config import Settings
from disavow.data import client_ids
from disavow.domain import ErasureRequest, Evaluation, Layout, TensorSpec
from disavow.erasure.mechanisms import Mechanism
from disavow.federation.randomness import training_stream
from disavow.federation.vectors import Model, Updates
from disavow.ledger import Ledger, RoundSummary, fsck, journal, log
from disavow.runs import Run
from tests.federation.builders import MOMENT

LAYOUT = Layout((TensorSpec("body.weight", (3, 2)), TensorSpec("body.bias", (2,))))


@dataclass(frozen=True)
class ToyEngine:
    """Clients pull the model towards places of their own, with a jitter of each round."""

    seed: int
    jitter: float = 0.5

    def train(self, model: Model, clients: Sequence[str], round_number: int) -> Updates:
        """See `Engine`."""
        rows = [self._one(model, client, round_number) for client in clients]
        samples = tuple(5 + len(client) + int(client[-1], 36) % 4 for client in clients)
        return Updates(tuple(clients), samples, torch.stack(rows))

    def _one(self, model: Model, client: str, round_number: int) -> torch.Tensor:
        size = model.layout.size
        home = training_stream(self.seed, "home", client=client).normal(size)
        jitter = training_stream(self.seed, "jitter", round_number=round_number, client=client).normal(size)
        return 0.2 * ((home + self.jitter * jitter).float() - model.vector)

    def evaluate(self, model: Model) -> Evaluation:
        """See `Engine`."""
        loss = float(model.vector.double().square().mean())
        return Evaluation(1 / (1 + loss), loss)

    def close(self) -> None:
        """See `Engine`."""


def toy_settings(clients: int = 9, **changed: Any) -> Settings:
    """Settings of a toy run: k = 3, x = 2, sticky clusters, seeded draws; a table is merged, not replaced."""
    values: dict[str, Any] = {
        "seed": 3,
        "rounds": 4,
        "draws": "seeded",
        "data": {"clients": clients},
        "training": {"epochs": 2},
        "clustering": {"k": 3},
        "deniability": {"x": 2},
    }
    for name, value in changed.items():
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    return config.from_values(values, source="tests")


def start_toy(directory: Path, settings: Settings, *, ids: Sequence[str] = (), keys: Path | None = None) -> Run:
    """A new toy run, with keys beside it unless given."""
    ledger = Ledger.create(
        directory,
        policy=settings.policy,
        layout=LAYOUT,
        initial=np.linspace(-1, 1, LAYOUT.size, dtype=np.float32),
        clients=ids or client_ids(settings.data.clients),
        config=config.to_toml(settings),
        created_by="tests",
        at=MOMENT,
    )
    return _assembled(settings, ledger, keys)


def reopen_toy(directory: Path, *, keys: Path | None = None) -> Run:
    """A toy run that was started before, as another process would open it."""
    return _assembled(runs.settings_of(directory), Ledger.open(directory, write=True), keys)


def _assembled(settings: Settings, ledger: Ledger, keys: Path | None) -> Run:
    engine = ToyEngine(settings.seed)
    keys = keys or ledger.directory.with_name("keys")
    return Run(settings, ledger, engine, runs.conduct_of(settings), keys)


def ask(run: Run, *clients: str) -> tuple[int, ...]:
    """Place requests and leave them waiting."""
    return run.ledger.place_requests(clients, key=run.tombstone_key(), at=MOMENT)


def leave(run: Run, *clients: str) -> tuple[ErasureRequest, ...]:
    """Place requests and see them answered."""
    numbers = ask(run, *clients)
    run.honour_requests()
    return run.ledger.requests(numbers)


def standing(ledger: Ledger) -> list[RoundSummary]:
    """The rounds that stand."""
    return [summary for summary in ledger.summaries() if summary.standing]


def digests(ledger: Ledger) -> list[str]:
    """The models of the rounds that stand."""
    return [summary.after for summary in standing(ledger)]


def groups(ledger: Ledger, number: int) -> set[frozenset[str]]:
    """Who is with whom in a standing round."""
    return {frozenset(group) for group in ledger.membership(number)}


def faults(directory: Path) -> list[str]:
    """What fsck finds wrong."""
    return [str(finding) for finding in fsck(directory) if finding.fault]


def pair_first_together_in(ledger: Ledger, number: int, *, size: int = 3) -> tuple[str, str]:
    """Two clients who share a cluster of `size` for the first time in round `number`, and none as small before.

    With k = `size` = 3 and x = 2 their leaving together breaks that round first.
    """
    for pair in combinations(ledger.clients(), 2):
        together = [t for t in range(1, number + 1) if any(set(pair) <= g for g in groups(ledger, t))]
        small = [t for t in together if any(set(pair) <= g and len(g) == size for g in groups(ledger, t))]
        if small == [number]:
            return pair
    raise AssertionError(f"no two clients meet in a cluster of {size} first in round {number}")


def rolled_back(run: Run, leavers: Sequence[str], to: int) -> None:
    """Withdraw and supersede as an erasure does, and stop before anything is rebuilt."""
    from disavow.domain import Verdict, VerdictKind

    ask(run, *leavers)
    with run.ledger.transaction() as connection:
        erasure = journal.open_erasure(
            connection,
            journal.waiting(connection),
            Verdict(VerdictKind.ROLLBACK, to),
            mechanism=run.mechanism.name,
            at=MOMENT,
        )
        journal.supersede(connection, to, erasure)
        log.log_erasure(connection, erasure)


class MechanismContract(ABC):
    """Rebuilds superseded rounds one at a time, with the survivors, from the model of before."""

    @abstractmethod
    def make(self) -> Mechanism:
        """The mechanism under test."""

    def trained(self, directory: Path, **changed: Any) -> Run:
        """A trained toy run that rebuilds with the mechanism under test."""
        run = replace(start_toy(directory, toy_settings(**changed)), mechanism=self.make())
        run.train()
        return run

    def test_it_says_what_it_is(self) -> None:
        mechanism = self.make()
        assert mechanism.name
        assert isinstance(mechanism.exact, bool)
        assert isinstance(mechanism.needs, frozenset)

    def test_one_call_rebuilds_one_round_from_the_model_of_before_without_the_leavers(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            rolled_back(run, ["client-04"], 3)
            before = run.ledger.digest_before(3)
            run.mechanism.rebuild_next(run.ledger, run.engine, run.conduct)
            assert run.ledger.next_round() == (4, 2)
            rebuilt = run.ledger.round(3)
            assert (rebuilt.attempt, rebuilt.before) == (2, before)
            assert {c for group in groups(run.ledger, 3) for c in group} <= set(run.ledger.clients())
            assert "client-04" not in run.ledger.clients()

    def test_call_after_call_rounds_follow_one_another_without_a_gap(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            rolled_back(run, ["client-04", "client-05"], 1)
            for number in range(1, 5):
                assert run.ledger.next_round() == (number, 2)
                assert run.mechanism.obstacle(run.ledger, run.conduct) is None
                run.mechanism.rebuild_next(run.ledger, run.engine, run.conduct)
            assert [(s.number, s.attempt) for s in standing(run.ledger)] == [(n, 2) for n in range(1, 5)]
        assert faults(tmp_path / "run") == []

    def test_a_rebuilt_model_is_not_the_one_it_replaces(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            old = digests(run.ledger)
            leave(run, *sorted(run.ledger.membership(1)[0])[:2])
            assert len(digests(run.ledger)) == 4
            assert not set(old) & set(digests(run.ledger))

    def test_interrupted_between_rounds_it_goes_on_to_the_same_models(self, tmp_path: Path) -> None:
        ends = []
        for name, interrupted in (("one", False), ("two", True)):
            run = self.trained(tmp_path / name)
            rolled_back(run, ["client-01"], 2)
            for _ in range(3):
                run.mechanism.rebuild_next(run.ledger, run.engine, run.conduct)
                if interrupted:
                    run.close()
                    run = replace(reopen_toy(tmp_path / name), mechanism=self.make())
            ends.append(digests(run.ledger))
            run.close()
        assert ends[0] == ends[1]

    def test_the_obstacle_foreseen_is_the_obstacle_met(self, tmp_path: Path) -> None:
        seen = []
        for name, leavers in (("few", 6), ("too many", 7)):
            with self.trained(tmp_path / name) as run:
                foreseen = run.mechanism.obstacle(run.ledger, run.conduct, leavers=leavers)
                rolled_back(run, run.ledger.clients()[:leavers], 1)
                met = run.mechanism.obstacle(run.ledger, run.conduct)
                assert foreseen == met
                seen.append(met)
        assert seen[0] is None
        assert seen[1]

    def test_looking_for_an_obstacle_changes_nothing(self, tmp_path: Path) -> None:
        from tests.ledger.making import files_of

        self.trained(tmp_path / "run").close()
        before = files_of(tmp_path / "run")
        with Ledger.open(tmp_path / "run") as ledger:
            settings = runs.settings_of(tmp_path / "run")
            for leavers in range(10):
                self.make().obstacle(ledger, runs.conduct_of(settings), leavers=leavers)
        assert files_of(tmp_path / "run") == before

    def test_nobody_left_at_all_is_an_obstacle(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            assert run.mechanism.obstacle(run.ledger, run.conduct, leavers=9)
